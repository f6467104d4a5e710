"""Resize and cold migration to other cells: every kind of server, the order of the hosts, and what is left of each attempt."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from moorage.bus.agent_calls import HostAddress
from moorage.model.errors import HostFailed, Unavailable
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus
from moorage.model.server import VmState
from moorage.operations.registry import SAGAS
from moorage.operations.resize.resize_input import Resize
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage.saga.retry import WALL, SagaClock
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.store.cell import migrations, record_transfer
from moorage.store.cell import servers as cell_servers
from moorage_testing.fault_points import ManualClock
from moorage_testing.proof_parts import PARTS
from moorage_testing.region_cells import records_held
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_moved import LARGER, MOVE, TEMPORARY, crossable, crossing_cells
from moorage_testing.region_prepared import PreparedRegion
from moorage_testing.saga_proof import PROVED_OPERATION, prove

SAGA = SAGAS["resize/2"]
LEFT, THERE = CELLS
KINDS: dict[str, dict[str, Any]] = {"volumes": {"volumes": True}, "off": {"state": VmState.STOPPED}}


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


@pytest.mark.matrix
@pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in PARTS if part.name == "failing"])
@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_server_goes_to_another_cell(small: SmallRegion, kind: str, part: Any) -> None:
    world = KINDS[kind]
    asked = await crossing_cells(small, **world)
    await prove(SAGA, asked, PreparedRegion(small, lambda: crossable(small, **world)), part)


async def execute_resize(small: SmallRegion, asked: Resize, clock: SagaClock = WALL) -> None:
    journal = MemoryJournal(first_lines(SAGA), small.transact)
    await execute(
        SAGA, PROVED_OPERATION, asked, small.context, journal, clock=clock, notification_writer=small.on_commit
    )


async def held(small: SmallRegion) -> dict[str, Any]:
    return await records_held(small.region, small.cells, SERVER)


def leaves_first(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts of other cells are better than those of its own, as where a cell is to be emptied."""
    profile = Profile().weighing({"cross_cell_move": -10_000.0})
    monkeypatch.setattr(small.engine, "_rank", partial(rank, profile=profile))


class Started:
    """Which hosts were told to start it, and who refuses."""

    def __init__(self, small: SmallRegion, refuse: Callable[[str], bool]) -> None:
        self.hosts: list[str] = []
        self.images: list[str] = []
        self._start, self._refuse = small.hosts.start_guest, refuse
        small.hosts.start_guest = self.__call__  # type: ignore[method-assign]

    async def __call__(self, to: HostAddress, command_context: Any, guest: GuestSpec) -> PowerState:
        self.hosts.append(to.host)
        self.images.append(guest.image or "")
        if self._refuse(to.host):
            raise HostFailed("planted", code="planted")
        return await self._start(to, command_context, guest)


async def test_the_record_is_copied_in_its_final_state(small: SmallRegion) -> None:
    asked = await crossing_cells(small)
    started = Started(small, lambda host: False)
    await execute_resize(small, asked)
    now = await held(small)
    assert (now["shown in"], now["hidden in"], now["amiss"]) == (THERE, [LEFT], [])
    there = await small.cells[THERE].read(lambda tx: record_transfer.read(tx, SERVER))
    left = await small.cells[LEFT].read(lambda tx: record_transfer.read(tx, SERVER))
    assert there is not None
    assert left is not None
    server, moved = there.server, there.server.moved
    assert moved is not None
    assert (server.vm_state, server.task_state, server.host, server.cell) == (
        VmState.RESIZED,
        None,
        started.hosts[0],
        THERE,
    )
    assert (server.flavor, server.power_state) == (LARGER, PowerState.RUNNING)
    assert (moved.host, moved.cell, moved.migration) == ("host1", LEFT, MOVE)
    assert started.images == [TEMPORARY]
    (move,) = there.migrations
    assert (move.status, move.source_cell, move.dest_cell) == (MigrationStatus.FINISHED, LEFT, THERE)
    assert (move.source_host, move.dest_host) == ("host1", server.host)
    assert [each.action for each in there.actions] == [each.action for each in left.actions]
    resize = next(each for each in there.actions if each.action == "resize")
    assert resize.finished_at is not None
    assert [event.result for event in resize.events] == ["Success"] * 4
    assert left.server.vm_state is VmState.ACTIVE, "it stays as it was, sealed"
    assert small.hosts.guests["host1", SERVER] is PowerState.SHUTDOWN, "its disk is kept for a revert"
    assert TEMPORARY not in small.images.whole
    assert small.hosts.counting[-1] == (server.host, SERVER, asked.seq)


async def test_notifications_come_in_pairs_as_within_a_cell(small: SmallRegion) -> None:
    await execute_resize(small, await crossing_cells(small))
    notifications = [(each.event, each.host) for each in await small.notifications() if each.event.startswith("resize")]
    there = (await held(small), await small.cells[THERE].read(lambda tx: cell_servers.get(tx, SERVER)))[1]
    assert there is not None
    assert notifications == [
        ("resize_prep.start", there.host),
        ("resize_prep.end", there.host),
        ("resize.start", "host1"),
        ("resize.end", "host1"),
        ("resize_finish.start", there.host),
        ("resize_finish.end", there.host),
    ]


async def test_hosts_of_the_same_cell_are_tried_first_and_then_its_own(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.14, S4.23: of the cell that was chosen, and of what is left then the server's own, where it goes as within the cell."""
    asked = await crossing_cells(small, may_stay=True)
    leaves_first(small, monkeypatch)
    there = {"host2", "host5", "host6"}
    started = Started(small, lambda host: host in there)
    with pytest.raises(Unwound):
        await execute_resize(small, asked)
    assert len(set(started.hosts)) == 3
    assert set(started.hosts) == there
    assert small.hosts.guests == {("host1", SERVER): PowerState.RUNNING}
    now = await held(small)
    assert (now["shown in"], sorted(now["records"]), now["hidden in"], now["amiss"]) == (LEFT, [LEFT], [], [])
    assert TEMPORARY not in small.images.whole


async def test_a_move_that_failed_in_another_cell_may_end_in_its_own(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one host is there in the other cell; after it the disk goes from host to host, and no image is left."""
    asked = await crossing_cells(small, may_stay=True)
    seen = small.engine.world()
    far = tuple(seen.host_ids[seen.slots_by_name[each]] for each in ("host5", "host6"))
    leaves_first(small, monkeypatch)
    started = Started(small, lambda host: host == "host2")
    await execute_resize(small, msgspec.structs.replace(asked, far=far))
    assert started.hosts[0] == "host2"
    assert started.hosts[-1] in {"host3", "host4"}
    now = await held(small)
    assert (now["shown in"], sorted(now["records"]), now["hidden in"], now["amiss"]) == (LEFT, [LEFT], [], [])
    server = await small.cells[LEFT].read(lambda tx: cell_servers.get(tx, SERVER))
    assert server is not None
    assert server.moved is not None
    assert (server.vm_state, server.moved.cell, server.host) == (VmState.RESIZED, None, started.hosts[-1])
    (move,) = await small.cells[LEFT].read(lambda tx: migrations.of_server(tx, SERVER))
    assert (move.source_cell, move.dest_cell) == (None, None)
    assert small.images.whole.get(TEMPORARY) is None
    assert small.hosts.guests["host1", SERVER] is PowerState.SHUTDOWN


@pytest.mark.parametrize(
    "world", [{"guarantees": True}, {"routed": True, "across": True}], ids=["guaranteed", "segments"]
)
async def test_guarantees_and_addresses_are_claimed_in_the_other_cell(
    small: SmallRegion, world: dict[str, Any]
) -> None:
    """N6: ports with a resource request go along, bound with the new host's providers; and a card may leave its segment with its cell."""
    asked = await crossing_cells(small, **world)
    await execute_resize(small, asked)
    now = await held(small)
    assert (now["shown in"], now["hidden in"], now["amiss"]) == (THERE, [LEFT], [])
    whole = await small.held()
    assert (whole["bound elsewhere"], whole["runs"], whole["runs elsewhere"]) == ([], 1, [])
    server = await small.cells[THERE].read(lambda tx: cell_servers.get(tx, SERVER))
    assert server is not None
    assert server.moved is not None
    if world.get("guarantees"):
        assert [amount for _, amount in whole["guarantees"]["claimed"]] == [300, 300, 3, 3], "at both ends"
        named = {provider for nic in server.nics for provider, _, _ in nic.guarantees}
        assert named == {f"{server.host}-agent", f"{server.host}-bridge"}
    else:
        assert len(server.moved.readdressed) == 1


async def test_an_unreachable_cell_costs_no_attempt(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its database is found out before the guest is touched, and the server goes to a host of its own cell."""
    asked = await crossing_cells(small, may_stay=True)
    leaves_first(small, monkeypatch)

    async def out(*_: object) -> None:
        raise Unavailable("the cell's database does not answer")

    monkeypatch.setattr(small.cells[THERE], "write", out)
    started = Started(small, lambda host: False)
    await execute_resize(small, asked)
    assert started.hosts[-1] in {"host3", "host4"}
    monkeypatch.undo()
    now = await held(small)
    assert (now["shown in"], sorted(now["records"]), now["hidden in"], now["amiss"]) == (LEFT, [LEFT], [], [])


async def test_a_failure_of_the_old_host_ends_the_move(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other host would help."""
    asked, tried = await crossing_cells(small), list[str]()

    async def refused(to: HostAddress, command_context: Any, server: Any, graceful_s: float = 60.0) -> PowerState:
        tried.append(to.host)
        raise HostFailed("it cannot be switched off", code="driver_broke")

    monkeypatch.setattr(small.hosts, "power_off", refused)
    with pytest.raises(Unwound, match="it cannot be switched off"):
        await execute_resize(small, asked)
    assert tried == ["host1"]


async def test_a_host_that_already_has_a_guest_of_the_server_is_skipped(small: SmallRegion) -> None:
    """What is left there of an earlier move is not written over."""
    asked = await crossing_cells(small)
    for host in ("host2", "host5"):
        small.hosts.guests[host, SERVER] = PowerState.SHUTDOWN
    started = Started(small, lambda host: False)
    await execute_resize(small, asked)
    assert started.hosts == ["host6"]


async def test_an_unsuitable_cell_is_named(small: SmallRegion) -> None:
    """Its swap disk would be left behind: refused before anything is touched, with the cause."""
    asked = await crossing_cells(small)
    swapping = msgspec.structs.replace(asked.server.flavor, swap_mib=64)

    def with_swap(tx: Any) -> None:
        found = cell_servers.get(tx, SERVER)
        assert found is not None
        fence = cell_servers.Fence(PROVED_OPERATION, asked.seq, 1, 0)
        cell_servers.write(tx, msgspec.structs.replace(found, flavor=swapping), fence)

    await small.cells[LEFT].write(with_swap)
    with pytest.raises(Unwound, match="its ephemeral or swap disk cannot go to another cell"):
        await execute_resize(small, asked)
    assert small.hosts.guests == {("host1", SERVER): PowerState.RUNNING}
    assert (await held(small))["shown in"] == CellId("cell1")


async def test_a_cell_lost_before_the_copy_does_not_keep_the_guest_off(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guest runs already in the other cell: it runs again where it was, and what that cell may have stays hidden."""
    asked = await crossing_cells(small)
    write = small.cells[THERE].write

    async def goes_out(work: Callable[[Any], Any]) -> Any:
        if any(host != "host1" for host, _ in small.hosts.guests):
            raise Unavailable("the cell's database does not answer")
        return await write(work)

    monkeypatch.setattr(small.cells[THERE], "write", goes_out)
    with pytest.raises(Unwound, match="the cell's database does not answer"):
        await execute_resize(small, asked, ManualClock())
    monkeypatch.undo()
    now = await held(small)
    assert (now["shown in"], sorted(now["records"]), now["hidden in"]) == (LEFT, [LEFT], [THERE])
    assert small.hosts.guests == {("host1", SERVER): PowerState.RUNNING}
    assert not await small.cells[LEFT].read(lambda tx: record_transfer.is_sealed(tx, SERVER))
