"""The reconcilers that copy the network service's segments, devices and host aggregates into providers."""

import asyncio
from collections.abc import Collection
from typing import Any, cast

import pytest
from tests.helpers.reconciled_region import small

from moorage.conductor.reconcilers.devices import DevicesDone, DeviceSync
from moorage.conductor.reconcilers.host_aggregates import HostAggregates
from moorage.conductor.reconcilers.segments import ASKED_EVERY_S, Segments, SegmentsDone
from moorage.model.aggregate import Aggregate
from moorage.model.ids import NetworkId
from moorage.model.network import (
    AgentDevices,
    FixedIp,
    HostWiring,
    NetworkFacts,
    Port,
    SegmentFacts,
    SubnetFacts,
)
from moorage.model.network_providers import OVS
from moorage.model.request_groups import RequestGroup
from moorage.model.world import Ask
from moorage.store.region import aggregates
from moorage.store.region.placement.claim_statements import Owner
from moorage_testing.region_fixture import PROJECT, SmallRegion
from moorage_testing.waiting import PATIENCE_S, until

__all__ = ["small"]


# ------------------------------------------------------------------------------------------------------ segments


class TwoSegments:
    """A network service with one routed network: a segment of four addresses on host1, and one elsewhere."""

    def __init__(self) -> None:
        self.segments = ("segment-a", "segment-b")
        self.others: list[Port] = []
        self.grown = 0
        self.blind = False
        self.asked = 0
        self.forgotten = 0

    async def networks(self) -> list[NetworkFacts]:
        if self.blind:
            return []
        segments = tuple(SegmentFacts(each, name=each, physical_network="wire-" + each[-1]) for each in self.segments)
        subnets = tuple(
            SubnetFacts("subnet-" + each, "10.0.0.0/24", segment=each, pools=(("10.0.0.10", "10.0.0.13"),))
            for each in self.segments
        )
        pools = (("10.7.0.10", f"10.7.0.{9 + self.grown}"),)
        more = (SubnetFacts("subnet-more", "10.7.0.0/24", segment=self.segments[0], pools=pools),) * bool(self.grown)
        return [NetworkFacts(id="routed", name="routed", segments=segments, subnets=subnets + more)]

    async def network(self, network: str) -> NetworkFacts:
        self.asked += 1
        return (await self.networks())[0]

    def forget(self) -> None:
        self.forgotten += 1

    async def segments_gone(self, segments: Collection[str]) -> frozenset[str]:
        return frozenset() if self.blind else frozenset(segments) - set(self.segments)

    async def wirings(self) -> list[HostWiring]:
        return [HostWiring("host1", ("wire-a",)), HostWiring("host2", ("wire-b",))]

    async def ports_on(self, network: NetworkId) -> list[Port]:
        return self.others


def segments_of(small: SmallRegion) -> dict[str, tuple[int, int]]:
    drawn = small.engine.world().segments.values()
    return {each.name: (each.free, each.total) for each in drawn if each.name.startswith("routed/")}


async def test_segments_already_fine(small: SmallRegion) -> None:
    network = TwoSegments()
    segments = Segments(cast("Any", network), small.engine)
    assert await segments.run() == SegmentsDone(looked_at=2, reported=2)
    drawn = segments_of(small)
    assert drawn == {"routed/segment-a": (4, 4), "routed/segment-b": (4, 4)}
    assert await segments.run() == SegmentsDone(looked_at=2)
    assert segments_of(small) == drawn


async def test_a_request_uses_the_current_pools(small: SmallRegion) -> None:
    """A network is asked of again where its pools are news, or nothing is free: a subnet that was added counts at once."""
    network, now_s = TwoSegments(), [0.0]
    segments = Segments(cast("Any", network), small.engine, lambda: now_s[0])
    (kept,) = await network.networks()  # what the API read some seconds ago
    assert await segments.drawn({"routed": kept}) == {"routed": kept}
    assert segments_of(small) == {"routed/segment-a": (4, 4), "routed/segment-b": (4, 4)}
    await segments.drawn({"routed": kept})
    assert (network.asked, network.forgotten) == (1, 0)  # warm: nobody is asked

    held = tuple(FixedIp(f"subnet-segment-{each}", f"10.0.0.{10 + at}") for each in "ab" for at in range(4))
    network.others = [Port("router", "routed", "", fixed_ips=held, device_owner="network:router_interface")]
    await segments.run()
    assert segments_of(small) == {"routed/segment-a": (0, 0), "routed/segment-b": (0, 0)}
    network.grown = 3
    now_s[0] += ASKED_EVERY_S
    found = await asyncio.gather(*(segments.drawn({"routed": kept}) for _ in range(20)))
    assert network.asked == 2, "many who want the same ask once"
    assert {len(each["routed"].subnets) for each in found} == {3}
    assert segments_of(small) == {"routed/segment-a": (3, 3), "routed/segment-b": (0, 0)}
    assert network.forgotten >= 1
    await segments.drawn({"routed": kept})
    assert segments_of(small)["routed/segment-a"] == (3, 3), "what was kept from before is never drawn"


async def test_a_request_does_not_wait_for_a_round_and_its_newer_pools_are_kept(small: SmallRegion) -> None:
    """A round asks for the ports of every routed network, one after the other."""
    network, go_on, reads = TwoSegments(), asyncio.Event(), list[str]()
    held = tuple(FixedIp(f"subnet-segment-{each}", f"10.0.0.{10 + at}") for each in "ab" for at in range(4))
    network.others = [Port("router", "routed", "", fixed_ips=held, device_owner="network:router_interface")]
    segments = Segments(cast("Any", network), small.engine)
    await segments.run()
    assert segments_of(small) == {"routed/segment-a": (0, 0), "routed/segment-b": (0, 0)}

    async def slow(_: NetworkId) -> list[Port]:
        reads.append("ports")
        found = network.others
        if len(reads) == 1:
            await go_on.wait()
        return found

    network.ports_on = slow  # type: ignore[method-assign]
    running = asyncio.create_task(segments.run())
    await until(lambda: reads)
    network.others = []
    async with asyncio.timeout(PATIENCE_S):
        await segments.redraw(NetworkId("routed"))
    assert segments_of(small) == {"routed/segment-a": (4, 4), "routed/segment-b": (4, 4)}
    network.grown = 3
    (grown,) = await network.networks()
    async with asyncio.timeout(PATIENCE_S):
        assert await segments.drawn({"routed": grown}) == {"routed": grown}
    drawn = {"routed/segment-a": (7, 7), "routed/segment-b": (4, 4)}
    assert segments_of(small) == drawn
    go_on.set()
    assert await running == SegmentsDone(looked_at=2)
    assert segments_of(small) == drawn
    assert await segments.run() == SegmentsDone(looked_at=2)


async def test_a_deleted_segment_is_removed(small: SmallRegion) -> None:
    network = TwoSegments()
    segments = Segments(cast("Any", network), small.engine)
    await segments.run()
    network.segments = ("segment-a",)
    assert await segments.run() == SegmentsDone(looked_at=1, dropped=1)
    assert segments_of(small).keys() == {"routed/segment-a"}


async def test_hidden_segments_are_kept_until_the_service_says_they_are_deleted(
    small: SmallRegion, caplog: pytest.LogCaptureFixture
) -> None:
    """Who lost a role is shown empty lists, and no host may lose its addresses for that (RULES §22)."""
    network = TwoSegments()
    segments = Segments(cast("Any", network), small.engine)
    await segments.run()
    drawn = segments_of(small)
    network.blind = True
    assert await segments.run() == SegmentsDone(amiss=("segment-a", "segment-b"))
    assert segments_of(small) == drawn
    assert "check that the service user may see all segments" in caplog.text
    network.blind = False
    assert await segments.run() == SegmentsDone(looked_at=2)
    network.segments = ("segment-a",)
    assert await segments.run() == SegmentsDone(looked_at=1, dropped=1)


# ----------------------------------------------------------------------------------------------- host aggregates


class OneAgent:
    """The network service: one agent, with what it can guarantee on each bridge."""

    def __init__(self, **bandwidths: int) -> None:
        self.bandwidths = bandwidths
        self.synced: bool | None = None

    async def guarantees(self) -> list[AgentDevices]:
        rates: dict[str, dict[str, int | None]] = {
            name: {"egress": kbps, "ingress": None} for name, kbps in self.bandwidths.items()
        }
        mappings = {f"wire-{name}": (name,) for name in rates}
        hypervisors = dict.fromkeys(rates, "host1")
        packets: dict[str, dict[str, int | None]] = {"host1": {"any": 70}, "not-yet": {"any": 7}}
        return [AgentDevices("host1", OVS, rates, hypervisors, packets, mappings, self.synced)]


def devices_of(small: SmallRegion) -> dict[str, dict[str, tuple[int, int]]]:
    """Name → class → (free, total) of what the agent has on host1."""
    world = small.engine.world()
    nested = world.nested
    return {
        nested.names[slot]: {
            name: (int(nested.free[name][slot]), int(nested.capacity[name][slot]))
            for name in nested.free
            if nested.capacity[name][slot]
        }
        for slot in nested.below.get(world.host_ids[world.slots_by_name["host1"]], ())
        if OVS in nested.names[slot]
    }


async def test_devices_already_fine(small: SmallRegion) -> None:
    network = OneAgent(br1=5_000, br2=3_000)
    devices = DeviceSync(cast("Any", network), small.engine)
    waiting = ("not-yet",)
    assert await devices.run() == DevicesDone(looked_at=1, reported=2, waiting=waiting)
    bandwidth, packets = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_PACKET_RATE_KILOPACKET_PER_SEC"
    fine = {
        f"host1:{OVS}": {packets: (70, 70)},
        f"host1:{OVS}:br1": {bandwidth: (5_000, 5_000)},
        f"host1:{OVS}:br2": {bandwidth: (3_000, 3_000)},
    }
    assert devices_of(small) == fine
    assert await devices.run() == DevicesDone(looked_at=1, reported=1, waiting=waiting)
    assert await DeviceSync(cast("Any", network), small.engine).run() == DevicesDone(1, 2, waiting)  # another process
    assert devices_of(small) == fine


async def test_removed_devices_and_their_inventories_are_deleted(small: SmallRegion) -> None:
    network = OneAgent(br1=5_000, br2=3_000)
    devices = DeviceSync(cast("Any", network), small.engine)
    await devices.run()
    group = RequestGroup("g", {"NET_BW_EGR_KILOBIT_PER_SEC": 3_000}, ("CUSTOM_PHYSNET_WIRE_BR2",))
    ask = Ask(resources={}, groups=(group,))
    (choice,) = small.engine.rank(ask).best
    owner = Owner("somebody", PROJECT, "u", operation="o", attempt=1)
    await small.region.write(lambda tx: small.engine.claim(tx, owner, choice, ask, replace=False))
    network.bandwidths = {"br1": 4_000}
    await devices.run()
    bandwidth = "NET_BW_EGR_KILOBIT_PER_SEC"
    assert devices_of(small)[f"host1:{OVS}:br1"] == {bandwidth: (4_000, 4_000)}
    assert devices_of(small)[f"host1:{OVS}:br2"] == {bandwidth: (0, 3_000)}, "it is held, and stays until it is not"
    await small.region.write(lambda tx: small.engine.release(tx, "somebody"))
    await DeviceSync(cast("Any", network), small.engine).run()
    assert f"host1:{OVS}:br2" not in devices_of(small)


async def test_devices_reported_by_the_network_service_itself_are_left_alone(small: SmallRegion) -> None:
    network = OneAgent(br1=5_000)
    network.synced = True
    assert await DeviceSync(cast("Any", network), small.engine).run() == DevicesDone()
    assert devices_of(small) == {}


async def test_host_aggregates_already_fine(small: SmallRegion) -> None:
    reconciler = HostAggregates(small.engine)
    assert await reconciler.run() == 0
    zone = Aggregate(number=0, id="", name="ssd", metadata={"availability_zone": "west"}, hosts=("host1",))
    await small.region.write(lambda tx: aggregates.add(tx, zone))
    assert await reconciler.run() == 1
    drawn = small.engine.world()
    assert drawn.zone_names[drawn.zone[drawn.slots_by_name["host1"]]] == "west"
    assert await reconciler.run() == 1
    assert small.engine.world() is drawn  # the picture was not drawn again
