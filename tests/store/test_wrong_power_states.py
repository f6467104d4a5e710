"""Servers whose guests are in a power state that their own state forbids: which are found, in pages, and by which index."""

from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from tests.store.test_server_rows import a_server

from moorage.conductor.reconcilers.power_states import FORBIDDEN
from moorage.model.guest import PowerState
from moorage.model.server import VmState
from moorage.sql import Database, Tx
from moorage.store.cell import server_queries
from moorage.store.cell.servers import servers
from moorage.store.cell.tables import cell_metadata
from moorage.store.servers import server_values


@pytest.fixture
async def cell(database: Database) -> Database:
    await database.create(cell_metadata)
    return database


async def keep(cell: Database, *rows: dict[str, Any]) -> None:
    await cell.write(lambda tx: tx.run(servers.insert(), list(rows)))


async def found(cell: Database, after: str = "", limit: int = 1000) -> list[str]:
    return [each.id for each in await cell.read(partial(server_queries.in_wrong_power_state, after=after, limit=limit))]


async def test_every_pair_of_states(cell: Database) -> None:
    """The query and the reconciler, which asks the host, agree."""
    rows, wrong = list[dict[str, Any]](), list[str]()
    for vm_state in VmState:
        for power_state in PowerState:
            server = a_server(len(rows), vm_state=vm_state, power_state=int(power_state))
            rows.append(server_values(server) | {"hidden": False})
            if power_state in FORBIDDEN.get(vm_state, ()):
                wrong.append(server.id)
    await keep(cell, *rows)
    assert await found(cell) == wrong
    assert await found(cell, limit=2) == wrong[:2]
    assert await found(cell, after=wrong[1]) == wrong[2:]


async def test_those_that_are_deleted_or_shown_by_another_cell(cell: Database) -> None:
    ended = {"vm_state": VmState.ACTIVE, "power_state": int(PowerState.SHUTDOWN)}
    await keep(
        cell,
        server_values(a_server(1, **ended, deleted_at=5)) | {"hidden": False},
        server_values(a_server(2, **ended)) | {"hidden": True},
    )
    assert await found(cell) == []


async def test_an_index_serves_the_question(cell: Database) -> None:
    """It has as many rows as there are such servers, however many servers there are."""
    fine = [a_server(n, vm_state=VmState.ACTIVE, power_state=int(PowerState.RUNNING)) for n in range(300)]
    await keep(cell, *(server_values(each) | {"hidden": False} for each in fine))

    def plan(tx: Tx) -> str:
        asked = server_queries._IN_WRONG_POWER_STATE.params(b_after="", b_limit=5)
        words = str(asked.compile(compile_kwargs={"literal_binds": True}))
        explain = "EXPLAIN QUERY PLAN" if tx.dialect == "sqlite" else "EXPLAIN"
        return "\n".join(str(tuple(row)) for row in tx.rows(sa.text(f"{explain} {words.replace(':', chr(92) + ':')}")))

    assert "servers_in_wrong_power_state" in await cell.read(plan)
