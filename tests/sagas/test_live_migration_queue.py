"""Live migrations wait for one another at their source host."""

import asyncio
import contextlib
import dataclasses
import types
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from tests.helpers.live_migrations import AT_SOURCE, SOURCE, assert_moved, execute_move, status

from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed, Invalid, Unavailable
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.model.operation import Operation, OperationStatus
from moorage.model.principal import Principal
from moorage.operations.live_migrate import accept_live_migrate
from moorage.operations.steps import live_migration, live_migration_limit
from moorage.saga import Unwound
from moorage.store.cell import migrations
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, live_migrating, recorded


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


# ------------------------------------------------------------------------------------------- one after the other


@pytest.mark.parametrize("dead", [MigrationStatus.RUNNING, MigrationStatus.QUEUED])
async def test_a_queued_record_without_an_operation_blocks_no_other(
    small: SmallRegion, dead: MigrationStatus, monkeypatch: Any
) -> None:
    asked = await live_migrating(small)
    other = Migration("lost", ServerId("lost"), MigrationType.LIVE_MIGRATION, dead, "u", "p", 1, 1, source_host=SOURCE)
    await small.cells[CELLS[0]].write(lambda tx: migrations.put(tx, other))
    seen, over = list[MigrationStatus](), live_migration_limit._over

    async def looked(context: Any, one: Migration) -> frozenset[str]:
        seen.append(await status(small))
        return await over(context, one)

    monkeypatch.setattr(live_migration_limit, "_over", looked)
    monkeypatch.setattr(live_migration_limit, "POLL_NEXT_S", 0.0)
    await execute_move(small, asked)
    assert seen == [MigrationStatus.QUEUED]
    await assert_moved(small)


def holds(monkeypatch: Any, migration: str) -> None:
    """The server is held by a live migration of that name."""
    asked = msgspec.json.encode({"migration": migration})
    under_way = Operation(
        OperationId("o"),
        "live_migrate/1",
        SERVER,
        "p",
        "u",
        ConductorId("c"),
        OperationStatus.OPEN,
        1,
        1,
        1,
        1,
        asked=asked,
    )
    held = types.SimpleNamespace(operation=under_way.id)
    monkeypatch.setattr(region_servers, "find", lambda *_: held)
    monkeypatch.setattr(region_operations, "get", lambda *_: under_way)


async def test_an_earlier_move_of_the_same_server_does_not_count_as_under_way(
    small: SmallRegion, monkeypatch: Any
) -> None:
    """A cell that was put back says `running` of it again; nobody waits for it, and an abort of it ends nothing else."""
    await live_migrating(small)
    server, principal = await recorded(small), Principal("user-1", project="project-1")
    made = [
        Migration(each, SERVER, MigrationType.LIVE_MIGRATION, RUNNING, "u", "p", 1, 1, source_host=SOURCE)
        for each in ("earlier", MOVE)
    ]
    with monkeypatch.context() as patched:
        holds(patched, MOVE)
        assert [await live_migration_limit._over(small.context, each) for each in made] == [{"earlier"}, set()]
        with pytest.raises(Invalid, match="has ended"):
            await accept_live_migrate.abort(small.context, principal, server, made[0], "req-abort")


@pytest.mark.parametrize("why", ["cancelled", "silent"])
async def test_a_queued_migration_ends_on_abort_or_silence_of_its_host(
    small: SmallRegion, why: str, monkeypatch: Any
) -> None:
    """The hint of a cancel may be lost; a server in line behind a dead host's could not be evacuated."""
    asked, seen, aside = await live_migrating(small), list[MigrationStatus](), list[str]()
    other = Migration("other", SERVER, MigrationType.LIVE_MIGRATION, RUNNING, "u", "p", 1, 1, source_host=SOURCE)
    await small.cells[CELLS[0]].write(lambda tx: migrations.put(tx, other))

    async def waits(*_: Any) -> frozenset[str]:
        seen.append(await status(small))
        assert aside == ["in"]
        if why == "silent":
            small.hosts.silent.add(SOURCE)
        return frozenset()

    async def cancelled(_: Any) -> bool:
        return why == "cancelled" and bool(seen)

    @contextlib.contextmanager
    def stands_aside(_: Any) -> Iterator[None]:
        aside.append("in")
        yield
        aside.append("out")

    small.context = dataclasses.replace(small.context, aside=stands_aside)
    monkeypatch.setattr(live_migration_limit, "_over", waits)
    monkeypatch.setattr(live_migration_limit, "POLL_NEXT_S", 0.0)
    monkeypatch.setattr(live_migration, "is_cancelled", cancelled)
    with pytest.raises(Unwound):
        await asyncio.wait_for(execute_move(small, asked), 30)
    assert seen == [QUEUED]
    assert await status(small) is (MigrationStatus.CANCELLED if why == "cancelled" else MigrationStatus.ERROR)
    assert small.hosts.guests == AT_SOURCE


async def test_the_place_is_released_before_the_destination_is_cleaned(small: SmallRegion, monkeypatch: Any) -> None:
    """A new host that cannot destroy what it has holds up nobody else of the old one."""
    asked, tell_host, destroy, stays = (
        await live_migrating(small),
        small.hosts.change_guest,
        small.hosts.destroy_guest,
        list[bool](),
    )

    async def executing(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        if verb is Verb.SEND_LIVE:
            raise HostFailed("it cannot send it")
        return await tell_host(to, command_context, server, verb, payload)

    async def clearing(to: Any, command_context: Any, server: Any, release: Any = None) -> None:
        move = await small.cells[CELLS[0]].read(lambda tx: migrations.get(tx, MOVE))
        assert move is not None
        stays.append(move.stays)
        await destroy(to, command_context, server, release)

    monkeypatch.setattr(small.hosts, "change_guest", executing)
    monkeypatch.setattr(small.hosts, "destroy_guest", clearing)
    with pytest.raises(Unwound):
        await execute_move(small, asked)
    assert stays
    assert all(stays)
    ended = await small.cells[CELLS[0]].read(lambda tx: migrations.get(tx, MOVE))
    assert ended is not None
    assert (ended.stays, ended.status) == (False, MigrationStatus.FAILED)


async def test_an_outage_ends_a_queued_migration_earlier_than_its_turn_limit(
    small: SmallRegion, monkeypatch: Any
) -> None:
    """Its cell's database is out: the steps around it wait for minutes."""
    asked, tries = await live_migrating(small), list[str]()

    async def out(*_: Any) -> Any:
        tries.append("try")
        raise Unavailable("the database of cell1 is out")

    monkeypatch.setattr(live_migration_limit, "_enqueue", out)
    monkeypatch.setattr(live_migration_limit, "OUTAGE_MAX_S", 0.1)
    monkeypatch.setattr(live_migration_limit, "POLL_NEXT_S", 0.01)
    with pytest.raises(Unwound, match="waited too long"):
        await execute_move(small, asked)
    assert 1 < len(tries) < 100
    assert (await recorded(small)).host == SOURCE


QUEUED, PREPARING, RUNNING = MigrationStatus.QUEUED, MigrationStatus.PREPARING, MigrationStatus.RUNNING


@pytest.mark.parametrize(
    ("line", "mine", "most", "before"),
    [
        ([RUNNING, QUEUED], 2, 1, [1]),
        ([RUNNING, QUEUED], 2, 2, []),
        ([RUNNING, QUEUED], 2, 0, []),
        ([RUNNING, RUNNING, QUEUED, QUEUED], 3, 2, [1, 2]),
        ([RUNNING, QUEUED, QUEUED], 3, 2, [2]),
        ([QUEUED, RUNNING], 1, 1, [2]),
        ([RUNNING, PREPARING], 2, 1, []),
        ([RUNNING, QUEUED], None, 1, [2]),
        ([RUNNING], None, 1, [1]),
        ([], None, 1, []),
    ],
)
def test_queue_order_of_live_migrations(
    line: list[MigrationStatus], mine: int | None, most: int, before: list[int]
) -> None:
    rows = [
        Migration(str(n), SERVER, MigrationType.LIVE_MIGRATION, each, "u", "p", 1, 1, source_host=SOURCE, number=n)
        for n, each in enumerate(line, 1)
    ]
    assert [each.number for each in live_migration_limit._before(rows, str(mine), (), most)] == before
    stay = [msgspec.structs.replace(each, stays=each.uuid != str(mine)) for each in rows]
    assert live_migration_limit._before(stay, str(mine), (), most) == []
