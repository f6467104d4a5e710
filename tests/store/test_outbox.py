"""The outbox, on both databases: rows are in order, are removed when sent, and the oldest are dropped when there are too many."""

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from moorage.model.ids import FlavorId, OperationId, ServerId
from moorage.model.notification import Notification
from moorage.model.server import FlavorCopy, Server
from moorage.sql import Database, Tx
from moorage.store.cell import notifications as of_cell
from moorage.store.cell import servers as cell_servers
from moorage.store.cell import usage_audits
from moorage.store.cell.tables import cell_metadata
from moorage.store.outbox import OutboxTable
from moorage.store.region import notifications as of_region
from moorage.store.region.tables import region_metadata

SERVER = Server(
    id=ServerId("s"), project="p", user="u", name="n", hostname="n", created_at=1, flavor=FlavorCopy(FlavorId("1"), "f", 1, 1, 1)
)  # fmt: skip


def a_notification(number: int) -> Notification:
    return Notification(id=f"op/{number}", event="update", at=number * 1_000_000, server=SERVER)


@pytest.fixture(params=["region", "cell"])
async def outbox(database: Database, request: Any) -> OutboxTable:
    await database.create(region_metadata if request.param == "region" else cell_metadata)
    return of_region.OUTBOX if request.param == "region" else of_cell.OUTBOX


def ids(outbox: OutboxTable, tx: Tx, limit: int = 100) -> list[str]:
    return [msgspec.json.decode(each.doc, type=Notification).id for each in outbox.first(tx, limit)]


async def test_rows_are_read_in_order_and_removed(database: Database, outbox: OutboxTable) -> None:
    await database.write(lambda tx: outbox.write(tx, [a_notification(1), a_notification(2)]))
    await database.write(lambda tx: outbox.write(tx, [a_notification(3)]))
    await database.write(lambda tx: outbox.write(tx, []))
    assert await database.read(lambda tx: ids(outbox, tx, 2)) == ["op/1", "op/2"]
    first = await database.read(lambda tx: outbox.first(tx, 2))
    assert [each.created_at for each in first] == [1_000_000, 2_000_000]
    await database.write(lambda tx: outbox.remove(tx, [each.number for each in first]))
    await database.write(lambda tx: outbox.remove(tx, [each.number for each in first]))
    assert await database.read(lambda tx: ids(outbox, tx)) == ["op/3"]


async def test_a_refused_transaction_leaves_no_notification(database: Database, outbox: OutboxTable) -> None:
    def refused(tx: Tx) -> None:
        outbox.write(tx, [a_notification(1)])
        tx.refuse(None)

    await database.write(refused)
    assert await database.read(outbox.count) == 0


async def test_the_oldest_rows_are_dropped(database: Database, outbox: OutboxTable) -> None:
    await database.write(lambda tx: outbox.write(tx, [a_notification(number) for number in range(10)]))

    def shorten(tx: Tx, before_us: int = 0, most: int = 100, limit: int = 100) -> int:
        return outbox.shorten(tx, before_us=before_us, most=most, limit=limit)

    assert await database.write(shorten) == 0
    assert await database.write(lambda tx: shorten(tx, before_us=2_000_000)) == 2
    assert await database.write(lambda tx: shorten(tx, most=5, limit=2)) == 2
    assert await database.write(lambda tx: shorten(tx, most=5)) == 1
    assert await database.read(lambda tx: ids(outbox, tx)) == [f"op/{number}" for number in range(5, 10)]


async def test_many_writers_and_one_remover(database: Database, outbox: OutboxTable) -> None:
    """Numbers may be given in another order than commits; every row is seen all the same."""
    seen: list[str] = []

    async def writes(who: int) -> None:
        for number in range(20):
            await database.write(lambda tx, n=who * 100 + number: outbox.write(tx, [a_notification(n)]))  # type: ignore[misc]

    async def reads() -> None:
        while len(seen) < 80:
            rows = await database.read(lambda tx: outbox.first(tx, 7))
            seen.extend(msgspec.json.decode(each.doc, type=Notification).id for each in rows)
            await database.write(partial(outbox.remove, numbers=[each.number for each in rows]))

    async with asyncio.timeout(180):
        await asyncio.gather(reads(), *(writes(who) for who in range(4)))
    assert sorted(seen) == sorted(f"op/{who * 100 + number}" for who in range(4) for number in range(20))
    for who in range(4):
        mine = [each for each in seen if int(each[3:]) // 100 == who]
        assert mine == sorted(mine, key=lambda each: int(each[3:])), "what follows one another is sent in that order"


async def test_the_progress_of_a_usage_audit(database: Database) -> None:
    await database.create(cell_metadata)
    fence = cell_servers.Fence(OperationId("o"), 1, 1, 1)

    def several(tx: Tx) -> None:
        for name, launched, terminated in (
            ("a", 5, None),
            ("b", 5, 9),
            ("c", 5, 15),
            ("d", 25, None),
            ("e", None, None),
        ):
            server = msgspec.structs.replace(
                SERVER, id=ServerId(name), launched_at=launched, terminated_at=terminated, host="h"
            )
            cell_servers.record(tx, server, fence)

    await database.write(several)

    def page(tx: Tx, after: str, limit: int = 10) -> list[str]:
        return [each.id for each in usage_audits.page(tx, 10, 20, ServerId(after), limit)]

    assert await database.read(lambda tx: page(tx, "")) == ["a", "c"]
    assert await database.read(lambda tx: page(tx, "", 1)) == ["a"]
    assert await database.read(lambda tx: page(tx, "a")) == ["c"]
    for a_notification in (
        usage_audits.UsageAuditKey(ServerId("a"), 1),
        usage_audits.UsageAuditKey(ServerId("c"), 2, finished=True),
    ):
        await database.write(lambda tx, at=a_notification: usage_audits.put(tx, 10, 20, at, 30))  # type: ignore[misc]
        assert await database.read(lambda tx: usage_audits.place(tx, 10, 20)) == a_notification
    await database.write(lambda tx: usage_audits.forget(tx, 21))
    assert await database.read(lambda tx: usage_audits.place(tx, 10, 20)) == usage_audits.UsageAuditKey()
