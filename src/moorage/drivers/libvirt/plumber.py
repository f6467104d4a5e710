"""Serves the embedded network service's networks, which has no agents: this host answers DHCP for its own guests, on our own bridges.

All that is needed came with the guests' specs, so nobody is asked: each subnet's gateway address is the bridge's, and dnsmasq, one for each
bridge, gives every guest the addresses that its port has (dhcp.py).  It runs on when the agent stops, for leases are renewed; a start finds
it by its pid file, whose process must have been started with our configuration.

    <host's directory>/networks/<bridge>/    conf, hosts, names, options, pid
"""

import ipaddress
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from moorage.drivers.libvirt import daemons
from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.dhcp import METADATA_V6, NO_NAMES, ServedNetwork, files_of, is_v4
from moorage.drivers.libvirt.settings import Libvirt
from moorage.model.errors import HostFailed
from moorage.model.guest import VifAddress, VifData

BRIDGE_PREFIX = "mrg"
SYSTEM_CONTROL = Path("/proc/sys/net")
TAKEN = "listening socket"
"""In dnsmasq's complaint."""

_log = logging.getLogger(__name__)


class _Address(msgspec.Struct):
    local: str = ""
    prefix: int = msgspec.field(default=0, name="prefixlen")


class _Addresses(msgspec.Struct):
    name: str = msgspec.field(default="", name="ifname")
    addresses: list[_Address] = msgspec.field(default_factory=list, name="addr_info")


class Plumber:
    def __init__(self, room: Path, settings: Libvirt) -> None:
        self._room = room / "networks"
        self._forwarders = settings.dns_forwarders
        self._metadata = bool(settings.metadata_url)

    async def serve(self, networks: Mapping[str, Sequence[VifData]]) -> None:
        """Serve these networks (bridge → its interfaces), and no others any more. A repeat changes nothing for running guests."""
        if self._room.is_dir():
            for each in self._room.iterdir():
                if each.name not in networks:
                    await self._stop(each)
        held = await _addresses_held() if networks else []  # once: each boot comes here, for all networks
        claimed: set[str] = set()
        for bridge in sorted(networks, key=lambda each: (not _answers_names(self._room / each), each)):
            network = ServedNetwork(
                bridge,
                networks[bridge],
                forwarders=self._forwarders,
                metadata=self._metadata and bool(networks[bridge]),
            )
            names = claimed.isdisjoint(network.gateways) and not self._goes_without_names(bridge)
            network = replace(network, names=names)
            claimed |= network.gateways
            await self._serve(network, held)

    async def _serve(self, network: ServedNetwork, held: Sequence[_Addresses]) -> None:
        await self._give_addresses(network, held)
        directory = self._room / network.bridge
        files = files_of(directory, network)
        if files is None:
            await self._stop(directory)
            return
        directory.mkdir(parents=True, exist_ok=True)
        contents = {"conf": files.conf, "hosts": files.hosts, "names": files.names, "options": files.options}
        changed = [name for name, content in contents.items() if daemons.write(directory / name, content)]
        running = _pid(directory)
        if running is not None and changed:
            # SIGHUP would do, but dnsmasq 2.90 dies of it once one of its hosts with a tag has a lease; a start takes no longer
            await daemons.end(running)
            running = None
        if running is None:
            await self._begin(directory, network)

    async def _begin(self, directory: Path, network: ServedNetwork) -> None:
        """Without names, where somebody else answers for them on all addresses of this machine."""
        try:
            await run("dnsmasq", _mark(directory), code="vif_not_plugged")
        except HostFailed as failure:
            if not network.names or TAKEN not in failure.private:
                raise
            _log.warning("%s has no name server of its own: %s", network.bridge, failure.private)
            nameless = files_of(directory, replace(network, names=False))
            assert nameless is not None
            daemons.write(directory / "conf", nameless.conf)
            await run("dnsmasq", _mark(directory), code="vif_not_plugged")

    def _goes_without_names(self, bridge: str) -> bool:
        """One that runs and does so goes on like this: an attempt would interrupt it."""
        directory = self._room / bridge
        return not _answers_names(directory) and _pid(directory) is not None

    async def _give_addresses(self, network: ServedNetwork, held: Sequence[_Addresses]) -> None:
        """The bridge is what guests reach: their gateway, and whoever answers DHCP."""
        bridge, v6 = network.bridge, take_no_advertisements(network.bridge)
        own = {(each.local, each.prefix) for device in held if device.name == bridge for each in device.addresses}
        for subnet in network.subnets.values():
            if subnet.gateway and is_v4(subnet):
                await self._be_gateway(bridge, subnet, held)
            elif subnet.gateway and v6:
                length = ipaddress.ip_network(subnet.cidr, strict=False).prefixlen
                if (subnet.gateway, length) not in own:
                    await _ip("-6", "address", "replace", f"{subnet.gateway}/{length}", "dev", bridge, "nodad")
            elif is_v4(subnet):  # guests of it are reached nevertheless
                await _ip("address", "replace", f"{network.service_address}/32", "dev", bridge)
                await _ip("route", "replace", subnet.cidr, "dev", bridge, "src", network.service_address)
        if network.metadata and v6 and (METADATA_V6, 64) not in own:
            await _ip("-6", "address", "replace", f"{METADATA_V6}/64", "dev", bridge, "nodad")

    async def _be_gateway(self, bridge: str, subnet: VifAddress, held: Sequence[_Addresses]) -> None:
        """Raises HostFailed when the machine itself uses these addresses; other networks of ours may."""
        network = ipaddress.ip_network(subnet.cidr, strict=False)
        for device in held:
            for each in device.addresses:
                if not each.local or ":" in each.local or ipaddress.ip_address(each.local) not in network:
                    continue
                if device.name == bridge and each.local == subnet.gateway:
                    return
                if not device.name.startswith(BRIDGE_PREFIX):
                    why = f"{device.name} has {each.local}, which is in {subnet.cidr}"
                    raise HostFailed(
                        "the host uses addresses of this network for itself", private=why, code="vif_not_plugged"
                    )
        await _ip("address", "replace", f"{subnet.gateway}/{network.prefixlen}", "dev", bridge)

    def has_lost_servers(self) -> bool:
        """Whether one that should run does not."""
        return self._room.is_dir() and any(
            _pid(each) is None for each in self._room.iterdir() if (each / "conf").exists()
        )

    async def _stop(self, directory: Path) -> None:
        pid = _pid(directory)
        if pid is not None:
            await daemons.end(pid)
        shutil.rmtree(directory, ignore_errors=True)


async def _addresses_held() -> list[_Addresses]:
    """By the devices of this machine. Raises HostFailed."""
    output = await run("ip", "-json", "address", "show", code="vif_not_plugged")
    return msgspec.json.decode(output or "[]", type=list[_Addresses])


def host_addresses(bridge: str, vifs: Sequence[VifData]) -> list[str]:
    """Of a bridge that is served, as far as guests have a reason to know them."""
    network = ServedNetwork(bridge, vifs)
    return [each.gateway or network.service_address for each in network.subnets.values() if each.gateway or is_v4(each)]


def _answers_names(directory: Path) -> bool:
    """Whether it does so already: it goes on then, when another network with the same gateway comes."""
    conf = directory / "conf"
    return conf.exists() and NO_NAMES not in conf.read_text().splitlines()


def _mark(directory: Path) -> str:
    return f"--conf-file={directory / 'conf'}"


def _pid(directory: Path) -> int | None:
    return daemons.pid_of(directory / "pid", _mark(directory))


def take_no_advertisements(bridge: str) -> bool:
    """It takes no IPv6 addresses from what a guest advertises. Whether it may have any."""
    mine = SYSTEM_CONTROL / "ipv6" / "conf" / bridge
    try:
        (mine / "accept_ra").write_text("0")
        return (mine / "disable_ipv6").read_text().strip() == "0"
    except OSError:
        return False


async def _ip(*words: str) -> None:
    await run("ip", *words, code="vif_not_plugged")
