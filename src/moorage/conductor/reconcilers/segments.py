"""Copies segments of routed networks into placement: their addresses, and the hosts wired to them (S3.3, S3.4).

A segment is a resource provider with an IPv4 inventory. We claim the addresses of servers ourselves; addresses of other
ports (routers, DHCP, ports without a server) are `reserved`. Drift in either direction is corrected here.
"""

import asyncio
import ipaddress
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from moorage.clients.network import NetworkBackend
from moorage.model.clock import Clock
from moorage.model.errors import NotFound
from moorage.model.ids import NetworkId, ProviderId, SegmentId
from moorage.model.network import NetworkFacts, SegmentFacts, SubnetFacts
from moorage.placement.engine import Engine
from moorage.placement.inventory import SegmentReport

logger = logging.getLogger(__name__)

NAME = "segments"
ASKED_EVERY_S = 1.0
"""The shortest interval of reading one network again because a request found no free address there."""
ASKED_MAX = 1024
LOOKED_EVERY_S = 1.0
"""How often to check whether a missing host exists now."""
LONG_S = 86_400.0

WHOLE_EVERY_ROUNDS = 20
"""All segments are written in the first round, and again after so many rounds: another process may have written them
before.
"""


class SegmentsDone(msgspec.Struct, frozen=True):
    """The result of one round."""

    looked_at: int = 0
    reported: int = 0
    dropped: int = 0
    amiss: tuple[str, ...] = ()
    """Segments that no list shows, although the service does not say that they are gone (RULES §22)."""


class Segments:
    """Copies the address pools of all routed networks into placement."""

    def __init__(
        self, network: NetworkBackend, engine: Engine, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._network = network
        self._engine = engine
        self._monotonic = monotonic
        self._last: dict[str, SegmentReport] = {}
        self._tied: dict[str, frozenset[str]] = {}
        """Segment → those of its hosts that placement knew when it was written; it is written again when there are
        more.
        """
        self._absent: frozenset[str] = frozenset()
        """Hosts of segments that placement did not know in the last round."""
        self._rounds = 0
        self._round = asyncio.Lock()
        self._turn = asyncio.Lock()
        """Held while pools are written. A round reads without it: with many networks that takes long, and requests
        would wait.
        """
        self._meanwhile: dict[str, SegmentReport] = {}
        """What requests wrote since the last round began; it replaces what that round read."""
        self._read: OrderedDict[str, tuple[float, NetworkFacts]] = OrderedDict()
        """Network → when it was last read because of a request, and its facts then."""
        self._redrawn: OrderedDict[str, float] = OrderedDict()
        """Network → when its pools were last written because an address was refused."""

    async def run(self) -> SegmentsDone:
        """Run one round. Raises Unavailable when the network service does not answer; the next round repeats
        everything.
        """
        async with self._round:
            self._meanwhile.clear()
            networks = await self._network.networks()
            read = await self._reports([each for each in networks if each.routed])
            async with self._turn:
                return await self._settle(networks, read | self._meanwhile)

    async def _settle(self, networks: Sequence[NetworkFacts], reports: Mapping[str, SegmentReport]) -> SegmentsDone:
        """Write what a round read; segments that it did not see are removed, if they are gone."""
        changed = await self._draw(reports, whole=self._rounds % WHOLE_EVERY_ROUNDS == 0)
        self._rounds += 1
        shown = {segment.id for network in networks for segment in network.segments}
        lost = [key for key in self._last if key not in reports]
        gone = await self._network.segments_gone([key for key in lost if key not in shown])
        dropped = {key for key in lost if key in shown | gone and await self._engine.drop_segment(SegmentId(key))}
        doubted = tuple(key for key in lost if key not in shown | gone)
        if doubted:
            logger.error(
                "the network service does not list segments %s, and does not say that they are gone: they stay as they were; "
                "check that the service user may see all segments",
                ", ".join(doubted),
            )
        self._last = {key: self._last[key] for key in lost if key not in dropped} | dict(reports)
        self._tied = {key: hosts for key, hosts in self._tied.items() if key in self._last}
        tied = frozenset[str]().union(*self._tied.values())
        self._absent = frozenset(host for each in reports.values() for host in each.hosts) - tied
        return SegmentsDone(len(reports), changed, len(dropped), doubted)

    async def until_host_appears(self, clock: Clock) -> None:
        """Wait until a host exists that was missing in the last round, with its wiring then; for ever when none was
        missing.
        """
        while True:
            await clock.sleep(LOOKED_EVERY_S if self._absent else LONG_S)
            if not self._absent.isdisjoint(self._engine.world().slots_by_name):
                return

    async def drawn(self, networks: Mapping[str, NetworkFacts]) -> dict[str, NetworkFacts]:
        """The networks of a request, with current facts; afterwards their pools are in the cache.

        A network is read again when a segment or its pools are new, and when no address is free: no request is refused
        because of a state that is some seconds old. Raises Unavailable when the network service must be read and does
        not answer.
        """
        drawn = dict(networks)
        if all(self._settled(each) for each in drawn.values()):
            return drawn
        async with self._turn:
            for key, facts in networks.items():
                if not self._settled(facts):
                    drawn[key] = await self._newest(facts)
        return drawn

    async def redraw(self, network: NetworkId) -> None:
        """Write the current pools of one network: an address was refused that placement took for free.

        The network service is read at most once a second for each network. Raises Unavailable when it does not answer.
        """
        async with self._turn:
            now = self._monotonic()
            if now - self._redrawn.get(network, -math.inf) < ASKED_EVERY_S:
                return
            try:
                facts = await self._network.network(network)
            except NotFound:  # a request for a port there gets the error
                return
            await self._draw_for_request(facts)
            self._redrawn.pop(network, None)
            self._redrawn[network] = now
            while len(self._redrawn) > ASKED_MAX:
                self._redrawn.popitem(last=False)

    def _settled(self, facts: NetworkFacts) -> bool:
        return not facts.routed or (self._known(facts) and self._any_free(facts))

    def _known(self, facts: NetworkFacts) -> bool:
        """Whether its pools are those that this process wrote last."""
        sizes = {key: addresses_in(subnets) for key, subnets in _pools(facts).items()}
        return all(key in self._last and self._last[key].total == size for key, size in sizes.items())

    def _any_free(self, facts: NetworkFacts) -> bool:
        segments = self._engine.world().segments
        return any(key in segments and segments[ProviderId(key)].free > 0 for key in _pools(facts))

    async def _newest(self, facts: NetworkFacts) -> NetworkFacts:
        """The network as the service has it now or had it a moment ago; pools are written only from a new read."""
        now = self._monotonic()
        read_at, newest = self._read.get(facts.id, (-math.inf, facts))
        if now - read_at >= ASKED_EVERY_S:
            try:
                newest = await self._network.network(NetworkId(facts.id))
            except NotFound:  # a request for a port there gets the error
                return facts
            self._read[facts.id] = (now, newest)
            self._read.move_to_end(facts.id)
            while len(self._read) > ASKED_MAX:
                self._read.popitem(last=False)
            if not self._known(newest):
                await self._draw_for_request(newest)
        if newest.subnets != facts.subnets:
            self._network.forget()  # the next request begins with the current state
        return msgspec.structs.replace(newest, shared=facts.shared)

    async def _draw_for_request(self, facts: NetworkFacts) -> None:
        reports = await self._reports([facts])
        await self._draw(reports)
        self._last |= reports
        self._meanwhile |= reports

    async def _draw(self, reports: Mapping[str, SegmentReport], *, whole: bool = False) -> int:
        hosts = self._engine.world().slots_by_name
        present = {key: frozenset(host for host in report.hosts if host in hosts) for key, report in reports.items()}
        changed = [
            report
            for key, report in reports.items()
            if whole or self._last.get(key) != report or not present[key] <= self._tied.get(key, frozenset())
        ]
        if changed:
            await self._engine.report_segments(changed)
        self._tied |= present
        return len(changed)

    async def _reports(self, networks: Sequence[NetworkFacts]) -> dict[str, SegmentReport]:
        wirings: dict[str, frozenset[str]] = {}
        for each in await self._network.wirings():  # several agents of one host see different wires
            wirings[each.host] = wirings.get(each.host, frozenset()) | frozenset(each.physical_networks)
        reports: dict[str, SegmentReport] = {}
        for network in networks:
            others = await self._addresses_of_others(network)
            for segment in network.segments:
                report = _report(network, segment, wirings, others)
                if report is not None:
                    reports[segment.id] = report
        return reports

    async def _addresses_of_others(self, network: NetworkFacts) -> Mapping[str, int]:
        """Subnet → the number of addresses of ports that belong to no server."""
        held: dict[str, int] = {}
        for port in await self._network.ports_on(network.id):
            if port.device_owner.startswith("compute:"):
                continue
            for ip in port.fixed_ips:
                held[ip.subnet] = held.get(ip.subnet, 0) + 1
        return held


def _pools(facts: NetworkFacts) -> dict[str, list[SubnetFacts]]:
    """Segment → its IPv4 subnets."""
    pools: dict[str, list[SubnetFacts]] = {}
    for subnet in facts.subnets:
        if subnet.segment and subnet.version == 4:
            pools.setdefault(subnet.segment, []).append(subnet)
    return pools


def _report(
    network: NetworkFacts, segment: SegmentFacts, wirings: Mapping[str, frozenset[str]], others: Mapping[str, int]
) -> SegmentReport | None:
    subnets = _pools(network).get(segment.id)
    if not subnets:
        return None
    hosts = sorted(host for host, physnets in wirings.items() if segment.physical_network in physnets)
    return SegmentReport(
        segment=SegmentId(segment.id),
        name=f"{network.name or network.id}/{segment.name or segment.physical_network or segment.id}",
        total=addresses_in(subnets),
        reserved=sum(others.get(each.id, 0) for each in subnets),
        hosts=tuple(hosts),
    )


def addresses_in(subnets: Iterable[SubnetFacts]) -> int:
    """The number of addresses in the allocation pools."""
    return sum(
        int(ipaddress.ip_address(last)) - int(ipaddress.ip_address(first)) + 1
        for subnet in subnets
        for first, last in subnet.pools
    )
