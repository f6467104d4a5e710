"""Hosts that report after their networks and agents were read get their links at once, not with the next full round."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from moorage.conductor.reconcile_loop import ReconcileLoop
from moorage.conductor.reconcilers.devices import DeviceSync
from moorage.conductor.reconcilers.segments import Segments, SegmentsDone
from moorage.model.clock import SystemClock
from moorage.model.ids import NetworkId
from moorage.model.network import AgentDevices, HostWiring, NetworkFacts, Port, SegmentFacts, SubnetFacts
from moorage.model.network_providers import OVS
from moorage.model.resources import Inventory
from moorage.placement.inventory import HostInventory
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.waiting import until

LATE = "host-of-later"


class Network:
    """A routed network on one wire, and two hosts on it with an agent each; one of them is not known to placement yet."""

    async def networks(self) -> list[NetworkFacts]:
        subnet = SubnetFacts("subnet", "10.0.0.0/24", segment="segment", pools=(("10.0.0.10", "10.0.0.13"),))
        return [
            NetworkFacts(
                id="routed",
                name="routed",
                segments=(SegmentFacts("segment", physical_network="wire"),),
                subnets=(subnet,),
            )
        ]

    async def wirings(self) -> list[HostWiring]:
        return [HostWiring("host1", ("wire",)), HostWiring(LATE, ("wire",))]

    async def ports_on(self, network: NetworkId) -> list[Port]:
        return []

    async def segments_gone(self, segments: list[str]) -> frozenset[str]:
        return frozenset()

    async def guarantees(self) -> list[AgentDevices]:
        return [AgentDevices(host, OVS, {}, {}, {host: {"any": 7}}, {}, None) for host in ("host1", LATE)]


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open(tmp_path)
    yield region
    await region.close()


async def come(small: SmallRegion) -> None:
    await small.engine.report_host(HostInventory(host=LATE, cell="cell1", inventories={"VCPU": Inventory(8)}))


def wired(small: SmallRegion) -> set[str]:
    """The hosts that placement takes to be on the segment."""
    world = small.engine.world()
    (segment,) = (each for each in world.segments.values() if each.name.startswith("routed/"))
    return {world.names[slot] for slot in world.slots.values() if segment.wired[slot]}


def guaranteeing(small: SmallRegion) -> set[str]:
    world = small.engine.world()
    return {world.names[world.slots[host]] for host, below in world.nested.below.items() if below}


async def test_the_next_round_links_a_new_host_to_its_segments(small: SmallRegion) -> None:
    segments = Segments(cast("Any", Network()), small.engine)
    assert await segments.run() == SegmentsDone(looked_at=1, reported=1)
    assert wired(small) == {"host1"}
    assert await segments.run() == SegmentsDone(looked_at=1)
    await come(small)
    assert await segments.run() == SegmentsDone(looked_at=1, reported=1)
    assert wired(small) == {"host1", LATE}
    assert await segments.run() == SegmentsDone(looked_at=1)


async def test_a_new_host_makes_the_next_rounds_earlier(small: SmallRegion) -> None:
    clock, network = SystemClock(), cast("Any", Network())
    segments, devices = Segments(network, small.engine), DeviceSync(network, small.engine, clock)
    rounds = ReconcileLoop(clock)
    rounds.add("segments", 3600.0, segments.run, sooner=lambda: segments.until_host_appears(clock))
    rounds.add("devices", 3600.0, devices.run, sooner=devices.until_host_appears)
    try:
        await until(lambda: all(map(len, rounds.runs.values())))
        assert LATE not in wired(small) | guaranteeing(small)
        await come(small)
        await until(lambda: LATE in wired(small) & guaranteeing(small))
        await until(lambda: {name: len(runs) for name, runs in rounds.runs.items()} == {"segments": 2, "devices": 2})
    finally:
        await rounds.stop()
