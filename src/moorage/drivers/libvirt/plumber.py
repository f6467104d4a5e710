"""Serves the embedded network service's networks, which has no agents: this host answers DHCP for its own guests, on our own bridges.

All that is needed came with the guests' specs, so nobody is asked: each subnet's gateway address is the bridge's, and dnsmasq, one for each
bridge, gives every guest the address that its port has.  It runs on when the agent stops, for leases are renewed; a start finds it by its
pid file, whose process must have been started with our configuration.

    <host's directory>/networks/<bridge>/    conf, hosts, options, pid
"""

import asyncio
import contextlib
import ipaddress
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from moorage.drivers.libvirt.commands import run
from moorage.model.errors import HostFailed
from moorage.model.guest import VifAddress, VifData

BRIDGE_PREFIX = "mrg"
LEASE_S = 86_400
ENDS_WITHIN_S, LOOK_EVERY_S = 5.0, 0.02


class _Address(msgspec.Struct):
    local: str = ""
    prefix: int = msgspec.field(default=0, name="prefixlen")


class _Addresses(msgspec.Struct):
    name: str = msgspec.field(default="", name="ifname")
    addresses: list[_Address] = msgspec.field(default_factory=list, name="addr_info")


class Plumber:
    def __init__(self, room: Path) -> None:
        self._room = room / "networks"

    async def serve(self, networks: Mapping[str, Sequence[VifData]]) -> None:
        """Serve these networks (bridge → its interfaces), and no others any more. A repeat changes nothing for running guests."""
        if self._room.is_dir():
            for each in self._room.iterdir():
                if each.name not in networks:
                    await self._stop(each)
        for bridge, vifs in networks.items():
            await self._serve(bridge, vifs)

    async def _serve(self, bridge: str, vifs: Sequence[VifData]) -> None:
        subnets = {each.cidr: each for vif in vifs for each in vif.addresses if _is_v4(each)}
        if not subnets:
            await self._stop(self._room / bridge)
            return
        for subnet in subnets.values():
            if subnet.gateway:
                await self._be_gateway(bridge, subnet)
        directory = self._room / bridge
        directory.mkdir(parents=True, exist_ok=True)
        hosts = "".join(
            f"{vif.mac},set:{_tag(each.cidr)},{each.address}\n"
            for vif in vifs
            for each in vif.addresses
            if _is_v4(each)
        )
        changed = _write(directory / "hosts", hosts)
        restart = _write(directory / "conf", _conf(directory, bridge, subnets, min(vif.mtu for vif in vifs)))
        running = self._pid(directory)
        if running is not None and restart:
            await self._kill(running)
            running = None
        if running is None:
            await run("dnsmasq", f"--conf-file={directory / 'conf'}", code="vif_not_plugged")
        elif changed:
            os.kill(running, signal.SIGHUP)

    async def _be_gateway(self, bridge: str, subnet: VifAddress) -> None:
        """Raises HostFailed when the machine itself uses these addresses."""
        network = ipaddress.ip_network(subnet.cidr, strict=False)
        said = await run("ip", "-json", "-4", "address", "show", code="vif_not_plugged")
        for device in msgspec.json.decode(said or "[]", type=list[_Addresses]):
            for each in device.addresses:
                if not each.local or ipaddress.ip_address(each.local) not in network:
                    continue
                if device.name == bridge and each.local == subnet.gateway:
                    return
                if device.name != bridge:
                    why = f"{device.name} has {each.local}, which is in {subnet.cidr}"
                    raise HostFailed(
                        "the host uses addresses of this network for itself", private=why, code="vif_not_plugged"
                    )
        address = f"{subnet.gateway}/{network.prefixlen}"
        await run("ip", "address", "replace", address, "dev", bridge, code="vif_not_plugged")

    async def _stop(self, directory: Path) -> None:
        pid = self._pid(directory)
        if pid is not None:
            await self._kill(pid)
        shutil.rmtree(directory, ignore_errors=True)

    @staticmethod
    async def _kill(pid: int) -> None:
        """Until it is gone: another one could not have its address before."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for _ in range(int(ENDS_WITHIN_S / LOOK_EVERY_S)):
                try:
                    os.kill(pid, sign)
                except ProcessLookupError:
                    return
                await asyncio.sleep(LOOK_EVERY_S)

    @staticmethod
    def _pid(directory: Path) -> int | None:
        """Of the dnsmasq that serves there: a number that another process has meanwhile is not it; one that just started has written none."""
        try:
            candidates = [int((directory / "pid").read_text())]
        except (OSError, ValueError):
            candidates = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        mark = f"--conf-file={directory / 'conf'}".encode()
        for pid in candidates:
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return pid
        return None


def _is_v4(each: VifAddress) -> bool:
    return bool(each.cidr) and ":" not in each.address


def _tag(cidr: str) -> str:
    return f"net{cidr.replace('.', '-').replace('/', '-')}"


def _conf(directory: Path, bridge: str, subnets: Mapping[str, VifAddress], mtu: int) -> str:
    lines = [
        "port=0",
        f"interface={bridge}",
        "except-interface=lo",
        "bind-dynamic",
        "leasefile-ro",
        "no-ping",
        "dhcp-authoritative",
        f"pid-file={directory / 'pid'}",
        f"dhcp-hostsfile={directory / 'hosts'}",
        f"dhcp-option-force=option:mtu,{mtu}",
    ]
    if os.geteuid() == 0:
        lines.append("user=root")  # it reads files that only their owner may read
    for cidr, subnet in sorted(subnets.items()):
        network, tag = ipaddress.ip_network(cidr, strict=False), _tag(cidr)
        lines.append(f"dhcp-range=set:{tag},{network.network_address},static,{network.netmask},{LEASE_S}s")
        lines.append(f"dhcp-option=tag:{tag},option:router{',' + subnet.gateway if subnet.gateway else ''}")
        if subnet.dns:
            lines.append(f"dhcp-option=tag:{tag},option:dns-server,{','.join(subnet.dns)}")
        else:
            lines.append(f"dhcp-option=tag:{tag},option:dns-server")
    return "\n".join(lines) + "\n"


def _write(file: Path, content: str) -> bool:
    """Whether it is other than before."""
    if file.exists() and file.read_text() == content:
        return False
    coming = file.with_name(f"{file.name}.coming")
    coming.write_text(content)
    os.replace(coming, file)
    return True
