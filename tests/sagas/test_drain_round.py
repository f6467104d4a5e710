"""Rounds of a drain, one at a time: whose move is confirmed, which servers are moved, and what is repeated after a crash."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio
from tests.helpers.leak_planting import change

from moorage.conductor.audit import record_checks as audited
from moorage.conductor.audit.snapshot import SnapshotPage
from moorage.conductor.drains import Drains
from moorage.model.clock import SystemClock
from moorage.model.drain import Drain, DrainProgress, DrainRequest, DrainServer, DrainStatus, MoveMethod
from moorage.model.errors import Conflict, Unavailable
from moorage.model.host import Host
from moorage.model.ids import CellId, ConductorId, HostId, OperationId, ProviderId
from moorage.model.migration import MigrationStatus
from moorage.model.operation import Accepted
from moorage.model.resources import DISABLED_TRAIT
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.drains import drain_moves
from moorage.operations.registry import SAGAS
from moorage.operations.resize import confirm_resize
from moorage.operations.steps import server_lock
from moorage.placement.inventory import host_id
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.sql import Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations
from moorage.store.region import drains
from moorage.store.region import servers as region_servers
from moorage.store.region.audit_reads import Mapped
from moorage.store.region.placement import claim_statements, provider_statements
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, moved, recorded
from moorage_testing.region_states import booted
from moorage_testing.saga_proof import PROVED_OPERATION

HOST, CELL = "host1", CellId("cell1")
ROW = DrainServer(SERVER, "s", MoveMethod.COLD)
DRAIN = Drain(
    "7a1c1a0e-0000-4000-8000-00000000d001",
    HOST,
    CELL,
    asked_at=1,
    asked_by="admin",
    project="admin",
    asked=DrainRequest(live=False),
    status=DrainStatus.RUNNING,
    servers=(ROW,),
)


class RecordingDispatcher:
    """Executes nothing; keeps what is accepted, and the test executes it."""

    def __init__(self) -> None:
        self.accepted: list[Accepted] = []

    async def choose(self, saga: str) -> ConductorId:
        return ConductorId("conductor1")

    async def begun(self, new: Accepted) -> None:
        self.accepted.append(new)


class Ground:
    """A small region whose server nobody holds, and a drain of its first host."""

    def __init__(self, small: SmallRegion) -> None:
        self.small, self.dispatcher = small, RecordingDispatcher()

    @property
    def context(self) -> SagaContext:
        return dataclasses.replace(self.small.context, dispatcher=cast("Any", self.dispatcher))

    async def unlock_server(self, holder: OperationId = PROVED_OPERATION) -> None:
        await self.small.region.write(lambda tx: region_servers.release(tx, SERVER, holder))

    async def ask(self, drain: Drain = DRAIN) -> None:
        await self.small.region.write(lambda tx: drains.ask(tx, drain))
        await self.small.cells[CELL].write(lambda tx: cell_hosts.report(tx, a_host(), 1))

    async def round(self) -> Drain:
        """Run one round, and return the drain as it wrote it."""
        await Drains(self.context, SystemClock()).run()
        found = await self.small.region.read(lambda tx: drains.get(tx, DRAIN.id))
        assert found is not None
        return found

    async def began(self) -> list[str]:
        """The sagas that were accepted since the last call."""
        accepted, self.dispatcher.accepted = self.dispatcher.accepted, []
        return [each.saga for each in accepted]

    async def end(self, new: Accepted) -> None:
        """Execute its operation to its end."""
        saga = SAGAS[new.saga]
        asked = msgspec.json.decode(new.asked, type=saga.input_type)
        await execute(saga, new.id, asked, self.small.context, MemoryJournal(first_lines(saga), self.small.transact))


def a_host(name: str = HOST) -> Host:
    return Host(0, HostId(host_id(name)), "", name, name, CELL)


@pytest_asyncio.fixture
async def ground() -> AsyncIterator[Ground]:
    small = await SmallRegion.open()
    yield Ground(small)
    await small.close()


async def began_by(ground: Ground, request_id: str) -> None:
    """What the record of the server's move says of who began it."""

    def work(tx: Tx) -> None:
        found = migrations.get(tx, MOVE)
        assert found is not None
        migrations.put(tx, msgspec.structs.replace(found, request_id=request_id))

    await ground.small.cells[CELL].write(work)


# ---------------------------------------------------------------------------------------------- whose move it is


async def test_only_what_the_drain_moved_itself_is_confirmed(ground: Ground) -> None:
    """A resize of its owner's stays to be confirmed or reverted, though it left the host that is emptied."""
    await moved(ground.small)
    await ground.unlock_server()
    await ground.ask()
    now = await ground.round()
    assert await ground.began() == []
    (row,) = now.servers
    assert (row.progress, row.why) == (DrainProgress.LEFT, "its owner moved it, and must confirm or revert that")
    assert now.status is DrainStatus.INCOMPLETE


async def test_what_the_drain_moved_is_confirmed(ground: Ground) -> None:
    await moved(ground.small)
    await ground.unlock_server()
    await began_by(ground, f"req-{DRAIN.id}")
    await ground.ask()
    now = await ground.round()
    assert await ground.began() == ["confirm_resize/1"]
    assert [each.progress for each in now.servers] == [DrainProgress.CONFIRMING]


async def test_the_old_disk_of_a_server_lost_by_its_new_host_is_kept(ground: Ground) -> None:
    """A confirm of it is refused, once a second for ever; and the place is for others meanwhile, also while nobody hears that host."""
    await moved(ground.small)
    await ground.unlock_server()
    await began_by(ground, f"req-{DRAIN.id}")
    await ground.ask()
    ground.small.hosts.silent.add("host3")
    now = await ground.round()
    (row,) = now.servers
    assert (now.status, row.progress) == (DrainStatus.RUNNING, DrainProgress.CONFIRMING)
    assert "silent" in row.why
    ground.small.hosts.silent.clear()
    del ground.small.hosts.guests["host3", SERVER]
    now = await ground.round()
    (row,) = now.servers
    assert (now.status, row.progress, row.why) == (DrainStatus.INCOMPLETE, DrainProgress.LEFT, confirm_resize.LOST)
    assert await ground.began() == []


@pytest.mark.parametrize("known", [True, False])
async def test_a_broken_server_with_its_disk_on_the_host_stays(ground: Ground, *, known: bool) -> None:
    """Its live migration's new host has lost it, and nobody has decided yet: the host is not empty, and no audit calls that a leak."""
    await moved(ground.small)
    await ground.unlock_server()
    row = await recorded(ground.small)
    assert row.moved is not None
    await change(ground.small, vm_state=VmState.ERROR, moved=msgspec.structs.replace(row.moved, live=True))
    await ground.ask(DRAIN if known else msgspec.structs.replace(DRAIN, servers=()))
    now = await ground.round()
    assert [(each.progress, each.why) for each in now.servers] == [(DrainProgress.LEFT, drain_moves.UNDECIDED)]
    assert now.status is DrainStatus.INCOMPLETE
    page = SnapshotPage(
        {SERVER: Mapped(SERVER, "p", CELL, None, 1, deleted=False, has_order=False, vm_state="")},
        {SERVER: [(CELL, await recorded(ground.small))]},
    )
    found = await ground.small.cells[CELL].read(lambda tx: migrations.get(tx, MOVE))
    assert found is not None
    page.moves[SERVER] = [found]
    assert list(audited.migrations(page, cast("Any", None))) == []
    page.moves[SERVER] = [msgspec.structs.replace(found, status=MigrationStatus.MIGRATING)]
    assert [each.kind for each in audited.migrations(page, cast("Any", None))] == ["migration_left_open"]


async def test_a_move_records_the_request_that_began_it(ground: Ground) -> None:
    await moved(ground.small)
    found = await ground.small.cells[CELL].read(lambda tx: migrations.get(tx, MOVE))
    assert found is not None
    assert found.request_id == "req-resize"


async def test_a_confirm_applies_only_to_the_move_that_was_read(ground: Ground) -> None:
    await moved(ground.small)
    await ground.unlock_server()
    seen = await recorded(ground.small)
    assert seen.moved is not None
    other = msgspec.structs.replace(seen, moved=msgspec.structs.replace(seen.moved, migration="another"))
    with pytest.raises(Conflict, match="no longer waits for confirmation"):
        await drain_moves.confirm_move(ground.context, other)
    await drain_moves.confirm_move(ground.context, seen)
    assert await ground.began() == ["confirm_resize/1"]


async def test_a_server_that_has_left_the_host_is_not_moved_again(ground: Ground) -> None:
    """It was on the host when the round looked, and its owner's move ended before the round came to it."""
    await booted(ground.small)
    await ground.unlock_server()
    seen = await recorded(ground.small)
    assert seen.host == HOST
    for way, live in ((MoveMethod.COLD, False), (MoveMethod.LIVE, True)):
        assert drain_moves.way_of(seen, live=live) is way
        with pytest.raises(Conflict, match="is not on host host3 any more"):
            await drain_moves.leave(ground.context, seen, drain_moves.MoveAway("host3", "admin", "admin", live))
    assert await ground.began() == []
    await drain_moves.leave(ground.context, seen, drain_moves.MoveAway(HOST, "admin", "admin"))
    assert await ground.began() == ["resize/1"]


# -------------------------------------------------------------------------------------------- after an accident


async def test_a_host_disabled_only_in_its_cell_is_disabled_in_the_region(ground: Ground) -> None:
    """Whoever disabled it died after the cell had it: boots still came."""
    await booted(ground.small)
    await ground.unlock_server()
    await ground.ask(msgspec.structs.replace(DRAIN, status=DrainStatus.WAITING))
    cell, region = ground.small.cells[CELL], ground.small.region
    await cell.write(lambda tx: cell_hosts.set_disabled(tx, HOST, True, "dust", 2))
    await ground.round()
    assert DISABLED_TRAIT in await region.read(lambda tx: provider_statements.traits_of(tx, host_id(HOST)))
    found = await cell.read(lambda tx: cell_hosts.named(tx, HOST))
    assert found is not None
    assert (found.disabled, found.disabled_reason) == (True, "dust")


async def test_moves_begun_by_an_overtaken_round_finish_after_the_drain_is_cancelled(ground: Ground) -> None:
    """The round begins a move, a cancel overtakes its write, and the move is confirmed all the same."""
    await booted(ground.small)
    await ground.unlock_server()
    await ground.ask()
    plain = drain_moves.leave

    async def cancelled_meanwhile(context: SagaContext, server: Server, *rest: Any, **more: Any) -> None:
        await plain(context, server, *rest, **more)
        await ground.small.region.write(lambda tx: drains.cancel(tx, DRAIN.id))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain_moves, "leave", cancelled_meanwhile)
        before = await ground.round()
    assert (before.cancel, before.servers[0].progress) == (True, DrainProgress.WAITING), "its write was too late"
    (new,) = ground.dispatcher.accepted
    assert await ground.began() == ["resize/1"]
    now = await ground.round()
    assert (now.status, now.servers[0].progress) == (DrainStatus.RUNNING, DrainProgress.MOVING)
    await ground.end(new)
    now = await ground.round()
    assert await ground.began() == ["confirm_resize/1"]
    assert (now.status, now.servers[0].progress) == (DrainStatus.RUNNING, DrainProgress.CONFIRMING)


async def test_a_cancelled_drain_with_only_waiting_servers_ends(ground: Ground) -> None:
    await booted(ground.small)
    await ground.unlock_server()
    await ground.ask()
    await ground.small.region.write(lambda tx: drains.cancel(tx, DRAIN.id))
    now = await ground.round()
    assert await ground.began() == []
    assert (now.status, now.why) == (DrainStatus.CANCELLED, "1 servers stay")


async def test_servers_that_left_before_and_may_come_back_are_named(ground: Ground) -> None:
    """It was in VERIFY_RESIZE when the drain was asked for: what it keeps on the host is its owner's to give up."""
    await moved(ground.small)
    await ground.unlock_server()
    await ground.ask(msgspec.structs.replace(DRAIN, servers=()))
    now = await ground.round()
    (row,) = now.servers
    assert (row.server, row.way, row.progress, row.why) == (
        SERVER,
        MoveMethod.NONE,
        DrainProgress.LEFT,
        drain_moves.OWNERS_MOVE,
    )
    assert (now.status, now.why) == (DrainStatus.INCOMPLETE, "1 servers stay")
    assert await drain_moves.left_before(ground.context, CELL, HOST, {SERVER}) == []
    assert await drain_moves.left_before(ground.context, CELL, "host3", ()) == []


async def test_claims_of_other_consumers_are_named_and_not_waited_for(ground: Ground) -> None:
    """A consumer of the Placement API keeps its claim for ever; a server's claim comes to be a server there yet."""
    provider = ProviderId(host_id(HOST))
    ours = claim_statements.Owner(SERVER, "p", "u", operation="boot", attempt=1)
    foreign = claim_statements.Owner("reserved", "p", "u")
    for owner in (ours, foreign):
        await ground.small.region.write(
            lambda tx, owner=owner: claim_statements.write(tx, owner, {(provider, "VCPU"): 1}, 1)
        )
    await ground.ask(msgspec.structs.replace(DRAIN, servers=()))
    now = await ground.round()
    assert (now.status, now.why) == (DrainStatus.RUNNING, "an operation has a claim there, and no record yet")

    def drop_claim(tx: Tx) -> None:
        claim_statements.drop(tx, SERVER)
        claim_statements.forget(tx, SERVER)

    await ground.small.region.write(drop_claim)
    now = await ground.round()
    assert (now.status, now.why) == (DrainStatus.DONE, "what others claimed there stays: reserved")


async def test_a_plan_does_not_wait_for_busy_servers(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request waits half a minute for a short operation of another; a plan of a whole host would for each server."""
    await booted(ground.small)

    async def soon(*_: Any) -> bool:
        return True

    monkeypatch.setattr(server_lock, "_soon_over", soon)
    assert server_lock.PREVIEWED_WITHIN_S <= 1.0
    monkeypatch.setattr(server_lock, "PREVIEWED_WITHIN_S", 0.05)
    async with asyncio.timeout(server_lock.TURN_COMES_WITHIN_S / 2):
        (row,) = await drain_moves.planned(ground.context, HOST, [await recorded(ground.small)], "admin", "admin")
    assert row.progress is DrainProgress.WAITING
    assert row.why.startswith("busy: ")


async def test_an_unreachable_database_costs_no_attempt(ground: Ground) -> None:
    await booted(ground.small)
    await ground.unlock_server()
    await ground.ask()

    async def out(*_: Any, **__: Any) -> None:
        raise Unavailable("out")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain_moves, "leave", out)
        now = await ground.round()
    (row,) = now.servers
    assert (row.progress, row.attempts, row.why) == (DrainProgress.WAITING, 0, "out")
    assert row.again_at > 0


async def test_all_hosts_are_disabled_before_the_first_move(ground: Ground) -> None:
    """The first drain's server would go to the second's host otherwise."""
    await booted(ground.small)
    await ground.unlock_server()
    await ground.ask(msgspec.structs.replace(DRAIN, status=DrainStatus.WAITING))
    other = msgspec.structs.replace(DRAIN, id="other", host="host3", status=DrainStatus.WAITING, servers=(), asked_at=2)
    await ground.small.region.write(lambda tx: drains.ask(tx, other))
    await ground.small.cells[CELL].write(lambda tx: cell_hosts.report(tx, a_host("host3"), 1))
    plain, closed = drain_moves.leave, list[bool]()

    async def looks(*rest: Any, **more: Any) -> None:
        traits = await ground.small.region.read(lambda tx: provider_statements.traits_of(tx, host_id("host3")))
        closed.append(DISABLED_TRAIT in traits)
        await plain(*rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain_moves, "leave", looks)
        await ground.round()
    assert closed == [True]


async def test_a_server_held_by_another_operation_does_not_count_against_the_limit(ground: Ground) -> None:
    """A snapshot may take an hour; a move of the drain's own that an earlier leader began is on its way."""
    await booted(ground.small)
    await ground.ask()
    (row,) = (await ground.round()).servers
    assert (row.progress, row.attempts, row.why) == (DrainProgress.WAITING, 0, "another action on it is under way")
    await ground.unlock_server()
    (row,) = (await ground.round()).servers
    assert (row.progress, row.attempts, row.why) == (DrainProgress.MOVING, 1, "")
    assert await ground.began() == ["resize/1"]


async def test_a_move_begun_by_an_earlier_leader_counts_as_moving(ground: Ground) -> None:
    await booted(ground.small)
    await ground.unlock_server()
    await ground.ask()
    seen = await recorded(ground.small)
    await drain_moves.leave(
        ground.context, seen, drain_moves.MoveAway(HOST, "admin", "admin"), request_id=f"req-{DRAIN.id}"
    )
    (row,) = (await ground.round()).servers
    assert row.progress is DrainProgress.MOVING
    assert await ground.began() == ["resize/1"]
