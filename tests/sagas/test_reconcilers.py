"""Reconcilers: a world that is fine is left alone, and what was planted is mended, once."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import sqlalchemy as sa

from moorage.bus.notifications import Message
from moorage.conductor.reconcilers.devices import DevicesDone, DeviceSync
from moorage.conductor.reconcilers.host_aggregates import HostAggregates
from moorage.conductor.reconcilers.notifications import NotificationRelay, NotificationsDone, OutboxLimits
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations, OrphanAllocationsDone
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts, OrphanPortsDone
from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.conductor.reconcilers.purge import DELETED_SERVERS_KEPT_US, Tidied, Tidy
from moorage.conductor.reconcilers.quota_usage import CorrectedUsage, QuotaUsage, QuotaUsageDone
from moorage.conductor.reconcilers.segments import ASKED_EVERY_S, Segments, SegmentsDone
from moorage.conductor.reconcilers.usage_audit import PAGE_MAX, UsageAudit, UsageAuditDone
from moorage.model.aggregate import Aggregate
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId, NetworkId, OperationId, ServerId
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.model.network import (
    AgentDevices,
    FixedIp,
    HostWiring,
    NetworkFacts,
    Port,
    SegmentFacts,
    SubnetFacts,
    mint_mac,
)
from moorage.model.network_providers import OVS
from moorage.model.notification import Notification
from moorage.model.request_groups import RequestGroup
from moorage.model.world import Ask
from moorage.operations.cell_databases import AbsentDatabase, CellDatabase, Cells
from moorage.operations.delete.delete import Delete
from moorage.operations.notifications.messages import Wording
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.sql import Meter, Tx
from moorage.store.cell import migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.notifications import OUTBOX as CELL_OUTBOX
from moorage.store.region import aggregates, quotas, server_lists, user_quotas
from moorage.store.region import servers as region_servers
from moorage.store.region.notifications import OUTBOX
from moorage.store.region.placement.claim_statements import Owner
from moorage.store.region.placement.tables import placement_metadata
from moorage_testing.fault_points import HeldClock
from moorage_testing.region_fixture import HOSTS, PROJECT, SERVER, SmallRegion, a_boot, a_server
from moorage_testing.region_network import NETWORK
from moorage_testing.waiting import PATIENCE_S, until

BOOT = OperationId("boot")
STRANGER = ServerId("0d0c0b0a-0000-4000-8000-00000000beef")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    """A region with one ACTIVE server that nobody holds."""
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    await execute(boot, BOOT, a_boot(BOOT), region.context, MemoryJournal(first_lines(boot), region.transact))
    yield region
    await region.close()


def plant(small: SmallRegion, server: ServerId, index: int, *, ours: bool = True) -> str:
    """A port that names a server."""
    mac = mint_mac(server, index) if ours else "fa:16:3e:aa:aa:aa"
    small.network.ports[mac] = Port(id=mac, network=NETWORK, mac=mac, ours=ours, device_id=server, index=index)
    return mac


# --------------------------------------------------------------------------------------------------- stray ports


async def test_orphan_ports_already_fine(small: SmallRegion) -> None:
    before = await small.held(), dict(small.network.ports)
    assert await OrphanPorts(small.context).run() == OrphanPortsDone(looked_at=1, mended=0)
    assert (await small.held(), small.network.ports) == before


async def test_a_port_made_after_its_undo_is_deleted(small: SmallRegion) -> None:
    fine = dict(small.network.ports)
    plant(small, SERVER, 5)
    assert (await OrphanPorts(small.context).run()).mended == 1
    assert small.network.ports == fine
    assert (await OrphanPorts(small.context).run()).mended == 0


async def test_a_users_orphan_port_is_released_not_deleted(small: SmallRegion) -> None:
    port = plant(small, SERVER, 5, ours=False)
    assert (await OrphanPorts(small.context).run()).mended == 1
    assert small.network.ports[port].device_id == ""


async def test_ports_of_others_and_of_busy_servers_are_left_alone(small: SmallRegion) -> None:
    stranger = plant(small, STRANGER, 0)
    at_work = plant(small, SERVER, 5)
    await small.hand_to(OperationId("somebody"))
    assert await OrphanPorts(small.context).run() == OrphanPortsDone(looked_at=2, mended=0)
    assert {stranger, at_work} <= small.network.ports.keys()


async def test_an_unlisted_port_bound_to_its_servers_host_is_kept(
    small: SmallRegion, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that was restored knows less than the guest has: the network service is the second witness (RULES §22)."""
    found = (await records.find(small.context, SERVER)).server
    assert found is not None
    port = plant(small, SERVER, 5)
    small.network.ports[port] = msgspec.structs.replace(small.network.ports[port], host=found.host or "")
    assert await OrphanPorts(small.context).run() == OrphanPortsDone(looked_at=1, amiss=(port,))
    assert port in small.network.ports
    assert f"port {port} is bound to the host of server {SERVER}" in caplog.text
    small.network.ports[port] = msgspec.structs.replace(small.network.ports[port], host="elsewhere")
    assert (await OrphanPorts(small.context).run()).mended == 1
    assert port not in small.network.ports


# -------------------------------------------------------------------------------------------- a cell that is out


class Out:
    """A cell's database that does not answer."""

    def __getattr__(self, name: str) -> Any:
        async def out(*_: Any) -> Any:
            raise Unavailable("the cell does not answer")

        return out


OTHERS = ServerId("0d0c0b0a-0000-4000-8000-0000000000aa")


async def with_a_dead_cell(small: SmallRegion) -> tuple[str, str]:
    """Another server, ACTIVE in the cell that is out; the cell, and the first server's."""
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT))
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    dead = next(cell for cell in small.cells if cell != where.cell)

    def born(tx: Tx) -> None:
        region_servers.insert(tx, [a_server(id=OTHERS, operation=OperationId("other"))])
        region_servers.place(tx, OTHERS, OperationId("other"), dead)
        region_servers.release(tx, OTHERS, OperationId("other"), drop_order=True)

    await small.region.write(born)
    live = {cell: small.cells[cell] for cell in small.cells if cell != dead}
    small.context = dataclasses.replace(small.context, cells=Cells({dead: cast("Any", Out()), **live}))
    return dead, str(where.cell)


async def test_an_unreachable_cell_does_not_stop_reconcilers_of_other_cells(small: SmallRegion) -> None:
    dead, _ = await with_a_dead_cell(small)
    plant(small, OTHERS, 0)
    plant(small, SERVER, 5)
    assert await OrphanPorts(small.context).run() == OrphanPortsDone(looked_at=2, mended=1, waiting=(OTHERS,))

    drifted = await PortDrift(small.context).run()
    assert (drifted.looked_at, drifted.waiting) == (1, (dead,))
    usage = await QuotaUsage(small.context).run()
    assert (usage.looked_at, usage.waiting) == (0, (dead,))
    tidied = await Tidy(small.context).run()
    assert tidied.waiting == (dead,)


async def test_claims_of_an_unreachable_cell_wait_and_others_are_released(small: SmallRegion) -> None:
    _, cell = await with_a_dead_cell(small)
    consumers = placement_metadata.tables["consumers"]
    values = {"uuid": OTHERS, "generation": 1, "project": PROJECT, "user_id": "u", "type": "INSTANCE", "operation": "o",
              "attempt": 0, "updated_at": 0}  # fmt: skip
    await small.region.write(lambda tx: tx.run(consumers.insert().values(values)))
    await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    await small.cells[CellId(cell)].write(lambda tx: tx.run(sa.delete(cell_servers.servers)))
    assert await OrphanAllocations(small.context).run() == OrphanAllocationsDone(
        looked_at=2, released=(SERVER,), waiting=1
    )


# -------------------------------------------------------------------------------------------------- stray claims


async def test_orphan_allocations_already_fine(small: SmallRegion) -> None:
    before = await small.held()
    assert await OrphanAllocations(small.context).run() == OrphanAllocationsDone(looked_at=1)
    assert await small.held() == before


async def lose_the_server(small: SmallRegion) -> None:
    """It was deleted, and its rows in the cells are gone; the claim is not."""
    await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    for database in small.cells.values():
        await database.write(lambda tx: tx.run(sa.delete(cell_servers.servers)))


async def test_the_claim_of_a_server_on_no_host_is_released(small: SmallRegion) -> None:
    await lose_the_server(small)
    assert (await OrphanAllocations(small.context).run()).released == (SERVER,)
    assert (await small.held())["claims"] == 0
    assert (await small.held())["used"] == 0
    assert await OrphanAllocations(small.context).run() == OrphanAllocationsDone()


async def test_the_claim_of_a_busy_server_is_left_alone(small: SmallRegion) -> None:
    await lose_the_server(small)
    await small.hand_to(OperationId("somebody"))
    assert (await OrphanAllocations(small.context).run()).released == ()
    assert (await small.held())["claims"] > 0


async def test_drifted_counters_are_reported(small: SmallRegion) -> None:
    inventories = sa.table("inventories", sa.column("used"), sa.column("class"))
    wrong = sa.update(inventories).where(inventories.c["class"] == "VCPU").values(used=inventories.c.used + 1)
    await small.region.write(lambda tx: tx.run(wrong))
    assert (await OrphanAllocations(small.context).run()).drifted == len(HOSTS)


# --------------------------------------------------------------------------------------------------- quota usage

ONE = {"instances": 1, "cores": 1, "ram": 64}
NONE = {"instances": 0, "cores": 0, "ram": 0}


async def kept(small: SmallRegion) -> dict[str, int]:
    return cast("dict[str, int]", (await small.held())["quota"])


async def test_quota_usage_already_fine(small: SmallRegion) -> None:
    before = await small.held()
    assert await QuotaUsage(small.context).run() == QuotaUsageDone(looked_at=1)
    assert await small.held() == before


@pytest.mark.parametrize("wrong", [{"instances": 3, "cores": 7, "ram": 64}, NONE])
async def test_quota_counters_are_corrected(small: SmallRegion, wrong: dict[str, int]) -> None:
    await small.region.write(lambda tx: quotas.recount(tx, PROJECT, wrong))
    assert (await QuotaUsage(small.context).run()).mended == (CorrectedUsage(PROJECT, wrong, ONE),)
    assert await kept(small) == ONE
    assert (await QuotaUsage(small.context).run()).mended == ()


async def test_a_project_without_servers_is_charged_nothing(small: SmallRegion) -> None:
    await small.region.write(lambda tx: quotas.recount(tx, "another", ONE))
    assert (await QuotaUsage(small.context).run()).mended == (CorrectedUsage("another", ONE, NONE),)


async def test_a_server_that_never_got_a_host_is_charged(tmp_path: Path) -> None:
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), BOOT)
    await region.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT))
    assert await QuotaUsage(region.context).run() == QuotaUsageDone(looked_at=1)
    await region.region.write(lambda tx: region_servers.write_order(tx, a_server(deleted_at=5)))
    assert (await QuotaUsage(region.context).run()).mended == (CorrectedUsage(PROJECT, ONE, NONE),)
    await region.close()


async def test_quota_counters_of_a_user_are_corrected(small: SmallRegion) -> None:
    for wrong in (NONE, {"instances": 3, "cores": 7, "ram": 64}):
        for user in ("user-1", "nobody"):
            await small.region.write(lambda tx, user=user, wrong=wrong: user_quotas.recount(tx, PROJECT, user, wrong))
        mended = {each.user: each.now for each in (await QuotaUsage(small.context).run()).mended}
        assert mended == ({"user-1": ONE} if wrong == NONE else {"user-1": ONE, "nobody": NONE})
        assert await small.region.read(lambda tx: user_quotas.usage(tx, PROJECT, "user-1")) == ONE
    await small.region.write(lambda tx: user_quotas.recount(tx, PROJECT, "user-1", NONE))
    await small.hand_to(OperationId("somebody"))
    assert (await QuotaUsage(small.context).run()).mended == ()


async def test_quota_of_a_busy_project_is_left_alone(small: SmallRegion) -> None:
    await small.region.write(lambda tx: quotas.recount(tx, PROJECT, NONE))
    await small.hand_to(OperationId("somebody"))
    assert (await QuotaUsage(small.context).run()).mended == ()
    assert await kept(small) == NONE


async def test_a_count_is_dropped_when_an_operation_began_meanwhile(small: SmallRegion) -> None:
    """An operation comes and goes between the look at the region and the look at the cells."""
    await small.region.write(lambda tx: quotas.recount(tx, PROJECT, NONE))
    cell = next(iter(small.cells.values()))
    plain = cell.read

    async def slow(work: Any) -> Any:
        await small.hand_to(OperationId("somebody"))
        await small.region.write(lambda tx: region_servers.release(tx, SERVER, OperationId("somebody")))
        return await plain(work)

    cell.read = slow  # type: ignore[method-assign]
    assert (await QuotaUsage(small.context).run()).mended == ()
    cell.read = plain  # type: ignore[method-assign]
    assert (await QuotaUsage(small.context).run()).mended == (CorrectedUsage(PROJECT, NONE, ONE),)


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


# ---------------------------------------------------------------------------------------------------------- tidy


async def test_purge_already_fine(small: SmallRegion) -> None:
    before = await small.held()
    assert await Tidy(small.context).run() == Tidied()
    assert await small.held() == before


async def test_servers_deleted_long_ago_are_purged(small: SmallRegion) -> None:
    long_ago = time.time_ns() // 1000 - DELETED_SERVERS_KEPT_US - 1
    old = sa.update(cell_servers.servers).values(deleted_at=long_ago)
    for database in small.cells.values():
        await database.write(lambda tx: tx.run(old))
    assert await Tidy(small.context).run() == Tidied(servers=1)
    assert await Tidy(small.context).run() == Tidied()


async def test_abandoned_moves_of_deleted_servers_are_ended(small: SmallRegion) -> None:
    """Their operation was lost when a database was put back; what was evacuated waits for its host."""
    kinds = {
        "lost": (MigrationType.LIVE_MIGRATION, MigrationStatus.RUNNING),
        "evacuated": (MigrationType.EVACUATION, MigrationStatus.DONE),
    }

    def moves(tx: Tx) -> None:
        for uuid, (kind, status) in kinds.items():
            flavor = a_server().flavor
            move = Migration(uuid, SERVER, kind, status, "u", PROJECT, 1, 1, "host1", old_flavor=flavor)
            migrations.put(tx, move)

    def statuses(tx: Tx) -> list[MigrationStatus]:
        return [found.status for each in kinds if (found := migrations.get(tx, each)) is not None]

    (cell,) = [
        each for each in small.cells.values() if await each.read(lambda tx: cell_servers.get(tx, SERVER)) is not None
    ]
    await cell.write(moves)
    await Tidy(small.context).run()
    assert await cell.read(statuses) == [MigrationStatus.RUNNING, MigrationStatus.DONE], "the server is there"
    day_ago = time.time_ns() // 1000 - 24 * 3600 * 1_000_000
    await cell.write(lambda tx: tx.run(sa.update(cell_servers.servers).values(deleted_at=day_ago)))
    await Tidy(small.context).run()
    assert await cell.read(statuses) == [MigrationStatus.ERROR, MigrationStatus.DONE]


async def test_the_region_purges_deleted_servers_too(small: SmallRegion) -> None:
    def unheard(tx: Tx) -> list[ServerId]:
        return [each.id for each in server_lists.in_cells(tx, [*small.cells], None, 10)]

    assert await small.region.read(unheard) == [SERVER], "while its cell is out"
    operation, delete = OperationId("delete"), SAGAS["delete/4"]
    await small.hand_to(operation)
    asked = Delete(a_server(), seq=2)
    await execute(delete, operation, asked, small.context, MemoryJournal(first_lines(delete), small.transact))
    assert await small.region.read(unheard) == []
    assert await small.region.read(lambda tx: server_lists.partial(tx, SERVER)) is None
    await Tidy(small.context).run()
    assert await small.region.read(lambda tx: region_servers.find(tx, SERVER)) is not None, "not so soon"
    fence = cell_servers.Fence(OperationId("boot"), 1, 1, 1)
    for database in small.cells.values():
        await database.write(lambda tx: cell_servers.take_over(tx, SERVER, fence))
    long_ago = time.time_ns() // 1000 - DELETED_SERVERS_KEPT_US - 1
    old = sa.update(region_servers.servers).values(deleted_at=long_ago)
    await small.region.write(lambda tx: tx.run(old))
    await Tidy(small.context).run()
    assert await small.region.read(lambda tx: region_servers.find(tx, SERVER)) is None
    for database in small.cells.values():
        assert await database.read(lambda tx: tx.rows(sa.select(cell_servers.fences.c.server))) == []


# -------------------------------------------------------------------------------------------------- notifications


class Broker:
    """A sender that takes what it is given, or nothing."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.ids: list[str] = []
        self.out = False
        self.takes = 1_000

    async def send(self, messages: Sequence[Message]) -> None:
        for each in messages:
            if self.out or len(self.taken) >= self.takes:
                raise Unavailable("the broker is out")
            self.taken.append(each.body["event_type"].removeprefix("compute.instance."))
            self.ids.append(each.body["message_id"])

    async def close(self) -> None: ...


def relay(small: SmallRegion, broker: Broker, clock: HeldClock, **limits: Any) -> NotificationRelay:
    cells = tuple(small.cells.values())
    return NotificationRelay(small.region, cells, broker, Wording(), cast("Any", clock), OutboxLimits(**limits))


async def boot_told(small: SmallRegion) -> None:
    """The fixture's boot, with the notification writer listening."""
    await small.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    paper = MemoryJournal(first_lines(boot), small.transact)
    await execute(boot, BOOT, a_boot(BOOT), small.context, paper, notification_writer=small.on_commit)


TOLD = ["create.start", "update", "update", "create.end"]


async def test_notifications_already_fine(small: SmallRegion) -> None:
    broker = Broker()
    assert await relay(small, broker, HeldClock()).run() == NotificationsDone()
    assert broker.taken == []


async def test_notifications_are_sent_in_order_and_once(small: SmallRegion) -> None:
    await boot_told(small)
    broker, clock = Broker(), HeldClock()
    sending = relay(small, broker, clock)
    assert (await sending.run()).sent == len(TOLD)
    assert broker.taken == TOLD
    assert await sending.run() == NotificationsDone()
    assert len(set(broker.ids)) == len(TOLD)


async def test_notifications_wait_for_an_unreachable_broker(small: SmallRegion) -> None:
    """Each failure makes the rest longer; what was taken before one is not sent again."""
    await boot_told(small)
    broker, clock = Broker(), HeldClock()
    broker.takes = 1
    sending = relay(small, broker, clock, retry_first_s=1.0, retry_most_s=3.0)
    rests: list[float] = []
    for _ in range(4):
        rests.append((await sending.run()).waiting_s)
        assert (await sending.run()).sent == 0, "nothing is tried before the rest is over"
        clock.now += rests[-1]
    for rest_s, longest_s in zip(rests, [1.0, 2.0, 3.0, 3.0], strict=True):
        assert longest_s / 2 <= rest_s <= longest_s
    broker.takes = 1_000
    assert (await sending.run()).sent == len(TOLD) - 1
    assert broker.taken == TOLD


async def test_a_notification_sent_but_not_removed_is_sent_again_with_its_id(small: SmallRegion) -> None:
    """A conductor that dies between the two leaves the row; the next one's message can be recognised."""
    await boot_told(small)
    kept = await small.notifications()
    first, second = Broker(), Broker()
    await relay(small, first, HeldClock()).run()
    await small.region.write(lambda tx: OUTBOX.write(tx, kept))
    await relay(small, second, HeldClock()).run()
    assert (first.taken, first.ids) == (second.taken, second.ids)


async def test_an_outbox_keeps_its_limits(small: SmallRegion) -> None:
    await boot_told(small)
    broker, clock = Broker(), HeldClock()
    broker.out = True
    done = await relay(small, broker, clock, rows_max=3).run()
    assert (done.dropped, await small.region.read(OUTBOX.count)) == (len(TOLD) - 3, 3)
    done = await relay(small, broker, clock, age_max_s=1e-6).run()
    assert (done.dropped, await small.region.read(OUTBOX.count)) == (3, 0)


async def test_a_notification_that_the_broker_refuses_is_dropped(small: SmallRegion) -> None:
    await boot_told(small)
    broker, clock = Broker(), HeldClock()
    broker.out = True
    sending = relay(small, broker, clock, tries_max=3, retry_first_s=1.0, retry_most_s=1.0)
    for _ in range(2):
        assert 0.5 <= (await sending.run()).waiting_s <= 1.0
        clock.now += 1.0
    await sending.run()
    assert await small.region.read(OUTBOX.count) == len(TOLD) - 1


def a_cell_that_is_out() -> CellDatabase:
    return CellDatabase(CellId("out"), AbsentDatabase("out", "sqlite", Meter(), "it does not answer"))


async def test_an_unreachable_cell_does_not_delay_notifications_of_others(small: SmallRegion) -> None:
    await boot_told(small)
    kept = await small.notifications()
    cell = next(iter(small.cells.values()))
    await cell.write(lambda tx: CELL_OUTBOX.write(tx, kept))
    broker, clock = Broker(), cast("Any", HeldClock())
    sending = NotificationRelay(small.region, (a_cell_that_is_out(), cell), broker, Wording(), clock)
    assert await sending.run() == NotificationsDone(2 * len(TOLD), out=("out",))
    assert broker.taken == TOLD * 2
    await cell.write(lambda tx: CELL_OUTBOX.write(tx, kept))
    broker.out = True
    assert (await sending.run()).waiting_s > 0
    assert await cell.read(CELL_OUTBOX.count) == len(TOLD)


async def test_sent_notifications_are_not_repeated_while_the_database_is_read_only(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full, say: rounds come twice a second."""
    await boot_told(small)
    broker, clock = Broker(), HeldClock()
    sending = relay(small, broker, clock)

    async def full(work: object) -> None:
        raise Unavailable("it is out of disk space")

    with monkeypatch.context() as disk:
        disk.setattr(small.region, "write", full)
        for _ in range(3):
            assert await sending.run() == NotificationsDone(out=(small.region.name,))
    assert broker.taken == TOLD
    assert await sending.run() == NotificationsDone(len(TOLD))
    assert (broker.taken, await small.region.read(OUTBOX.count)) == (TOLD, 0)


async def test_an_unreadable_notification_does_not_stop_the_others(small: SmallRegion) -> None:
    await boot_told(small)
    broken = OUTBOX.table.update().where(OUTBOX.table.c.number == 1).values(doc='{"from": "the future"}')
    await small.region.write(lambda tx: tx.run(broken))
    broker = Broker()
    done = await relay(small, broker, HeldClock()).run()
    assert (done.sent, done.dropped) == (len(TOLD) - 1, 1)
    assert broker.taken == TOLD[1:]


# ---------------------------------------------------------------------------------------------------- usage audit

HOUR_US = 3_600_000_000


def audit(small: SmallRegion, at_us: int) -> UsageAudit:
    clock = cast("Any", HeldClock())
    clock.now = lambda: at_us / 1_000_000
    return UsageAudit(small.cells, "hour", clock)


async def told_of(small: SmallRegion) -> list[tuple[str, tuple[int, int] | None]]:
    kept = [
        each
        for database in small.cells.values()
        for each in await database.read(lambda tx: CELL_OUTBOX.first(tx, 1000))
    ]
    told = [msgspec.json.decode(each.doc, type=Notification) for each in kept]
    assert {each.event for each in told} <= {"exists"}
    return sorted((each.server.id, each.period) for each in told)


async def the_hour(small: SmallRegion) -> int:
    """When the hour began in which the fixture's server was launched."""
    for database in small.cells.values():
        row = await database.read(lambda tx: cell_servers.get(tx, SERVER))
        if row is not None and row.launched_at is not None:
            return row.launched_at - row.launched_at % HOUR_US
    raise AssertionError("the server has no record")


async def test_usage_audit_already_fine(small: SmallRegion) -> None:
    """The period before its launch has no server to tell of; and a period is told of once."""
    hour = await the_hour(small)
    assert await audit(small, hour + 60_000_000).run() == UsageAuditDone(0)
    assert await told_of(small) == []
    later = audit(small, hour + HOUR_US)
    assert await later.run() == UsageAuditDone(1)
    assert await later.run() == UsageAuditDone(0)
    assert await audit(small, hour + HOUR_US).run() == UsageAuditDone(0), "another conductor finds it told"
    assert await told_of(small) == [(SERVER, (hour, hour + HOUR_US))]


async def test_a_usage_audit_of_an_unreachable_cell_is_sent_when_it_answers(small: SmallRegion) -> None:
    hour = await the_hour(small)
    later = audit(small, hour + HOUR_US)
    later._cells = {CellId("out"): a_cell_that_is_out(), **small.cells}
    assert await later.run() == UsageAuditDone(1, ("out",))
    later._cells = small.cells
    assert await later.run() == UsageAuditDone()
    assert await told_of(small) == [(SERVER, (hour, hour + HOUR_US))]


async def test_a_usage_audit_continues_where_it_stopped(small: SmallRegion) -> None:
    """More servers than a page holds, in one cell; one that went before the period, and one that went within it."""
    hour = await the_hour(small)
    cell = next(iter(small.cells.values()))
    fence = cell_servers.Fence(BOOT, 1, 1, 1)

    def many(tx: Any) -> None:
        for number in range(PAGE_MAX + 5):
            gone = {0: hour - 1, 1: hour + 1}.get(number)
            server = a_server(id=ServerId(f"many-{number:04}"), launched_at=hour - 5, terminated_at=gone, host="host1")
            cell_servers.record(tx, server, fence)

    await cell.write(many)
    assert (await audit(small, hour + HOUR_US).run()).sent == PAGE_MAX + 5 - 1 + 1
    told = [server for server, _ in await told_of(small)]
    assert len(told) == len(set(told))
    assert "many-0000" not in told
    assert {"many-0001", "many-0204", SERVER} <= set(told)
