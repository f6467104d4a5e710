"""Plugging into Open vSwitch, where Neutron's own agent knows the port by its id and does the rest: VLANs, tunnels, security groups.

    tap<port>            ours, in the integration bridge, or where the binding asks for it (`ovs_hybrid_plug`) in
    qbr<port>            a Linux bridge, whose traffic the agent's firewall filters, and from there by the pair
    qvb<port> qvo<port>  of which one end is in that bridge and the other in the integration bridge

Each of our ports in a switch carries the owner of its host's directory beside the port's id.  What carries another owner's is never touched.
The port is there before the guest starts and while it is off, so that it is wired already when the guest sends its first packet.

Where the switch works in userspace (`datapath_type=netdev`) two things are ours to see to: the guest finishes its checksums itself, since nobody
after it does, and the kernel, which gets a copy of all that the guest sends, drops it (table `moorage_…` of nftables, family `netdev`): otherwise
the guest would reach the machine past every security group.
"""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.devices import ALIAS, ID_CHARACTERS, NAME, NetworkDevice, ip, links, make_tap, tap_of
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData

CODE = "vif_not_plugged"
OWNER = "moorage-owner"
INTEGRATION, TRUNK_PREFIX = "br-int", "tbr-"
"""A trunk's bridge is made by whoever plugs its first port, and Neutron's agent joins it to the integration bridge."""
NOWHERE = ("tag=4095", "vlan_mode=trunk", "trunks=4095")
"""Of a new port, until Neutron's agent gives it the tag of its network: without one it would see what is in every network."""
IN_USERSPACE = "netdev"
ANSWERS_WITHIN_S = 15
OFFLOADS = ("csum", "gso", "tso4", "tso6", "ecn", "ufo")
FROM_GUEST = ("csum", "tso4", "tso6", "ecn", "ufo")
HYBRID = ("qbr", "qvb", "qvo")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OvsWire:
    """Of one host. `database`: of its Open vSwitch, in the words of `ovs-vsctl --db`."""

    owner: str
    database: str

    async def plug(self, vif: VifData, *, many_queues: bool = False) -> ET.Element:
        bridge, links_now = _bridge_of(vif), await links()
        datapath = await self._datapath(vif, bridge)
        hybrid = bool(vif.vif_details.get("ovs_hybrid_plug"))
        port = _named("qvo", vif) if hybrid else tap_of(vif)
        is_new = await self._is_new(port, vif)
        if hybrid:
            await self._make_pair(vif, links_now)
        master = _named("qbr", vif) if hybrid else ""
        tap = await make_tap(vif, self.owner, links_now, master, many_queues=many_queues)
        marks = {"iface-id": vif.port, "iface-status": "active", "attached-mac": vif.mac, OWNER: self.owner}
        words = [f'external_ids:{key}="{value}"' for key, value in marks.items()]
        nowhere = NOWHERE if is_new and wired_by_agent(vif) and not bridge.startswith(TRUNK_PREFIX) else ()
        await self._vsctl("--may-exist", "add-port", bridge, port, *nowhere, "--", "set", "Interface", port, *words)
        plug = ET.Element("interface", type="ethernet")
        ET.SubElement(plug, "target", dev=tap, managed="no")
        if datapath == IN_USERSPACE:
            _without_offloads(plug)
            await self._guard(port)
        return plug

    async def unplug(self, vif: VifData) -> None:
        """What is not there is gone; where the switch's database is out, that is a failure, for its port would stay."""
        await self.loosen(vif)
        await self._remove_devices({tap_of(vif)})

    async def loosen(self, vif: VifData) -> None:
        for port in (tap_of(vif), _named("qvo", vif)):
            if not await self._is_there() or (await self._interfaces()).get(port) != self.owner:
                continue
            await self._remove(port)
        await self._remove_devices({_named(each, vif) for each in HYBRID})

    async def keep(self, vifs: Collection[VifData]) -> None:
        """Ports and devices of ours that none of these needs go. A switch that does not answer keeps what it has until the next time."""
        needed = {name for vif in vifs for name in (tap_of(vif), *(_named(each, vif) for each in HYBRID))}
        mine = {name for name, link in (await links()).items() if link.alias == f"{ALIAS}{self.owner}"}
        is_running = await self._is_there()
        try:
            for name, owner in (await self._interfaces() if is_running else {}).items():
                if owner == self.owner and name not in needed:
                    await self._remove(name)
            if not vifs and is_running and shutil.which("nft"):
                await self._filter("delete table netdev {table}")
            await self._remove_devices({name for name in mine if name.startswith(HYBRID)} - needed)
        except HostFailed as failure:
            _log.warning("what is left in Open vSwitch stays for now: %s", failure.private)

    # ---- the switch ------------------------------------------------------------------------------------------------

    async def _datapath(self, vif: VifData, bridge: str) -> str:
        """Of the bridge, which must be there; a trunk's is made. Raises HostFailed with what is missing."""
        output = await self._ask("--if-exists", "--columns=datapath_type", "list", "Bridge", bridge)
        if output:
            return str(output[0]["datapath_type"])
        if not bridge.startswith(TRUNK_PREFIX):
            raise HostFailed(
                "the host's Open vSwitch has no bridge for this port",
                private=f"there is no {bridge}: Neutron's Open vSwitch agent of this host makes it when it starts",
                code=CODE,
            )
        datapath = str(vif.vif_details.get("datapath_type") or "system")
        await self._vsctl("--may-exist", "add-br", bridge, "--", "set", "Bridge", bridge, f"datapath_type={datapath}")
        return datapath

    async def _is_new(self, port: str, vif: VifData) -> bool:
        """Raises HostFailed where somebody else has a port of this name in the switch."""
        found = await self._ask("--if-exists", "--columns=external_ids", "list", "Interface", port)
        if found and found[0]["external_ids"].get(OWNER, self.owner) != self.owner:
            raise HostFailed(
                "the host's Open vSwitch has another port of this name", private=f"{port} of {vif.port}", code=CODE
            )
        return not found

    async def _interfaces(self) -> dict[str, str]:
        """Of any host's directory: name → owner."""
        interfaces = await self._ask("--columns=name,external_ids", "find", "Interface", f"external_ids:{OWNER}!=''")
        return {str(each["name"]): str(each["external_ids"].get(OWNER, "")) for each in interfaces}

    async def _remove(self, port: str) -> None:
        """And a trunk's bridge with its last port of a guest."""
        bridge = (await self._vsctl("port-to-br", port)).strip()
        await self._vsctl("--if-exists", "del-port", bridge, port)
        if bridge.startswith(TRUNK_PREFIX):
            await self._vsctl("--if-exists", "del-br", bridge)

    async def _ask(self, *words: str) -> list[dict[str, Any]]:
        """Rows, each by its columns; maps as maps."""
        output = await self._vsctl("--format=json", *words)
        if not output.strip():
            return []
        table = msgspec.json.decode(output, type=dict[str, Any])
        return [dict(zip(table["headings"], map(_plain, row), strict=True)) for row in table["data"]]

    async def _vsctl(self, *words: str) -> str:
        """Raises HostFailed: it is not installed, does not answer, or refuses."""
        try:
            return await run("ovs-vsctl", f"--timeout={ANSWERS_WITHIN_S}", f"--db={self.database}", *words, code=CODE)
        except HostFailed as failure:
            if "database connection failed" in failure.private or "signal" in failure.private:
                raise HostFailed(
                    "the host's Open vSwitch does not answer", private=f"[libvirt] ovs_db: {failure.private}", code=CODE
                ) from failure
            raise

    async def _is_there(self) -> bool:
        """Whether this machine has one: where it was never installed nothing of ours is in it."""
        kind, _, place = self.database.partition(":")
        is_present = kind != "unix" or await asyncio.to_thread(Path(place).exists)
        return is_present and shutil.which("ovs-vsctl") is not None

    # ---- what the kernel gets -----------------------------------------------------------------------------------------

    async def _guard(self, port: str) -> None:
        """Of the device that the switch reads, which it does before this hook. A chain goes with its device."""
        await self._filter(
            f'add chain netdev {{table}} {port} {{ type filter hook ingress device "{port}" priority 0; policy drop; }}'
        )

    async def _filter(self, words: str) -> None:
        table = f"moorage_{self.owner[:8]}"
        await run("nft", "-f", "-", given=f"add table netdev {table}\n{words.replace('{table}', table)}\n", code=CODE)

    # ---- devices ---------------------------------------------------------------------------------------------------

    async def _make_pair(self, vif: VifData, links_now: Mapping[str, NetworkDevice]) -> None:
        bridge, inner, outer = (_named(each, vif) for each in HYBRID)
        mark, mtu = f"{ALIAS}{self.owner}", str(vif.mtu)
        if bridge not in links_now:
            await ip("link", "add", "name", bridge, "mtu", mtu, "type", "bridge", "stp_state", "0", "forward_delay", "0",
                     "mcast_snooping", "0", "ageing_time", "0")  # fmt: skip
        if inner not in links_now:
            await ip("link", "add", "name", outer, "mtu", mtu, "type", "veth", "peer", "name", inner, "mtu", mtu)
        for name in (bridge, inner, outer):
            await ip("link", "set", "dev", name, "alias", mark, "up")
        await ip("link", "set", "dev", inner, "master", bridge)

    async def _remove_devices(self, names: Collection[str]) -> None:
        """Those that carry our mark, or none yet, since a call was cut off before."""
        for name in sorted(names):  # `qvb` takes its other end along
            link = (await links()).get(name)
            if link is not None and link.alias in {"", f"{ALIAS}{self.owner}"}:
                with contextlib.suppress(HostFailed):  # it went meanwhile, or the look below says that it did not
                    await ip("link", "delete", "dev", name)
        left = {*names} & {name for name, link in (await links()).items() if link.alias == f"{ALIAS}{self.owner}"}
        if left:
            raise HostFailed(
                "the host keeps devices of a guest that is gone", private=", ".join(sorted(left)), code=CODE
            )


def wired_by_agent(vif: VifData) -> bool:
    """By Neutron's Open vSwitch agent, which clears `NOWHERE`; OVN, which binds as `ovs` too, would leave it."""
    drivers = vif.vif_details.get("bound_drivers")
    return isinstance(drivers, Mapping) and "openvswitch" in drivers.values()


def _bridge_of(vif: VifData) -> str:
    bridge = str(vif.vif_details.get("bridge_name") or INTEGRATION)
    if not NAME.fullmatch(bridge):
        raise HostFailed("the port's binding names no bridge", private=repr(bridge), code=CODE)
    return bridge


def _named(prefix: str, vif: VifData) -> str:
    return f"{prefix}{vif.port[:ID_CHARACTERS]}"


def _without_offloads(plug: ET.Element) -> None:
    """A switch in userspace passes packets on as they are: whose checksums are left to hardware, nobody would finish."""
    driver = ET.SubElement(plug, "driver")
    ET.SubElement(driver, "host", dict.fromkeys(OFFLOADS, "off"))
    ET.SubElement(driver, "guest", dict.fromkeys(FROM_GUEST, "off"))


def _plain(value: Any) -> Any:
    """OVSDB's form of a map or a set of text."""
    match value:
        case ["map", pairs]:
            return dict(pairs)
        case ["set", rows]:
            return list(rows)
        case _:
            return value
