"""Segments of routed networks: their addresses, and the hosts wired to them, as the network service has them (S3.3, S3.4).

A segment is a resource provider with an IPv4 inventory.  What servers hold there we claim ourselves; addresses that somebody
else's ports hold (routers, DHCP, ports without a server) are `reserved`.  Drift in either direction is corrected here.
"""

import ipaddress
from collections.abc import Iterable, Mapping

import msgspec

from moorage.clients.network import NetworkClient
from moorage.model.ids import SegmentId
from moorage.model.network import NetworkFacts, SegmentFacts, SubnetFacts
from moorage.placement.engine import Engine
from moorage.placement.inventory import SegmentReport

NAME = "segments"


class SegmentsDone(msgspec.Struct, frozen=True):
    """What one round saw and did."""

    looked_at: int = 0
    reported: int = 0
    dropped: int = 0


class Segments:
    """Draws the address pools of all routed networks into placement."""

    def __init__(self, network: NetworkClient, engine: Engine) -> None:
        self._network = network
        self._engine = engine
        self._last: dict[str, SegmentReport] = {}

    async def run(self) -> SegmentsDone:
        """One round. Raises Unavailable when the network service is out; the next round finds everything."""
        networks = [each for each in await self._network.networks() if each.routed]
        wirings: dict[str, frozenset[str]] = {}
        for each in await self._network.wirings():  # several agents of one host see different wires of it
            wirings[each.host] = wirings.get(each.host, frozenset()) | frozenset(each.physical_networks)
        reports: dict[str, SegmentReport] = {}
        for network in networks:
            others = await self._addresses_of_others(network)
            for segment in network.segments:
                report = _report(network, segment, wirings, others)
                if report is not None:
                    reports[segment.id] = report
        changed = [report for key, report in reports.items() if self._last.get(key) != report]
        if changed:
            await self._engine.report_segments(changed)
        gone = [key for key in self._last if key not in reports]
        for key in gone:
            await self._engine.drop_segment(SegmentId(key))
        self._last = reports
        return SegmentsDone(len(reports), len(changed), len(gone))

    async def _addresses_of_others(self, network: NetworkFacts) -> Mapping[str, int]:
        """Subnet → addresses held by ports that are no server's."""
        held: dict[str, int] = {}
        for port in await self._network.ports_on(network.id):
            if port.device_owner.startswith("compute:"):
                continue
            for ip in port.fixed_ips:
                held[ip.subnet] = held.get(ip.subnet, 0) + 1
        return held


def _report(
    network: NetworkFacts, segment: SegmentFacts, wirings: Mapping[str, frozenset[str]], others: Mapping[str, int]
) -> SegmentReport | None:
    subnets = [each for each in network.subnets if each.segment == segment.id and each.version == 4]
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
    """How many addresses the allocation pools hold."""
    return sum(
        int(ipaddress.ip_address(last)) - int(ipaddress.ip_address(first)) + 1
        for subnet in subnets
        for first, last in subnet.pools
    )
