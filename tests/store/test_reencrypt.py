"""Keys are exchanged and clear text of an earlier release is encrypted, in rows and journals, during concurrent writes."""

import json
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from moorage.main.region_key import know_key, new_key
from moorage.model.errors import Invalid
from moorage.model.guest import InjectedFile
from moorage.model.ids import ConductorId, OperationId
from moorage.operations.accept import accepted
from moorage.operations.encryption import BEGINS, Encryption
from moorage.operations.reencryption import OF_REGION, RewriteCounts, _exchange, reencrypt, walk
from moorage.operations.registry import SAGAS
from moorage.sql import Database, Tx
from moorage.store import encrypted_columns
from moorage.store.region import operations, region_keys, servers
from moorage.store.region.tables import region_metadata
from moorage_testing.region_fixture import a_boot, a_server

SCRIPT, FILE, OTHER = "Y2xlYXIgc2NyaXB0", "Y2xlYXIgZmlsZQ==", "bm90IGEgc2VjcmV0"
METADATA = {"user_data": OTHER, "sealed_password": OTHER, "contents": OTHER, "path": "a", "files": OTHER}


def of(*keys: str, **more: bool) -> Encryption:
    return Encryption(lambda: keys, **more)


@pytest.fixture
async def region(database: Database) -> Database:
    """As a release left it that kept all in clear: an order, and the operation that has it."""
    await database.create(region_metadata)
    server = a_server(user_data=SCRIPT, metadata=METADATA)
    boot = msgspec.structs.replace(a_boot(OperationId("boot")), server=server, files=(InjectedFile("/a", FILE),))
    new = accepted(
        SAGAS["boot/1"], OperationId("boot"), server, boot, owner=ConductorId("c"), user="u", seq=1, request_id="r"
    )  # fmt: skip

    def kept(tx: Tx) -> None:
        servers.insert(tx, [server])
        operations.accept(tx, [new])
        line = '{"type":"result","step":"a","value":' + msgspec.json.encode(server).decode() + "}\n"
        tx.run(operations.operation_lines.insert().values(operation="boot", line=7, text=line))

    await database.write(kept)
    return database


async def texts(region: Database) -> str:
    """All that is kept, one after the other."""
    found = [await region.read(lambda tx, p=place: encrypted_columns.page(tx, p, None, 100)) for place in OF_REGION]  # type: ignore[misc]
    return "\n".join(row.text for rows in found for row in rows)


async def order(region: Database) -> dict[str, Any]:
    doc = await region.read(lambda tx: tx.scalar(sa.select(servers.servers.c.doc)))
    return dict(json.loads(str(doc)))


async def test_only_clear_secrets_are_encrypted(region: Database) -> None:
    seals = of(new_key())
    before = await order(region)
    counted = await walk({"region": region}, seals, change=False)
    assert (counted.clear, counted.by_key, counted.changed) == (4, {}, 0)
    assert SCRIPT in await texts(region)
    messages: list[RewriteCounts] = []
    done = await reencrypt({"region": region}, seals, progress=messages.append)
    assert [each.changed for each in messages] == [3, 0]
    assert (done.clear, done.by_key) == (0, {seals.key: 4})
    now = await texts(region)
    assert SCRIPT not in now
    assert FILE not in now
    assert now.count(OTHER) == 3 * len([each for each in METADATA.values() if each == OTHER])
    after = await order(region)
    assert after["metadata"] == METADATA
    assert seals.shown(after["user_data"]) == SCRIPT
    assert {**after, "user_data": SCRIPT} == before
    found = await region.read(lambda tx: operations.get(tx, OperationId("boot")))
    assert found is not None
    asked = msgspec.json.decode(found.asked, type=SAGAS["boot/1"].input_type)
    assert seals.shown(asked.files[0].contents) == FILE
    assert found.journal.endswith(b"}\n")


async def test_keys_are_exchanged_and_lost_secrets_are_counted(region: Database) -> None:
    old, new = new_key(), new_key()
    await reencrypt({"region": region}, of(old), progress=lambda _: None)
    both = of(new, old)
    found = await reencrypt({"region": region}, both, progress=lambda _: None)
    assert found.by_key == {both.key: 4}
    assert of(new).shown((await order(region))["user_data"]) == SCRIPT
    stranger = of(new_key())
    found = await reencrypt({"region": region}, stranger, progress=lambda _: None)
    assert (found.lost, found.changed, found.by_key) == (4, 0, {both.key: 4})
    found = await reencrypt({"region": region}, stranger, drop_lost=True, progress=lambda _: None)
    assert (found.lost, found.by_key) == (0, {})
    assert (await order(region))["user_data"] is None


async def test_a_downgrade_gets_user_data_in_clear(region: Database) -> None:
    key = new_key()
    before = await texts(region)
    await reencrypt({"region": region}, of(key), progress=lambda _: None)
    await reencrypt({"region": region}, of(key, clear_user_data=True), progress=lambda _: None)
    assert await texts(region) == before


async def test_texts_written_meanwhile_are_kept(region: Database) -> None:
    place = OF_REGION[0]
    rows = await region.read(lambda tx: encrypted_columns.page(tx, place, None, 10))
    await region.write(lambda tx: tx.run(servers.servers.update().values(doc=rows[0].text.replace('"a"', '"b"'))))
    assert await region.write(lambda tx: _exchange(tx, place, [(rows[0], "{}")])) == 0
    assert (await order(region))["name"] == "b"


async def test_a_process_with_an_unknown_key_is_refused(region: Database) -> None:
    old, new = new_key(), new_key()
    await know_key(region, of(old), [old])
    await know_key(region, of(old), [old])
    with pytest.raises(Invalid, match="this process does not have the region's key"):
        await know_key(region, of(new), [new])
    await know_key(region, of(new, old), [new, old])
    with pytest.raises(Invalid, match="give every process the same keys"):
        await know_key(region, of(old), [old])
    await know_key(region, of(old, new), [old, new])  # a copy that was not exchanged yet
    assert await region.read(region_keys.used) == (of(new).key, of(old).key)
    assert not await region.write(lambda tx: region_keys.begin(tx, "x", 1, 0)), "one follows another"
    assert BEGINS not in str(await region.read(region_keys.used))
