"""Old rows are purged as fast as new ones are made: the clock is advanced, and no table grows."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.conductor.reconcilers.purge import (
    DELETED_SERVERS_KEPT_US,
    EVENTS_KEPT_US,
    HIDDEN_KEPT_US,
    OPERATIONS_KEPT_US,
    Tidy,
)
from moorage.main.reconcilers import TIDY_EVERY_S
from moorage.model.action import Action
from moorage.model.ids import OperationId, ServerId
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.cell import servers as cell_servers
from moorage.store.region import hidden_records, inbox, operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.claim_statements import INSTANCE, MIGRATION
from moorage.store.region.placement.tables import consumers
from moorage_testing.region_fixture import SERVER, SmallRegion, a_server

PER_S = 50
A_ROUND = int(PER_S * TIDY_EVERY_S)
NOW_S = 2_000_000_000.0
SECOND_US = 1_000_000


class Moved:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.time = NOW_S

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), OperationId("x"))
    yield region
    await region.close()


def ended(number: int, at_us: int) -> dict[str, Any]:
    return {
        "id": f"operation-{number}", "saga": "boot/1", "server": "s", "project": "p", "user": "u", "owner": "me",
        "status": "done", "epoch": 1, "head": 1, "seq": 1, "request_id": "r", "created_at": at_us, "updated_at": at_us,
        "ended_at": at_us, "asked": "{}", "journal": "",
    }  # fmt: skip


async def count(small: SmallRegion, table: sa.Table) -> int:
    return int(await small.region.read(lambda tx: tx.scalar(sa.select(sa.func.count()).select_from(table))))


async def test_purging_keeps_pace_with_fifty_operations_a_second(small: SmallRegion) -> None:
    clock = Moved()
    first_us = int(NOW_S * SECOND_US) - OPERATIONS_KEPT_US - int(TIDY_EVERY_S) * SECOND_US
    rows = [ended(number, first_us + number * SECOND_US // PER_S) for number in range(3 * A_ROUND)]
    await small.region.write(lambda tx: tx.run(operations.operations.insert(), rows))
    tidy = Tidy(small.context, clock)
    for left in (2 * A_ROUND, A_ROUND, 0):  # each round what came of age since the last
        done = await tidy.run()
        assert abs(await count(small, operations.operations) - left) <= 1
        assert abs(done.operations - A_ROUND) <= 1
        clock.time += TIDY_EVERY_S


async def test_the_operation_of_a_move_with_a_claim_is_kept(small: SmallRegion) -> None:
    """It says whose the claim is, where no cell has the move's record (`stray_claims`)."""
    long_ago = int(NOW_S * SECOND_US) - OPERATIONS_KEPT_US - 1
    rows = [ended(number, long_ago) for number in range(3)]
    of_move = {"uuid": "a-move", "generation": 1, "project": "p", "user_id": "u", "type": MIGRATION}
    of_server = of_move | {"uuid": "a-server", "type": INSTANCE}

    def held(tx: Tx) -> None:
        tx.run(operations.operations.insert(), rows)
        tx.run(consumers.insert(), [of_move | {"operation": rows[1]["id"]}, of_server | {"operation": rows[2]["id"]}])

    await small.region.write(held)
    tidy = Tidy(small.context, Moved())
    assert (await tidy.run()).operations == 2
    assert await small.region.read(lambda tx: operations.get(tx, OperationId("operation-1"))) is not None
    await small.region.write(lambda tx: tx.run(consumers.delete().where(consumers.c.uuid == "a-move")))
    assert (await tidy.run()).operations == 1


async def test_purging_keeps_pace_with_deleted_servers_and_events(small: SmallRegion) -> None:
    many = 3_500
    servers = [a_server(id=ServerId(f"server-{number}")) for number in range(many)]
    long_ago = int(NOW_S * SECOND_US) - DELETED_SERVERS_KEPT_US - 1
    fence = cell_servers.Fence(OperationId("boot"), 1, 1, 1)

    def in_region(tx: Tx) -> None:
        region_servers.insert(tx, servers)
        tx.run(region_servers.servers.update().values(operation=None, deleted_at=long_ago))
        event = {
            "name": "network-changed",
            "status": "completed",
            "seen_at": int(NOW_S * SECOND_US) - EVENTS_KEPT_US - 1,
        }
        tx.run(inbox.inbox.insert(), [{"server": each.id, "tag": "t", **event} for each in servers])

    def in_cell(tx: Tx) -> None:
        for each in servers:
            cell_servers.record(tx, each, fence)
        tx.run(cell_servers.servers.update().values(deleted_at=long_ago))
        cell_servers.remove(tx, servers[0].id, fence)

    await small.region.write(in_region)
    await next(iter(small.cells.values())).write(in_cell)
    done = await Tidy(small.context, Moved()).run()
    assert (done.events, done.servers) == (many, many - 1)
    assert await count(small, inbox.inbox) == 0
    assert await count(small, region_servers.servers) == 0
    for cell in small.cells.values():
        assert await cell.read(lambda tx: tx.rows(sa.select(cell_servers.fences))) == []


async def test_a_server_that_lives_long_keeps_its_last_thousand_actions(small: SmallRegion) -> None:
    cell = next(iter(small.cells.values()))

    def rebooted(tx: Tx) -> None:
        for number in range(actions.PAGE_MAX + 20):
            actions.write(tx, Action(SERVER, "reboot", f"req-{number}", "u", "p", started_at=number, updated_at=number))

    await cell.write(rebooted)
    before = await cell.read(lambda tx: actions.of_server(tx, SERVER))
    assert (await Tidy(small.context, Moved()).run()).actions == 20
    assert await cell.read(lambda tx: actions.of_server(tx, SERVER)) == before
    left = await cell.read(lambda tx: tx.scalar(sa.select(sa.func.count()).select_from(actions.actions)))
    assert left == actions.PAGE_MAX


async def test_rows_of_hidden_records_are_kept_for_an_hour(small: SmallRegion) -> None:
    now, cell = int(NOW_S * SECOND_US), next(iter(small.cells))
    ends = {"open": None, "lately": now - HIDDEN_KEPT_US, "long ago": now - HIDDEN_KEPT_US - 1}

    def plant(tx: Tx) -> None:
        for server, end in ends.items():
            hidden_records.open_row(tx, ServerId(server), cell)
            if end is not None:
                hidden_records.end_row(tx, ServerId(server), cell, end)

    await small.region.write(plant)
    await Tidy(small.context, Moved()).run()
    left = await small.region.read(lambda tx: hidden_records.open_or_ended_since(tx, 0))
    assert {row.server for row in left} == {"open", "lately"}
