"""Serves the embedded network service's networks, which has no agents: this host answers DHCP for its own guests, on our own bridges.

All that is needed came with the guests' specs, so nobody is asked: the bridge answers for each subnet's gateway, in a table of its own
(bridge_tables.py), and dnsmasq, one for each bridge, gives every guest the addresses that its port has (dhcp.py).  It runs on when the agent
stops, for leases are renewed; a start finds it by its pid file, whose process must have been started with our configuration.

    <host's directory>/networks/<bridge>/    service (the bridge's own address), conf, pid
    /run/moorage/<hash of that>/<bridge>/    hosts, names, options: dnsmasq's user reads them, and may not search the host's directory
"""

import hashlib
import logging
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from moorage.drivers.libvirt import daemons
from moorage.drivers.libvirt.bridge_tables import (
    BridgeNetwork,
    BridgeTables,
    Held,
    advertising_address,
    free_service,
    is_service,
    set_up_device,
)
from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.dhcp import METADATA_V6, NO_NAMES, SERVICE_V6, DhcpPlaces, ServedNetwork, files_of
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.system_users import system_user
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData

SERVICE = "service"
READ_LATER, SEARCHED = Path("/run/moorage"), 0o711
TAKEN = "listening socket"
"""In dnsmasq's complaint."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Assignment:
    """Bridge → the host's own address on it, and what the devices of this machine had when it was looked at."""

    services: Mapping[str, str]
    held: Sequence[Held]


class Plumber:
    def __init__(self, room: Path, settings: Libvirt) -> None:
        self._room, self._read_later = room / "networks", read_later_of(room)
        self._user = settings.dhcp_user
        self._forwarders = settings.dns_forwarders
        self._metadata = bool(settings.metadata_url)
        self._tables = BridgeTables()

    async def assign(self, bridges: Collection[str]) -> Assignment:
        """Give each bridge that is to be served its own address. Raises HostFailed."""
        known = self._services()
        if not bridges and not known:
            return Assignment({}, [])
        held = await _addresses_held()  # once: each boot comes here, for all networks
        taken = {each.local for device in held for each in device.addresses if is_service(each.local)}
        services: dict[str, str] = {}
        for device in held:
            if device.name in bridges:
                mine = next((each.local for each in device.addresses if is_service(each.local)), "")
                services |= {device.name: mine} if mine and mine not in services.values() else {}
        taken |= {*known.values()}
        for bridge in sorted(bridges):
            if bridge not in services:
                services[bridge] = known.get(bridge) or free_service(bridge, taken)
                taken.add(services[bridge])
        return Assignment(services, held)

    async def serve(self, networks: Mapping[str, Sequence[VifData]], assigned: Assignment | None = None) -> None:
        """Serve these networks (bridge → its interfaces), and no others any more. A repeat changes nothing for running guests."""
        assigned = assigned or await self.assign(networks)
        gone = {bridge: service for bridge, service in self._services().items() if bridge not in networks}
        if self._room.is_dir():
            for each in self._room.iterdir():
                if each.name not in networks:
                    await self._end(each)
        served = [
            ServedNetwork(
                bridge,
                networks[bridge],
                forwarders=self._forwarders,
                metadata=self._metadata and bool(networks[bridge]),
                service_address=assigned.services[bridge],
                names=not self._goes_without_names(bridge),
            )
            for bridge in sorted(networks)
        ]
        for network in served:  # first: whatever is killed in between leaves what is found by it
            directory = self._room / network.bridge
            directory.mkdir(parents=True, exist_ok=True)
            daemons.write(directory / SERVICE, network.service_address)
        await self._tables.keep([_table(network) for network in served], gone, assigned.held)
        for bridge in gone:
            shutil.rmtree(self._read_later / bridge, ignore_errors=True)
            shutil.rmtree(self._room / bridge, ignore_errors=True)
        if not networks:
            shutil.rmtree(self._read_later, ignore_errors=True)
        for network in served:
            await self._serve(network)

    def _services(self) -> dict[str, str]:
        """As they are written down."""
        found = {}
        for each in self._room.glob(f"*/{SERVICE}"):
            service = each.read_text()
            if is_service(service):
                found[each.parent.name] = service
        return found

    async def _serve(self, network: ServedNetwork) -> None:
        """Raises HostFailed."""
        directory = self._room / network.bridge
        if not network.has_dhcp:
            await self._end(directory)
            shutil.rmtree(self._read_later / network.bridge, ignore_errors=True)
            for each in directory.iterdir():
                if each.name != SERVICE:
                    each.unlink(missing_ok=True)
            return
        places = DhcpPlaces(directory, self._read_later / network.bridge, system_user(self._user))
        for each in (READ_LATER, self._read_later, places.read_later):
            each.mkdir(exist_ok=True)
            each.chmod(SEARCHED)
        files = files_of(places, network)
        contents = {"hosts": files.hosts, "names": files.names, "options": files.options}
        changed = [
            name
            for name, content in contents.items()
            if daemons.write(places.read_later / name, content, 0o400, places.user.uid)
        ]
        changed += ["conf"] if daemons.write(directory / "conf", files.conf) else []
        running = _pid(directory)
        if running is not None and changed:
            # SIGHUP would do, but dnsmasq 2.90 dies of it once one of its hosts with a tag has a lease; a start takes no longer
            await daemons.end(running)
            running = None
        if running is None:
            await self._begin(places, network)

    async def _begin(self, places: DhcpPlaces, network: ServedNetwork) -> None:
        """Without names, where somebody else answers for them on all addresses of this machine."""
        mark = _mark(places.directory)
        try:
            await run("dnsmasq", mark, code="vif_not_plugged")
        except HostFailed as failure:
            if not network.names or TAKEN not in failure.private:
                raise
            _log.warning("%s has no name server of its own: %s", network.bridge, failure.private)
            daemons.write(places.directory / "conf", files_of(places, replace(network, names=False)).conf)
            await run("dnsmasq", mark, code="vif_not_plugged")

    def _goes_without_names(self, bridge: str) -> bool:
        """One that runs and does so goes on like this: an attempt would interrupt it."""
        directory = self._room / bridge
        return not _answers_names(directory) and _pid(directory) is not None

    def has_lost_servers(self) -> bool:
        """Whether one that should run does not."""
        return self._room.is_dir() and any(
            _pid(each) is None for each in self._room.iterdir() if (each / "conf").exists()
        )

    async def _end(self, directory: Path) -> None:
        """Its directory stays as long as its table is there; one of an earlier release has no table."""
        pid = _pid(directory)
        if pid is not None:
            await daemons.end(pid)
        if not (directory / SERVICE).exists():
            shutil.rmtree(directory, ignore_errors=True)


def read_later_of(room: Path) -> Path:
    """Where files of this host's dnsmasq are: each host of the machine has its own."""
    return READ_LATER / hashlib.sha256(str(room.resolve()).encode()).hexdigest()[:12]


async def _addresses_held() -> list[Held]:
    """By the devices of this machine. Raises HostFailed."""
    output = await run("ip", "-json", "address", "show", code="vif_not_plugged")
    return msgspec.json.decode(output or "[]", type=list[Held])


def gateways_of(vifs: Sequence[VifData]) -> list[str]:
    """What guests on a bridge take for the host."""
    return sorted({each.gateway for vif in vifs for each in vif.addresses if each.cidr and each.gateway})


def _table(network: ServedNetwork) -> BridgeNetwork:
    """Raises HostFailed."""
    own_v6: list[str] = []
    if set_up_device(network.bridge):
        own_v6 = [f"{SERVICE_V6}/64", *([f"{METADATA_V6}/64"] if network.metadata else [])]
        for cidr, subnet in network.subnets.items():
            if subnet.gateway and subnet.dhcp and (address := advertising_address(network.bridge, cidr)):
                own_v6.append(f"{address}/64")
    subnets = tuple(sorted((cidr, each.gateway or "") for cidr, each in network.subnets.items()))
    return BridgeNetwork(network.bridge, network.service_address, subnets, tuple(own_v6))


def _answers_names(directory: Path) -> bool:
    """Whether it does so already: it goes on then, when another network with the same gateway comes."""
    conf = directory / "conf"
    return conf.exists() and NO_NAMES not in conf.read_text().splitlines()


def _mark(directory: Path) -> str:
    return f"--conf-file={directory / 'conf'}"


def _pid(directory: Path) -> int | None:
    return daemons.pid_of(directory / "pid", _mark(directory))
