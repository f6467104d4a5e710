"""How a guest's interfaces get their wires: a small seam, chosen for each by what its bound port says (`vif_type`).

    bridge   a tap of ours, in the bridge that the binding names, that the operator named for the physical network, or that is the network's own
    ovs      a tap of ours, in the integration bridge of an Open vSwitch with the port's id, by which Neutron's agent knows what to do with it

Names are made of ids, so that what is there already is found, and what belongs to nobody any more is known:

    tap<port>    11 characters of the port's id, as in Nova
    mrg<network> a bridge of ours; and mrv<network> with a VLAN (vlans.py). The others are never made nor removed
"""

import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.devices import (
    ALIAS,
    BRIDGE_PREFIX,
    ID_CHARACTERS,
    NAME,
    TAP_PREFIX,
    links,
    loosen_tap,
    make_loose_tap,
    make_tap,
    remove_tap,
    tap_of,
)
from moorage.drivers.libvirt.devices import NetworkDevice as _Link
from moorage.drivers.libvirt.devices import ip as _ip
from moorage.drivers.libvirt.far_side import FarSideKeeper
from moorage.drivers.libvirt.firewall import Firewall, has_tables
from moorage.drivers.libvirt.host_input import OwnAddresses, input_chains
from moorage.drivers.libvirt.metadata_keeper import Seat
from moorage.drivers.libvirt.open_vswitch import OvsWire
from moorage.drivers.libvirt.plumber import Plumber, gateways_of
from moorage.drivers.libvirt.port_wiring import PortWiring
from moorage.drivers.libvirt.routes import FarSide
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.tunnels import Tunnelled, Tunnels, gateway_mac, tunnel_of
from moorage.drivers.libvirt.vlans import VLAN_BRIDGE_PREFIX, Vlans, vlan_bridge_of, vlan_of
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, VifData

OWN_BRIDGES = (BRIDGE_PREFIX, VLAN_BRIDGE_PREFIX)


class Wire(Protocol):
    """One way to plug in; `plug` and `unplug` are safe twice."""

    async def plug(self, vif: VifData, *, many_queues: bool = False) -> ET.Element:
        """An `interface` of libvirt's that says where it is plugged in. Raises HostFailed (`vif_not_plugged`)."""
        ...

    async def unplug(self, vif: VifData) -> None: ...

    async def loosen(self, vif: VifData) -> None:
        """Take it off its network; its tap stays, for a guest has it open that cannot release it now."""
        ...


def bridge_of(vif: VifData, bridges: Mapping[str, str]) -> str:
    """Where it belongs. Raises HostFailed for a name that is none."""
    mapped = bridges.get(vif.physical_network or "", "")
    if mapped and vif.segmentation_id is not None:
        mapped = vlan_bridge_of(vif.network)
    named = str(vif.vif_details.get("bridge_name") or "") or mapped
    name = named or f"{BRIDGE_PREFIX}{vif.network[:ID_CHARACTERS]}"
    if not NAME.fullmatch(name):
        raise HostFailed("the port's binding names no bridge", private=repr(name), code="vif_not_plugged")
    return name


@dataclass(frozen=True)
class BridgeWire:
    """A tap of ours: libvirt is told to leave it as it is, so it is there before the guest and goes after it."""

    owner: str
    bridges: Mapping[str, str]
    tunnels: Tunnels
    vlans: Vlans

    async def plug(self, vif: VifData, *, many_queues: bool = False) -> ET.Element:
        """Raises HostFailed (`vif_not_plugged`) for an operator's bridge that the host does not have."""
        bridge, links_now = bridge_of(vif, self.bridges), await links()
        if bridge not in links_now:
            if not bridge.startswith(OWN_BRIDGES):
                raise HostFailed("the host has no such bridge", private=bridge, code="vif_not_plugged")
            await self.make_bridge(bridge, vif)
        await self.claim(bridge, links_now)
        await _ip("link", "set", "dev", bridge, "up")
        if bridge.startswith(BRIDGE_PREFIX) and self.tunnels.has(vif):
            await self.tunnels.join(vif, bridge, links_now)
        if bridge.startswith(VLAN_BRIDGE_PREFIX):
            await self.vlans.join(vif, self.bridges[vif.physical_network or ""], bridge, links_now)
        tap = await make_tap(vif, self.owner, links_now, bridge, many_queues=many_queues)
        plug = ET.Element("interface", type="ethernet")
        ET.SubElement(plug, "target", dev=tap, managed="no")
        return plug

    async def unplug(self, vif: VifData) -> None:
        """Also what was cut off between the making of a device and its mark: its name says that it is this port's, or its network's."""
        tap, links_now = tap_of(vif), await links()
        await self.claim(bridge_of(vif, self.bridges), links_now)
        if tap in links_now and links_now[tap].alias in {"", f"{ALIAS}{self.owner}"}:
            await _ip("link", "delete", "dev", tap)

    async def loosen(self, vif: VifData) -> None:
        await loosen_tap(tap_of(vif), self.owner)

    async def make_bridge(self, bridge: str, network: Tunnelled) -> None:
        # the same everywhere where it is the gateway; on a VLAN it is nobody
        mac = ("address", gateway_mac(network.network)) if bridge.startswith(BRIDGE_PREFIX) else ()
        words = ("mtu", str(network.mtu), *mac, "type", "bridge")
        await _ip("link", "add", "name", bridge, *words, "stp_state", "0", "forward_delay", "0")

    async def claim(self, bridge: str, links_now: Mapping[str, "_Link"]) -> None:
        """One of ours that has no mark yet gets it; the one that was just made is not in what was there."""
        unmarked = not links_now[bridge].alias if bridge in links_now else bridge in await links()
        if bridge.startswith(OWN_BRIDGES) and unmarked:
            await _ip("link", "set", "dev", bridge, "alias", f"{ALIAS}{self.owner}")


class Wires:
    """All ways of one host, and the networks that it serves itself."""

    def __init__(self, owner: str, settings: Libvirt, plumber: Plumber, described: DescribedPorts) -> None:
        self._owner, self._plumber, self._serves = owner, plumber, settings.dhcp
        self._tunnels = Tunnels(settings.vxlan_address, settings.vxlan_group, f"{ALIAS}{owner}")
        self._firewall = Firewall(owner)
        self._filters = settings.port_filter
        self._ports = PortWiring(owner, described, settings.bandwidth_kbps, f"{ALIAS}{owner}")
        self._unfiltered = False
        """What an agent that filtered has left is gone."""
        self._bridges, self._guest_tcp_ports = settings.bridges, settings.guest_tcp_ports
        self._vlans = Vlans(f"{ALIAS}{owner}")
        self._ovs = OvsWire(owner, settings.ovs_db)
        self._far = FarSideKeeper(settings.routers, self._tunnels, described)
        self._bridge = BridgeWire(owner, self._bridges, self._tunnels, self._vlans)
        self._ways: dict[str, Wire] = {"bridge": self._bridge, "ovs": self._ovs}

    async def plug(self, vifs: Iterable[VifData], *, many_queues: bool = False) -> list[ET.Element]:
        return [await self._way(vif).plug(vif, many_queues=many_queues) for vif in vifs]

    async def unplug(self, vifs: Iterable[VifData]) -> None:
        for vif in vifs:
            if vif.vif_type in self._ways:
                await self._way(vif).unplug(vif)

    async def loosen(self, vif: VifData) -> None:
        if vif.vif_type in self._ways:
            await self._way(vif).loosen(vif)

    async def plug_nowhere(self, tap: str, *, many_queues: bool) -> None:
        """For an interface of a guest that is no port's any more."""
        await make_loose_tap(tap, self._owner, many_queues=many_queues)

    async def serve(self, vifs: Iterable[VifData], unreleased: Collection[str] = ()) -> None:
        """Devices of ours that nobody needs go; networks are served as guests need it.

        `vifs`: all that guests of this host have. `unreleased`: taps on no network that guests have besides.
        """
        every = list(vifs)
        await self._ovs.keep([vif for vif in every if vif.vif_type == "ovs"])
        mine = [vif for vif in every if vif.vif_type == "bridge"]
        taps, links_now = {*(tap_of(vif) for vif in every), *unreleased}, await links()
        for name, link in links_now.items():
            if name.startswith(TAP_PREFIX) and link.alias == f"{ALIAS}{self._owner}" and name not in taps:
                await remove_tap(name, self._owner)
        if self._filters:
            bridges = {tap_of(vif): (vif, bridge_of(vif, self._bridges)) for vif in mine}
            await self._ports.keep(bridges, links_now)
        elif not self._unfiltered and shutil.which("nft") is not None:
            await self._ports.keep({}, links_now)
            self._unfiltered = True
        served: dict[str, list[VifData]] = {}
        for vif in mine:
            bridge = bridge_of(vif, self._bridges)
            if bridge.startswith(BRIDGE_PREFIX):
                served.setdefault(bridge, []).append(vif)
        tunnelled = [vif for each in served.values() for vif in each if self._tunnels.has(vif)]
        far = await self._far.make(tunnelled, self._bridge, links_now)
        tagged = {vif.network: bridge_of(vif, self._bridges) for vif in mine}
        tagged = {network: name for network, name in tagged.items() if name.startswith(VLAN_BRIDGE_PREFIX)}
        served_here = {name: each for name, each in served.items() if name in links_now and self._serves}
        assigned = await self._plumber.assign(served_here)
        if self._tunnels.address or shutil.which("nft") is not None:
            own = {name: OwnAddresses() for name in (*(each.bridge for each in far), *served)}
            for name, service in assigned.services.items():
                own[name] = OwnAddresses(service, tuple(gateways_of(served[name])))
            await self._firewall.keep(tunnelled, input_chains(own, tagged.values(), self._guest_tcp_ports))
        await self._plumber.serve(served_here, assigned)
        tunnels = {tunnel_of(vif.network) for vif in tunnelled} | {tunnel_of(each.network) for each in far}
        await self._tunnels.leave({name: link.alias for name, link in links_now.items()}, tunnels)
        await self._vlans.leave(
            {name: link.alias for name, link in links_now.items()}, {vlan_of(each) for each in tagged}
        )
        needed = {*served, *tagged.values(), *(each.bridge for each in far)}
        for name, link in links_now.items():
            if name.startswith(OWN_BRIDGES) and link.alias == f"{ALIAS}{self._owner}" and name not in needed:
                await _ip("link", "delete", "dev", name)
        await self._far.announce(tunnelled, links_now.keys())

    @property
    def far_side(self) -> FarSide:
        """What of this host's routers is on other hosts, as of the last call of `serve`."""
        return self._far.side

    async def repeat_announcements(self, clock: Clock) -> None:
        """Tell other hosts now and then which guests are here."""
        await self._far.announcements.repeat(clock)

    async def seats(self, guests: Iterable[GuestSpec]) -> dict[str, list[Seat]]:
        """Bridge of ours that is there → who is on it, where this host serves networks: a guest is known before its bridge is made."""
        found: dict[str, list[Seat]] = {}
        for guest in guests if self._serves else ():
            for vif in guest.vifs:
                if vif.vif_type == "bridge" and (name := bridge_of(vif, self._bridges)).startswith(BRIDGE_PREFIX):
                    found.setdefault(name, []).append(Seat(vif, guest))
        links_now = await links() if found else {}
        return {name: each for name, each in found.items() if name in links_now}

    def has_lost_servers(self) -> bool:
        """Whether one that should answer DHCP does not run."""
        return self._plumber.has_lost_servers()

    async def is_intact(self) -> bool:
        """Whether nobody removed the filters of ports, and of bridges; those that somebody did are written with the next call of `serve`."""
        intact = await has_tables(self._firewall.tables())
        if not intact:
            self._firewall.forget()
        return (not self._filters or await self._ports.is_intact()) and intact

    @property
    def not_wired(self) -> tuple[str, ...]:
        """What of the descriptions of ports is not in effect."""
        return (*self._ports.troubles, *self._far.troubles)

    def _way(self, vif: VifData) -> Wire:
        way = self._ways.get(vif.vif_type)
        if way is None:
            raise HostFailed("this host cannot plug in such a port", private=vif.vif_type, code="vif_not_plugged")
        return way
