"""Operations of a region are counted by saga and state, and waiting rows with their age."""

import pytest

from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.model.operation import Accepted, OperationStatus
from moorage.sql import Database, Tx
from moorage.store.region import counts, notifications, operations
from moorage.store.region.counts import Backlog, OpenOperations
from moorage.store.region.inbox import inbox
from moorage.store.region.tables import region_metadata


def an_operation(name: str, saga: str, *, at: int, after: str | None = None) -> Accepted:
    return Accepted(
        id=OperationId(name), saga=saga, server=ServerId("s"), project="p", user="u", owner=ConductorId("c"),
        asked=b"{}", journal=b"", head=1, created_at=at, after=None if after is None else OperationId(after),
    )  # fmt: skip


def standing(tx: Tx, name: str, status: OperationStatus, waiting: str | None = None) -> None:
    write = operations.JournalWrite(
        epoch=1, head=1, after=2, more=b"", spill=False, status=status, ended=status is OperationStatus.DONE, waiting=waiting
    )  # fmt: skip
    assert operations.append(tx, OperationId(name), write)[0]


async def test_operations_are_counted_by_saga_and_state(database: Database) -> None:
    await database.create(region_metadata)

    def fill(tx: Tx) -> None:
        boots = [an_operation(f"boot{number}", "boot/1", at=100 + number) for number in range(6)]
        operations.accept(tx, [*boots, an_operation("delete", "delete/2", at=50, after="boot0")])
        standing(tx, "boot1", OperationStatus.OPEN, "waiting for the network service")
        standing(tx, "boot2", OperationStatus.CLEANING, "the same")
        standing(tx, "boot3", OperationStatus.STUCK)
        standing(tx, "boot4", OperationStatus.DONE)

    await database.write(fill)
    assert set(await database.read(counts.open_operations)) == {
        OpenOperations("boot/1", "running", 2, 100),
        OpenOperations("boot/1", "waiting", 1, 101),
        OpenOperations("boot/1", "cleaning", 1, 102),
        OpenOperations("boot/1", "stuck", 1, 103),
        OpenOperations("delete/2", "queued", 1, 50),
    }


async def test_waiting_rows_are_counted_with_their_age(database: Database) -> None:
    await database.create(region_metadata)

    def backlogs(tx: Tx) -> tuple[Backlog, Backlog]:
        return counts.inbox_backlog(tx), counts.outbox_backlog(tx, notifications.OUTBOX)

    assert await database.read(backlogs) == (Backlog(0, None), Backlog(0, None))

    def fill(tx: Tx) -> None:
        rows = [{"server": "s", "name": "e", "tag": str(at), "status": "", "seen_at": at} for at in (7, 5, 6)]
        tx.run(inbox.insert(), rows)
        tx.run(notifications.OUTBOX.table.insert(), [{"created_at": at, "doc": "{}"} for at in (9, 8)])

    await database.write(fill)
    assert await database.read(backlogs) == (Backlog(3, 5), Backlog(2, 8))


async def test_the_count_of_a_long_backlog_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await database.create(region_metadata)
    rows = [{"created_at": at, "doc": "{}"} for at in range(20)]
    await database.write(lambda tx: tx.run(notifications.OUTBOX.table.insert(), rows))
    monkeypatch.setattr(counts, "COUNTED_MAX", 11)
    found = await database.read(lambda tx: counts.outbox_backlog(tx, notifications.OUTBOX))
    assert found.count == 11
