"""The common columns of servers: row ↔ record, filters, order and paging."""

import msgspec
import pytest
import sqlalchemy as sa

from moorage.model.errors import Invalid
from moorage.model.ids import FlavorId, NetworkId, OperationId, ServerId
from moorage.model.server import Address, FlavorCopy, Nic, Server, TaskState, VmState
from moorage.sql.engine import Database
from moorage.store import server_lists
from moorage.store.server_lists import ServerQuery, SortKey, count_servers, in_order, list_servers, sort_values
from moorage.store.servers import (
    charged_to_projects,
    find_server,
    replace_server,
    server_columns,
    server_indexes,
    server_values,
)

METADATA = sa.MetaData()
SERVERS = sa.Table("servers", METADATA, *server_columns(), *server_indexes("servers"))


def a_server(n: int, **changes: object) -> Server:
    plain = Server(
        id=ServerId(f"00000000-0000-4000-8000-{n:012d}"),
        project="p1",
        user="u1",
        name=f"web{n}",
        hostname=f"web{n}",
        created_at=1_000_000 + n,
        flavor=FlavorCopy(FlavorId("1"), "m1.tiny", 1, 512, 1),
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.fixture(autouse=True)
async def tables(database: Database) -> None:
    await database.create(METADATA)


async def keep(database: Database, *servers: Server) -> None:
    await database.write(lambda tx: tx.run(SERVERS.insert(), [server_values(each) for each in servers]))


async def names(database: Database, **query: object) -> list[str]:
    asked = ServerQuery(**query)  # type: ignore[arg-type]
    found = await database.read(lambda tx: list_servers(tx, SERVERS, asked))
    counted = await database.read(lambda tx: count_servers(tx, SERVERS, asked))
    if asked.limit is None and asked.after is None:
        assert counted == len(found)
    return [row.server.name for row in found]


async def test_a_record_is_read_as_written(database: Database) -> None:
    nic = Nic(0, NetworkId("n"), "net", addresses=(Address("s", "10.0.0.5"), Address("s6", "fd00::5", 6)))
    server = a_server(1, nics=(nic,), tags=("a",), metadata={"k": "v"}, vm_state=VmState.ACTIVE, task_state=None)
    await keep(database, server)
    assert await database.read(lambda tx: find_server(tx, SERVERS, server.id)) == server
    assert await database.read(lambda tx: find_server(tx, SERVERS, "nobody")) is None


async def test_the_rows_fence_replaces_the_documents(database: Database) -> None:
    await keep(database, a_server(1))
    fence = SERVERS.update().values(operation="op", op_epoch=3, power_state=4)
    await database.write(lambda tx: tx.run(fence))
    found = await database.read(lambda tx: find_server(tx, SERVERS, a_server(1).id))
    assert found is not None
    assert (found.operation, found.op_epoch, found.power_state) == ("op", 3, 4)


async def test_a_write_with_an_old_generation_is_refused(database: Database) -> None:
    await keep(database, a_server(1, operation=OperationId("op")))
    renamed = msgspec.structs.replace(a_server(1), name="new")
    after = await database.write(lambda tx: replace_server(tx, SERVERS, renamed, generation=0))
    assert after is not None
    assert (after.name, after.generation, after.operation) == ("new", 1, "op")
    assert await database.write(lambda tx: replace_server(tx, SERVERS, renamed, generation=0)) is None


async def test_filters(database: Database) -> None:
    nic = Nic(0, NetworkId("n"), "net", addresses=(Address("s", "10.0.0.5"), Address("s", "10.0.1.15")))
    await keep(
        database,
        a_server(1, tags=("red", "blue"), vm_state=VmState.ACTIVE, task_state=None, nics=(nic,)),
        a_server(2, tags=("red",), project="p2", host="h1", updated_at=5_000_000),
        a_server(3, deleted_at=9, vm_state=VmState.DELETED, locked=True, description="the third"),
        a_server(4, vm_state=VmState.SOFT_DELETED, task_state=TaskState.DELETING),
    )
    assert await names(database) == ["web2", "web1"]
    assert await names(database, deleted=None) == ["web4", "web3", "web2", "web1"]
    assert await names(database, deleted=True) == ["web4", "web3"]
    assert await names(database, deleted=True, soft_deleted=False) == ["web3"]
    assert await names(database, soft_deleted=True) == ["web4", "web2", "web1"]
    assert await names(database, project="p2") == ["web2"]
    assert await names(database, host="h1") == ["web2"]
    assert await names(database, vm_states=("active",)) == ["web1"]
    assert await names(database, task_states=("deleting",), soft_deleted=True) == ["web4"]
    assert await names(database, tags=("red",)) == ["web2", "web1"]
    assert await names(database, tags=("red", "blue")) == ["web1"]
    assert await names(database, tags=("re",)) == []
    assert await names(database, tags_any=("blue", "green")) == ["web1"]
    assert await names(database, not_tags=("red", "blue")) == ["web2"]
    assert await names(database, not_tags_any=("blue",)) == ["web2"]
    assert await names(database, changes_since=2_000_000) == ["web2"]
    assert await names(database, changes_before=2_000_000) == ["web1"]
    assert await names(database, locked=True, deleted=None) == ["web3"]
    assert await names(database, between=(("created_at", 1_000_001, 1_000_002),)) == ["web1"]
    assert await names(database, ids=(a_server(2).id,)) == ["web2"]
    assert await names(database, matches=(("description", "thi"),), deleted=None) == ["web3"]
    assert await names(database, matches=(("name", "^web1$"),)) == ["web1"]
    assert await names(database, matches=(("name", "b[12]"),)) == ["web2", "web1"]
    assert await names(database, ip="^10.0.0") == ["web1"]
    assert await names(database, ip=r"\.15$") == ["web1"]
    assert await names(database, ip="^0") == []
    assert await names(database, ip6="10") == []


REFUSED = ("[", "a" * 300, r"^(a*)(a*)\1\2!$", "(?=a)b", "(?:(?:a{1,10}){1,10}){1,10}", "a{1001}", "\ud800")


@pytest.mark.parametrize("pattern", REFUSED)
async def test_an_unbounded_pattern_is_refused(database: Database, pattern: str) -> None:
    with pytest.raises(Invalid):
        await names(database, matches=(("name", pattern),))


FOUND = {
    "web": ["web\\d", "web-9", "web1"],
    "^web": ["web\\d", "web-9", "web1"],
    "^web1$": ["web1"],
    r"^web\-9$": ["web-9"],
    r"web\d": ["web1"],
    r"web\\d": ["web\\d"],
    r"\(1\)": ["Web(1)"],
    "(?i)^WEB": ["Web(1)", "web\\d", "web-9", "web1"],
    "^(a|a)*$": [],
    "(a+)+$": [],
    "^(a+)+!$": ["a" * 100 + "!"],
    r"^\w+$": ["web1"],
    "[[:digit:]]$": ["web-9", "web1"],
    "^.e": ["Web(1)", "web\\d", "web-9", "web1"],
    "é|ß": ["straße"],
    "_": [],
    "%": [],
}


@pytest.mark.parametrize("pattern", FOUND)
async def test_both_databases_find_the_same(database: Database, pattern: str) -> None:
    texts = ("web1", "web-9", "web\\d", "Web(1)", "a" * 100 + "!", "straße")
    await keep(database, *(a_server(n, name=text) for n, text in enumerate(texts)))
    found = await names(database, matches=(("name", pattern),))
    assert found == FOUND[pattern]


async def test_a_search_continues_after_a_page_without_matches(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_lists, "SEARCHED_AT_ONCE", 4)
    nic = Nic(0, NetworkId("n"), "net", addresses=(Address("s", "10.0.0.5"), Address("s", "10.0.1.15")))
    await keep(database, *(a_server(n, nics=(nic,) if n in {0, 9} else ()) for n in range(19)))
    assert await names(database, matches=(("name", "web1?[07]$"),)) == ["web17", "web10", "web7", "web0"]
    assert await names(database, matches=(("name", "web1?[07]$"),), limit=2) == ["web17", "web10"]
    page = ServerQuery(matches=(("name", "web1?[07]$"),), limit=3)
    first = await database.read(lambda tx: list_servers(tx, SERVERS, page))
    rest = msgspec.structs.replace(page, after=first[-1].key)
    assert [row.server.name for row in await database.read(lambda tx: list_servers(tx, SERVERS, rest))] == ["web0"]
    assert await names(database, ip=r"^10\.0\.1\.") == ["web9", "web0"]
    assert await names(database, ip=r"^10\.0\.0\.5\n") == []
    monkeypatch.setattr(server_lists, "SEARCHED_MAX", 8)
    with pytest.raises(Invalid, match="more than 8 servers"):
        await names(database, matches=(("name", "no.ne"),))


SORTS: list[tuple[SortKey, ...]] = [
    (("created_at", "desc"), ("id", "desc")),
    (("host", "asc"), ("id", "asc")),
    (("launch_index", "desc"), ("name", "asc"), ("id", "desc")),
    (("description", "asc"), ("launched_at", "desc"), ("id", "asc")),
    (("locked", "desc"), ("config_drive", "asc"), ("id", "asc")),
]


@pytest.mark.parametrize("sort", SORTS)
async def test_pages_have_the_order_that_python_gives(database: Database, sort: tuple[SortKey, ...]) -> None:
    servers = [
        a_server(
            n,
            host=[None, "b", "B"][n % 3],
            launch_index=n % 4,
            description=[None, "x", "é", "Z"][n % 4],
            launched_at=[None, 7][n % 2],
            locked=n % 2 == 0,
            config_drive=n % 5 == 0,
        )
        for n in range(20)
    ]
    await keep(database, *servers)
    whole = await database.read(lambda tx: list_servers(tx, SERVERS, ServerQuery(sort=sort)))
    assert [row.id for row in in_order(whole[::-1], sort)] == [row.id for row in whole]
    assert [row.key for row in whole] == [sort_values(row.server, sort) for row in whole]
    walked: list[str] = []
    after = None
    while True:
        asked = ServerQuery(sort=sort, after=after, limit=7)
        page = await database.read(lambda tx, asked=asked: list_servers(tx, SERVERS, asked))
        walked += [row.id for row in page]
        if len(page) < 7:
            break
        after = page[-1].key
    assert walked == [row.id for row in whole]
    assert len(walked) == 20


async def test_quota_used_by_living_servers(database: Database) -> None:
    big = FlavorCopy(FlavorId("2"), "big", 4, 2048, 1)
    await keep(
        database,
        a_server(1),
        a_server(2, flavor=big),
        a_server(3, flavor=big, deleted_at=5),
        a_server(4, project="p2"),
    )
    assert await database.read(lambda tx: charged_to_projects(tx, SERVERS)) == {
        "p1": {"instances": 2, "cores": 5, "ram": 2560},
        "p2": {"instances": 1, "cores": 1, "ram": 512},
    }
    only = SERVERS.c.project == "p2"
    assert list(await database.read(lambda tx: charged_to_projects(tx, SERVERS, only))) == ["p2"]


async def test_states_observed_by_a_host_are_not_overwritten(database: Database) -> None:
    """A guest went off between the reading of a record and the writing of its new name."""
    read = a_server(1, power_state=1)
    await keep(database, read)
    await database.write(lambda tx: tx.run(SERVERS.update().values(power_state=4)))
    renamed = msgspec.structs.replace(read, name="renamed")
    written = await database.write(lambda tx: replace_server(tx, SERVERS, renamed, generation=read.generation))
    assert written is not None
    assert (written.name, written.power_state) == ("renamed", 4)
    found = await database.read(lambda tx: find_server(tx, SERVERS, read.id))
    assert found is not None
    assert found.power_state == 4
