"""Rows of waiting servers: sleeping, waking and being cancelled are changes of one owner, and exactly one of them happens."""

import msgspec
import pytest
import sqlalchemy as sa

from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.model.operation import Accepted
from moorage.sql import Database
from moorage.store.region import conductors, operation_owners, operations, waiting
from moorage.store.region.operations import ASLEEP
from moorage.store.region.tables import region_metadata
from moorage.store.region.waiting import State, WaitingServer

ME, OTHER = ConductorId("me"), ConductorId("other")
ONE, TWO, THREE = OperationId("one"), OperationId("two"), OperationId("three")
START = (0, "")


@pytest.fixture
async def region(database: Database) -> Database:
    """Three boots that ME executes, in the order ONE, TWO, THREE."""
    await database.create(region_metadata)
    await database.write(
        lambda tx: operations.accept(
            tx,
            [
                Accepted(
                    id=each, saga="boot/3", server=ServerId(f"server-{each}"), project="p", user="u", owner=ME,
                    asked=b"{}", journal=b"", head=1, created_at=number,
                )
                for number, each in enumerate((ONE, TWO, THREE))
            ],
        )
    )  # fmt: skip
    return database


def row(operation: OperationId, came_at: int = 1, **changes: object) -> WaitingServer:
    found = WaitingServer(
        operation=operation,
        server=ServerId(f"server-{operation}"),
        project="p",
        saga="boot/3",
        kind="k",
        causes=("addresses", "memory"),
        counts={"not enough memory": 2},
        ask=b"{}",
        came_at=came_at,
        since=5,
        until=100,
        slept_at=5,
    )
    return msgspec.structs.replace(found, **changes)


async def owner(region: Database, operation: OperationId) -> tuple[str, int]:
    found = await region.read(lambda tx: operations.get(tx, operation))
    assert found is not None
    return found.owner, found.epoch


async def test_sleeping_operations_are_not_owned_adopted_or_polled(region: Database) -> None:
    assert await region.write(lambda tx: waiting.fall_asleep(tx, row(ONE)))
    assert await owner(region, ONE) == (ASLEEP, 1)
    assert {each.id for each in await region.read(lambda tx: operation_owners.owned(tx, ME))} == {TWO, THREE}
    await region.write(lambda tx: conductors.take(tx, OTHER, (), "host", ["boot/3"]))
    for everything in (False, True):
        orphans = await region.read(
            lambda tx, every=everything: operation_owners.orphaned(tx, OTHER, ["boot/3"], everything=every)  # type: ignore[misc]
        )
        assert set(orphans) == {TWO, THREE}
    taken = await region.write(lambda tx: operation_owners.adopt(tx, OTHER, [ONE, TWO], ["boot/3"], everything=True))
    assert set(taken) == {TWO}


async def test_a_cancel_before_the_sleep_prevents_it_and_a_later_one_wakes(region: Database) -> None:
    await region.write(lambda tx: operations.ask_to_cancel(tx, ONE, "deleted", OTHER))
    assert not await region.write(lambda tx: waiting.fall_asleep(tx, row(ONE)))
    assert await owner(region, ONE) == (ME, 1)
    assert await region.write(lambda tx: waiting.fall_asleep(tx, row(TWO)))
    await region.write(lambda tx: operations.ask_to_cancel(tx, TWO, "deleted", OTHER))
    assert await owner(region, TWO) == (OTHER, 2)
    assert await region.write(lambda tx: waiting.wake(tx, {TWO: ME}, 6)) == []
    await region.write(lambda tx: waiting.fall_asleep(tx, row(THREE)))
    await region.write(lambda tx: operations.ask_to_cancel(tx, THREE, "deleted"))  # as a release before does it
    news = await region.read(lambda tx: waiting.news(tx, 6))
    assert news.cancelled
    assert list(await region.read(lambda tx: waiting.cancelled(tx, 10))) == [THREE]


async def test_of_two_wakers_one_succeeds(region: Database) -> None:
    for each in (ONE, TWO):
        await region.write(lambda tx, each=each: waiting.fall_asleep(tx, row(each)))  # type: ignore[misc]
    assert await region.write(lambda tx: waiting.wake(tx, {ONE: ME}, 6)) == [ONE]
    assert await region.write(lambda tx: waiting.wake(tx, {ONE: OTHER, TWO: OTHER}, 7)) == [TWO]
    assert await owner(region, ONE) == (ME, 2)
    assert await region.read(lambda tx: waiting.states(tx, [ONE, THREE])) == {ONE: State.WOKEN}
    await region.write(lambda tx: waiting.claimed(tx, ONE))
    await region.write(lambda tx: waiting.fall_asleep(tx, row(TWO)))
    found = await region.read(lambda tx: waiting.states(tx, [ONE, TWO]))
    assert found == {ONE: State.CLAIMED, TWO: State.ASLEEP}
    await region.write(lambda tx: waiting.forget(tx, ONE))
    assert await region.read(lambda tx: waiting.get(tx, ONE)) is None


async def test_waiting_rows_are_ordered_by_arrival(region: Database) -> None:
    rows = (row(ONE, 3), row(TWO, 1, rest_until=50), row(THREE, 2, kind="other", project="q", causes=("hosts",)))
    for each in rows:
        await region.write(lambda tx, each=each: waiting.fall_asleep(tx, each))  # type: ignore[misc]

    async def line(now: int, kinds: set[str] | None = None, after: tuple[int, str] = START) -> list[str]:
        return [each.operation for each in await region.read(lambda tx: waiting.line(tx, kinds, now, after, 10))]

    assert await line(10) == [THREE, ONE]
    assert await line(50) == [TWO, THREE, ONE]
    assert await line(50, {"k"}) == [TWO, ONE]
    assert await line(50, None, (2, THREE)) == [ONE]
    assert await region.read(lambda tx: waiting.resting_until(tx, {"k", "none"})) == {"k": 0}
    assert await region.read(lambda tx: waiting.counts_of_earlier(tx, "k", 2)) == {"not enough memory": 2}
    assert await region.read(lambda tx: waiting.counts_of_earlier(tx, "k", 1)) is None
    assert await region.read(lambda tx: waiting.counted(tx)) == 3
    assert await region.read(lambda tx: waiting.counted(tx, "q")) == 1
    counts = await region.read(waiting.by_cause)
    assert {name: each.servers for name, each in counts.items()} == {"addresses": 2, "hosts": 1, "memory": 2}
    listed = await region.read(lambda tx: waiting.listed(tx, cause="memory"))
    assert [each.operation for each in listed] == [TWO, ONE]
    await region.write(lambda tx: waiting.note_causes(tx, "k", ("vcpu",), {"not enough vCPUs": 1}))
    found = await region.read(lambda tx: waiting.get(tx, ONE))
    assert found is not None
    assert (found.causes, found.counts) == (("vcpu",), {"not enough vCPUs": 1})


async def test_events_wake_waiting_rows(region: Database) -> None:
    async def news(now: int) -> waiting.News:
        return await region.read(lambda tx: waiting.news(tx, now))

    assert await news(1000) == waiting.News(new=False, due=False, cancelled=False)
    await region.write(lambda tx: waiting.fall_asleep(tx, row(ONE)))
    assert await news(99) == waiting.News(new=True, due=False, cancelled=False)
    assert list(await region.read(lambda tx: waiting.kinds(tx, new=True))) == ["k"]
    await region.write(lambda tx: waiting.were_searched(tx, ["k"]))
    assert await news(100) == waiting.News(new=False, due=True, cancelled=False)
    assert list(await region.read(lambda tx: waiting.due(tx, 100, 5))) == [ONE]
    assert list(await region.read(waiting.kinds)) == ["k"]
    await region.write(lambda tx: waiting.wake(tx, {ONE: ME}, 100))
    assert await news(100) == waiting.News(new=False, due=False, cancelled=False)


async def test_a_row_of_an_ended_operation_is_removed(region: Database) -> None:
    """As after a restore that ended the operation."""
    await region.write(lambda tx: waiting.fall_asleep(tx, row(ONE)))
    ended = sa.update(operations.operations).values(ended_at=1)
    await region.write(lambda tx: tx.run(ended.where(operations.operations.c.id == ONE)))
    await region.write(lambda tx: waiting.fall_asleep(tx, row(TWO)))
    assert await region.write(lambda tx: waiting.wake(tx, {ONE: ME, TWO: ME}, 6)) == [TWO]
    assert [each.operation for each in await region.read(waiting.listed)] == [TWO]
