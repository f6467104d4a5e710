"""Makes the bridges and tunnels of networks that this host routes into (far_networks.py), and knows their ports' neighbours."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from moorage.drivers.libvirt.bridge_tables import take_no_advertisements
from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.devices import NetworkDevice
from moorage.drivers.libvirt.dhcp import METADATA_V6
from moorage.drivers.libvirt.far_networks import Announcements, FarNetwork, far_networks, own_bridge_of
from moorage.drivers.libvirt.routes import NOTHING_FAR, FarSide
from moorage.drivers.libvirt.tunnels import Tunnelled, Tunnels, tunnel_of
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData

TROUBLE = "network {}: guests of this host do not reach it: {}"

_log = logging.getLogger(__name__)


class BridgeMaker(Protocol):
    """Makes bridges of ours; `claim` marks one."""

    async def make_bridge(self, bridge: str, network: Tunnelled) -> None: ...

    async def claim(self, bridge: str, links_now: Mapping[str, NetworkDevice]) -> None: ...


class FarSideKeeper:
    """Of one host. `side`: what was made. `troubles`: what could not be."""

    def __init__(self, routes: bool, tunnels: Tunnels, described: DescribedPorts) -> None:
        self.side: FarSide = NOTHING_FAR
        self.troubles: tuple[str, ...] = ()
        self.announcements = Announcements()
        self._routes = routes and bool(tunnels.address)
        self._tunnels, self._described = tunnels, described

    async def make(
        self, tunnelled: Sequence[VifData], bridges: BridgeMaker, links_now: Mapping[str, NetworkDevice]
    ) -> list[FarNetwork]:
        """`tunnelled`: this host's interfaces in tunnelled networks; `links_now`: its devices. Those that were made; the others are in `troubles`."""
        if not self._routes or not tunnelled:
            self.side, self.troubles = NOTHING_FAR, ()
            return []
        arp_entries = self._described.arp_entries()
        made: list[FarNetwork] = []
        troubles: list[str] = []
        for each in far_networks(tunnelled, self._described.ports, arp_entries.keys()):
            try:
                await self._make(each, bridges, links_now)
                made.append(each)
            except HostFailed as failure:  # it is in no guest's way
                troubles.append(TROUBLE.format(each.network, failure.private))
        for trouble in troubles:
            if trouble not in self.troubles:
                _log.error("%s", trouble)
        near = {vif.network for vif in tunnelled} | {each.network for each in made}
        self.troubles = tuple(troubles)
        self.side = FarSide(
            frozenset(each.bridge for each in made),
            {own_bridge_of(network): entries for network, entries in arp_entries.items() if network in near},
        )
        return made

    async def _make(self, far: FarNetwork, bridges: BridgeMaker, links_now: Mapping[str, NetworkDevice]) -> None:
        if far.bridge not in links_now:
            await bridges.make_bridge(far.bridge, far)
        elif far.bridge not in self.side.bridges:  # it may have served guests until now
            await _ip("address", "flush", "dev", far.bridge)
            await _ip("-6", "address", "flush", "dev", far.bridge, "to", METADATA_V6)
        await bridges.claim(far.bridge, links_now)
        take_no_advertisements(far.bridge)
        await _ip("link", "set", "dev", far.bridge, "up")
        await self._tunnels.join(far, far.bridge, links_now)

    async def announce(self, tunnelled: Sequence[VifData], devices: Collection[str]) -> None:
        """Tell other hosts which guests are here, as far as they have not been told, and are plugged in."""
        if self._routes:
            plugged = [vif for vif in tunnelled if tunnel_of(vif.network) in devices]
            await self.announcements.keep(plugged, self._described.ports)


async def _ip(*words: str) -> None:
    await run("ip", *words, code="vif_not_plugged")
