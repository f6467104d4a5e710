"""Copies of records and hosts in the region: overwritten, read by cell, removed with their servers."""

import msgspec
from tests.store.test_hidden_records import ID, OTHER, SERVER, A, B, move

from moorage.model.host import Host
from moorage.model.ids import HostId
from moorage.model.record_copy import ServerCopy
from moorage.sql import Database
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell.tables import cell_metadata
from moorage.store.region import record_copies
from moorage.store.region import servers as region_servers
from moorage.store.region.tables import region_metadata

HOST = Host(number=1, id=HostId("provider1"), service="service1", host="host1", node="host1", cell=A, seen_at=7)
COPY = ServerCopy(SERVER, (move(1),))


async def test_a_copy_is_from_the_servers_last_cell(database: Database) -> None:
    await database.create(region_metadata)
    await database.write(lambda tx: record_copies.put(tx, A, [COPY], 5))
    assert await database.read(lambda tx: record_copies.generations(tx, A, [ID, OTHER])) == {ID: SERVER.generation}
    (kept,) = await database.read(lambda tx: record_copies.of_cell(tx, A, [ID]))
    assert (kept.copy, kept.copied_at) == (COPY, 5)
    later = msgspec.structs.replace(SERVER, generation=9, cell=B)
    await database.write(lambda tx: record_copies.put(tx, B, [ServerCopy(later)], 6))
    assert await database.read(lambda tx: record_copies.of_cell(tx, A, [ID])) == []
    assert await database.read(lambda tx: record_copies.generations(tx, B, [ID])) == {ID: 9}


async def test_a_copy_is_removed_with_its_server(database: Database) -> None:
    await database.create(region_metadata)
    other = msgspec.structs.replace(SERVER, id=OTHER)
    await database.write(lambda tx: region_servers.insert(tx, [SERVER, other]))
    await database.write(lambda tx: record_copies.put(tx, A, [COPY, ServerCopy(other)], 5))
    assert await database.write(lambda tx: record_copies.forget_gone(tx, 10)) == 0
    await database.write(lambda tx: region_servers.mark_deleted(tx, ID, 1))
    assert await database.write(lambda tx: record_copies.forget_gone(tx, 10)) == 1
    assert set(await database.read(lambda tx: record_copies.generations(tx, A, [ID, OTHER]))) == {OTHER}


async def test_hosts_are_stored_by_cell_and_restored(database: Database) -> None:
    await database.create(region_metadata)
    await database.create(cell_metadata)
    other = msgspec.structs.replace(HOST, host="host2", id=HostId("provider2"), service="service2", disabled=True)
    await database.write(lambda tx: record_copies.put_hosts(tx, A, [HOST, other], ()))
    assert await database.read(lambda tx: record_copies.hosts_of(tx, A)) == [HOST, other]
    assert await database.read(lambda tx: record_copies.hosts_of(tx, B)) == []
    for each, there in ((HOST, False), (other, False), (other, True)):
        assert await database.write(lambda tx, each=each: cell_hosts.put_again(tx, each)) is not there  # type: ignore[misc]
    first, second = await database.read(cell_hosts.listed)
    assert (first.service, first.id, first.seen_at, first.agent) == ("service1", "provider1", 0, "")
    assert (second.disabled, second.host) == (True, "host2")
    await database.write(lambda tx: record_copies.put_hosts(tx, A, [], ["host2"]))
    assert await database.read(lambda tx: record_copies.hosts_of(tx, A)) == [HOST]
