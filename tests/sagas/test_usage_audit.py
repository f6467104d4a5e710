"""The reconciler that sends the usage audit notifications of each hour."""

from typing import Any, cast

import msgspec
from tests.helpers.reconciled_region import BOOT, a_cell_that_is_out, small

from moorage.conductor.reconcilers.usage_audit import PAGE_MAX, UsageAudit, UsageAuditDone
from moorage.model.ids import CellId, ServerId
from moorage.model.notification import Notification
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.notifications import OUTBOX as CELL_OUTBOX
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SERVER, SmallRegion, a_server

__all__ = ["small"]


# ---------------------------------------------------------------------------------------------------- usage audit


HOUR_US = 3_600_000_000


def audit(small: SmallRegion, at_us: int) -> UsageAudit:
    clock = cast("Any", ManualClock())
    clock.now = lambda: at_us / 1_000_000
    return UsageAudit(small.cells, "hour", clock)


async def audit_notifications(small: SmallRegion) -> list[tuple[str, tuple[int, int] | None]]:
    kept = [
        each
        for database in small.cells.values()
        for each in await database.read(lambda tx: CELL_OUTBOX.first(tx, 1000))
    ]
    answer = [msgspec.json.decode(each.doc, type=Notification) for each in kept]
    assert {each.event for each in answer} <= {"exists"}
    return sorted((each.server.id, each.period) for each in answer)


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
    assert await audit_notifications(small) == []
    later = audit(small, hour + HOUR_US)
    assert await later.run() == UsageAuditDone(1)
    assert await later.run() == UsageAuditDone(0)
    assert await audit(small, hour + HOUR_US).run() == UsageAuditDone(0), "another conductor finds it told"
    assert await audit_notifications(small) == [(SERVER, (hour, hour + HOUR_US))]


async def test_a_usage_audit_of_an_unreachable_cell_is_sent_when_it_answers(small: SmallRegion) -> None:
    hour = await the_hour(small)
    later = audit(small, hour + HOUR_US)
    later._cells = {CellId("out"): a_cell_that_is_out(), **small.cells}
    assert await later.run() == UsageAuditDone(1, ("out",))
    later._cells = small.cells
    assert await later.run() == UsageAuditDone()
    assert await audit_notifications(small) == [(SERVER, (hour, hour + HOUR_US))]


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
    notifications = [server for server, _ in await audit_notifications(small)]
    assert len(notifications) == len(set(notifications))
    assert "many-0000" not in notifications
    assert {"many-0001", "many-0204", SERVER} <= set(notifications)
