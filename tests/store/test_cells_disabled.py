"""Settings of a whole cell: for its present hosts, for later ones, and until the cell is deleted."""

import asyncio

import pytest
import sqlalchemy as sa

from moorage.model.errors import Conflict, NotFound
from moorage.model.ids import CellId, ProviderId
from moorage.model.resources import Inventory
from moorage.operations.records import cells as nouns
from moorage.placement.inventory import HostInventory, host_id, report_host
from moorage.sql import Database, Tx
from moorage.store.region import hidden_records, identity
from moorage.store.region.identity import KnownCell
from moorage.store.region.placement import cells, placement_metadata, provider_statements
from moorage.store.region.placement.tables import hosts, stamp
from moorage.store.region.servers import servers
from moorage.store.region.tables import region_metadata
from moorage.store.servers import server_values
from moorage_testing.fake_server_service import a_server

A, B = CellId("a"), CellId("b")


def provider(host: str) -> ProviderId:
    return ProviderId(host_id(host))


def report(host: str, cell: CellId, vcpus: int = 4) -> HostInventory:
    return HostInventory(host=host, cell=cell, inventories={"VCPU": Inventory(vcpus)})


def closed(tx: Tx) -> dict[str, bool]:
    return {row.host: bool(row.cell_disabled) for row in tx.rows(sa.select(hosts.c.host, hosts.c.cell_disabled))}


async def say(database: Database, cell: CellId, *, disabled: bool) -> None:
    await nouns.set_disabled(database, cell, 5, disabled=disabled, reason="old", by="u", configured=True)


async def test_disabling_a_cell_stamps_its_hosts_and_new_hosts_are_disabled(database: Database) -> None:
    await database.create(region_metadata)
    await database.create(placement_metadata)
    await database.write(lambda tx: [report_host(tx, report(name, cell)) for name, cell in (("a1", A), ("b1", B))])
    before = await database.read(lambda tx: provider_statements.lock(tx, [provider("a1"), provider("b1")]))
    await say(database, A, disabled=True)
    after = await database.read(lambda tx: provider_statements.lock(tx, [provider("a1"), provider("b1")]))
    assert after[provider("a1")] > before[provider("a1")]
    assert after[provider("b1")] == before[provider("b1")]
    said = (await database.read(cells.every))[A]
    assert (said.disabled, said.reason, said.said_by, said.said_at) == (True, "old", "u", 5)

    await database.write(lambda tx: report_host(tx, report("a2", A)))
    await database.write(
        lambda tx: report_host(tx, report("a1", A, vcpus=8))
    )  # what it reports changes nothing of that
    assert await database.read(closed) == {"a1": True, "a2": True, "b1": False}
    await database.write(lambda tx: report_host(tx, report("a2", B)))
    assert (await database.read(closed))["a2"] is False, "it went to another cell"
    await database.write(lambda tx: report_host(tx, report("a2", A)))
    await say(database, A, disabled=False)
    assert await database.read(closed) == {"a1": False, "a2": False, "b1": False}
    again = await database.read(lambda tx: provider_statements.lock(tx, [provider("b1")]))
    assert again[provider("b1")] == before[provider("b1")]


async def test_only_an_empty_cell_can_be_deleted_and_stays_deleted(database: Database) -> None:
    await database.create(region_metadata)
    await database.create(placement_metadata)
    with pytest.raises(NotFound):
        await nouns.set_disabled(database, B, 5, disabled=True, reason="", by="u", configured=False)
    with pytest.raises(NotFound):
        await nouns.delete(database, B, force=True)
    assert await database.read(cells.every) == {}

    await database.write(identity.make)
    await database.write(lambda tx: identity.remember(tx, {A: KnownCell("uuid", 7)}))
    await database.write(lambda tx: report_host(tx, report("a1", A)))
    row = {**server_values(a_server(1)), "op_seq": 1, "cell": A, "task": None, "doc": None, "operation": None}
    await database.write(lambda tx: tx.run(servers.insert().values(row)))
    (seen,) = await database.read(nouns.listed)
    assert (seen.cell, seen.uuid, seen.hosts, seen.servers, seen.deleted_servers) == (A, "uuid", 1, 1, 0)
    with pytest.raises(Conflict, match="has hosts: a1"):
        await nouns.delete(database, A, force=True)
    await database.write(lambda tx: provider_statements.delete_all(tx, [host_id("a1")], stamp(tx)))
    with pytest.raises(Conflict, match="has 1 servers"):
        await nouns.delete(database, A, force=True)
    await database.write(lambda tx: tx.run(servers.update().values(deleted_at=1)))
    await database.write(lambda tx: hidden_records.open_row(tx, a_server(1).id, A))
    with pytest.raises(Conflict, match="1 servers that were moved"):
        await nouns.delete(database, A, force=True)
    await database.write(lambda tx: hidden_records.end_row(tx, a_server(1).id, A, 1))
    with pytest.raises(Conflict, match="1 deleted servers"):
        await nouns.delete(database, A, force=False)
    await nouns.delete(database, A, force=True)
    assert await database.read(cells.every) == {}
    await database.write(lambda tx: identity.remind(tx, {A: KnownCell("uuid", 8)}))
    assert await database.read(identity.cells) == {}, "a process that still has it does not bring it back"


async def test_a_process_with_the_deleted_cell_still_raises_its_mark(database: Database) -> None:
    await database.create(region_metadata)
    await database.write(identity.make)
    await database.write(lambda tx: identity.remember(tx, {A: KnownCell("uuid", 7)}))
    for mark, known in ((9, KnownCell("uuid", 9)), (8, KnownCell("uuid", 9))):
        await database.write(lambda tx, mark=mark: identity.remind(tx, {A: KnownCell("uuid", mark)}))  # type: ignore[misc]
        assert await database.read(identity.cells) == {A: known}
    await database.write(lambda tx: identity.remind(tx, {A: KnownCell("another", 10)}))
    assert await database.read(identity.cells) == {A: KnownCell("uuid", 9)}


@pytest.mark.postgres
async def test_a_change_of_the_cell_waits_for_a_host_being_inserted(database: Database) -> None:
    """Whoever comes first: when the answer is there, no host of the cell takes servers."""
    if database.dialect != "postgresql":
        pytest.skip("one writer: there are no rivals")
    await database.create(region_metadata)
    await database.create(placement_metadata)
    loop, coming, order = asyncio.get_running_loop(), asyncio.Event(), list[str]()

    def come(tx: Tx) -> None:
        report_host(tx, report("late", A))
        loop.call_soon_threadsafe(coming.set)
        for _ in range(50):  # as long as the other has had time to be at the lock
            tx.scalar(sa.text("SELECT pg_sleep(0.01)"))
        order.append("came")

    async def disable() -> None:
        await coming.wait()
        await say(database, A, disabled=True)
        order.append("answered")

    await asyncio.gather(database.write(come), disable())
    assert order == ["came", "answered"]
    assert await database.read(closed) == {"late": True}


@pytest.mark.parametrize("name", ["nothing", "9" * 5_000, "a\nb"])
async def test_an_unknown_cell_is_not_found(database: Database, name: str) -> None:
    """Also one whose name no column holds."""
    await database.create(region_metadata)
    await database.create(placement_metadata)
    with pytest.raises(NotFound):
        await nouns.delete(database, CellId(name), force=False)
