"""Networks of this host's routers that it has no guests of: it routes into them, and each frame goes through a tunnel to the host of its guest.

A router is on every host that has guests of one of its networks, so a packet is routed where its sender is, and its answer where the other one
is.  A far network is a bridge with a tunnel and nothing else: it serves nobody, has no address, and goes when nobody here needs it.

    neighbours     the addresses of a network's ports with their MACs are told (port_description.py), for nobody is asked through a tunnel
    own MAC        frames that are routed into a tunnel come from a MAC of this host, for the gateway's is the same on all hosts (firewall.py)
    announcements  answers come by another network's tunnel, so no host would learn where a guest is; its own host says it now and then
"""

import asyncio
import logging
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from moorage.drivers.libvirt.devices import BRIDGE_PREFIX, ID_CHARACTERS
from moorage.drivers.libvirt.tunnels import tunnel_of
from moorage.model.clock import Clock
from moorage.model.guest import VifData
from moorage.model.ids import NetworkId, PortId
from moorage.model.port_description import PortDescription
from moorage.model.route_description import RouterDescription

FAR_MAX = 500
"""Of one host: each is two devices."""
ANNOUNCED_EVERY_S = 60.0
"""Bridges and tunnels forget a MAC after five minutes in which they heard nothing of it."""
BROADCAST, RARP = b"\xff" * 6, b"\x80\x35"
"""The frame that QEMU sends for a guest that has arrived; filters of ports let it into no guest."""
SHORTEST_BYTES = 60

_log = logging.getLogger(__name__)


def own_bridge_of(network: NetworkId) -> str:
    """The bridge of ours that a network without a wire of its own has."""
    return f"{BRIDGE_PREFIX}{network[:ID_CHARACTERS]}"


@dataclass(frozen=True)
class FarNetwork:
    """One that this host routes into."""

    network: NetworkId
    segmentation_id: int
    mtu: int

    @property
    def bridge(self) -> str:
        return own_bridge_of(self.network)


def routes_into_tunnels(router: RouterDescription) -> bool:
    """Whether it has several networks that are in tunnels, or one that the outside reaches by one host."""
    tunnelled = {each.network for each in router.all_subnets if each.segmentation_id is not None}
    return len(tunnelled) > 1 or (router.is_open and bool(tunnelled))


def far_networks(
    tunnelled: Sequence[VifData], ports: Mapping[PortId, PortDescription], inhabited: Collection[NetworkId]
) -> list[FarNetwork]:
    """`tunnelled`: this host's interfaces in tunnelled networks. `inhabited`: networks that somebody has ports in."""
    own_networks = {vif.network for vif in tunnelled}
    found: dict[NetworkId, FarNetwork] = {}
    for vif in tunnelled:
        description = ports.get(vif.port)
        for router in () if description is None else description.routers:
            for each in router.all_subnets:
                if each.segmentation_id is not None and each.network not in own_networks and each.network in inhabited:
                    found[each.network] = FarNetwork(each.network, each.segmentation_id, each.mtu or vif.mtu)
    ordered = [found[name] for name in sorted(found)]
    if len(ordered) > FAR_MAX:
        _log.error("routers of this host have %d other networks, of which %d are reached", len(ordered), FAR_MAX)
    return ordered[:FAR_MAX]


class Announcements:
    """Of one host: which guests are behind its tunnels."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()
        self._announced_at = float("-inf")

    async def keep(self, tunnelled: Iterable[VifData], ports: Mapping[PortId, PortDescription]) -> None:
        """Those that are bound here, of routers with several networks; new ones are announced at once."""
        wanted = {
            (tunnel_of(vif.network), vif.mac)
            for vif in tunnelled
            if (description := ports.get(vif.port)) is not None
            and description.bound
            and any(map(routes_into_tunnels, description.routers))
        }
        new, self._known = wanted - self._known, wanted
        await self._announce(new)

    async def repeat(self, clock: Clock) -> None:
        """When it is time."""
        if self._known and clock.monotonic() >= self._announced_at + ANNOUNCED_EVERY_S:
            self._announced_at = clock.monotonic()
            await self._announce(self._known)

    async def _announce(self, guests: Collection[tuple[str, str]]) -> None:
        if guests:
            await asyncio.to_thread(_send, sorted(guests))


def _send(guests: Iterable[tuple[str, str]]) -> None:
    for device, mac in guests:
        own = bytes.fromhex(mac.replace(":", ""))
        asks = b"\0\x01\x08\0\x06\x04\0\x03" + own + bytes(4) + own + bytes(4)
        try:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
                out.bind((device, 0))
                out.send((BROADCAST + own + RARP + asks).ljust(SHORTEST_BYTES, b"\0"))
        except OSError as failure:
            _log.warning("%s cannot be announced on %s: %s", mac, device, failure)
