"""What hosts owe, on every kind of database."""

import msgspec

from moorage.model.debt import Debt, DebtKind
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.sql import Database, Tx
from moorage.store.region import debts
from moorage.store.region import servers as region_servers
from moorage.store.region.tables import region_metadata
from moorage_testing.region_fixture import SERVER, a_server

DEBT = Debt(
    SERVER, OperationId("o"), DebtKind.UNPLUG_VOLUME, "v1", CellId("c"), "h1", FencingToken(1), "it was silent", since=7
)


async def test_debts_are_written_once_counted_and_ended_once(database: Database) -> None:
    await database.create(region_metadata)
    other = msgspec.structs.replace(DEBT, thing="v2", host="h2", since=3)

    def write(tx: Tx) -> None:
        region_servers.insert(tx, [a_server()])
        for each in (DEBT, DEBT, other):
            debts.owe(tx, each)

    await database.write(write)
    found = await database.read(lambda tx: region_servers.find(tx, SERVER))
    assert found is not None
    assert found.debts == 2
    assert [each.thing for each in await database.read(debts.page)] == ["v1", "v2"]
    assert [each.thing for each in await database.read(lambda tx: debts.page(tx, host="h2"))] == ["v2"]
    behind = await database.read(lambda tx: debts.page(tx, after=(SERVER, "unplug_volume", "v1")))
    assert [each.thing for each in behind] == ["v2"]
    assert [each.host for each in await database.read(debts.by_host)] == ["h2", "h1"]
    assert await database.read(lambda tx: debts.is_owed(tx, SERVER, DebtKind.UNPLUG_VOLUME, "v1"))
    await database.write(lambda tx: debts.put_off(tx, [DEBT], 50))
    assert [each.thing for each in await database.read(lambda tx: debts.due(tx, 20))] == ["v2"]
    await database.write(lambda tx: debts.note_failed(tx, msgspec.structs.replace(other, next_at=60, answered_at=9)))
    assert await database.read(lambda tx: debts.due(tx, 20)) == []
    assert await database.read(lambda tx: debts.is_any_unanswered(tx, SERVER))
    assert await database.write(lambda tx: debts.end(tx, DEBT))
    assert not await database.write(lambda tx: debts.end(tx, DEBT))
    assert not await database.read(lambda tx: debts.is_any_unanswered(tx, SERVER))
    await database.write(lambda tx: debts.end_all_of(tx, ServerId(SERVER)))
    found = await database.read(lambda tx: region_servers.find(tx, SERVER))
    assert found is not None
    assert found.debts == 0
    assert (await database.read(debts.counted)).debts == 0


async def test_a_server_that_is_owed_something_is_not_taken(database: Database) -> None:
    await database.create(region_metadata)
    await database.write(lambda tx: region_servers.insert(tx, [a_server()]))
    await database.write(lambda tx: debts.owe(tx, DEBT))
    taken = await database.write(lambda tx: region_servers.take(tx, SERVER, OperationId("new"), None))
    assert taken is not None
    assert (taken.owed, taken.holder) == (True, None)
    pays = await database.write(lambda tx: region_servers.take(tx, SERVER, OperationId("p"), None, though_owed=True))
    assert pays is not None
    assert (pays.owed, pays.holder) == (False, None)
    held = await database.write(lambda tx: region_servers.take(tx, SERVER, OperationId("new"), None))
    assert held is not None
    assert (held.owed, held.holder) == (False, "p")
