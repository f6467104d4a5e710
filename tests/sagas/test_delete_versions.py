"""Which version of a delete is begun: it depends on what the server has when the delete is accepted, not when it was read."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import msgspec
import pytest

from moorage.model.errors import Unavailable
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Moved, Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.delete import accept_delete, delete
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell.servers import Fence
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import PROJECT, SERVER, SmallRegion
from moorage_testing.region_moved import about_moved, moved
from moorage_testing.region_states import booted
from moorage_testing.saga_proof import PROVED_OPERATION

WHO = Principal(user="user-1", project=PROJECT)


class Book:
    """Conductors that know all but some sagas."""

    def __init__(self, *unknown: str) -> None:
        self.unknown, self.begun_ = unknown, list[Accepted]()

    async def choose(self, saga: str) -> ConductorId:
        if saga in self.unknown:
            raise Unavailable(saga)
        return ConductorId("conductor1")

    async def begun(self, accepted: Accepted) -> None:
        self.begun_.append(accepted)


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    await booted(region)

    def free(tx: Any) -> None:
        where = region_servers.find(tx, SERVER)
        assert where is not None
        assert where.operation is not None
        region_servers.release(tx, SERVER, where.operation, drop_order=True)

    await region.region.write(free)
    yield region
    await region.close()


async def recorded(small: SmallRegion) -> Server:
    found = (await records.find(small.context, SERVER)).server
    assert found is not None
    return found


async def changed(small: SmallRegion, how: Callable[[Server], Server]) -> None:
    found = await records.find(small.context, SERVER)
    assert found.cell is not None
    fence = Fence(operation=OperationId("between"), seq=1, epoch=9, line=1)
    await records.change(small.context, found.cell, SERVER, fence, how)


def with_(small: SmallRegion, book: Book) -> SagaContext:
    return dataclasses.replace(small.context, dispatcher=cast("Any", book))


def was_moved(server: Server) -> Server:
    old = Moved(
        migration="m",
        vm_state=VmState.ACTIVE,
        host="host1",
        node="host1",
        provider=server.provider,
        flavor=server.flavor,
        at=1,
    )
    return msgspec.structs.replace(server, vm_state=VmState.RESIZED, moved=old)


async def test_a_server_with_more_resources_gets_the_newest_version(small: SmallRegion) -> None:
    book = Book()
    await changed(small, was_moved)
    await accept_delete.begin(with_(small, book), WHO, await recorded(small))
    assert [each.saga for each in book.begun_] == ["delete/4"]


@pytest.mark.parametrize("unknown", [(), ("delete/5", "delete/4")])
async def test_a_plain_server_gets_the_shortest_version(small: SmallRegion, unknown: tuple[str, ...]) -> None:
    """The release before knows that one, so whoever goes back to it meanwhile has the delete done."""
    book = Book(*unknown)
    await accept_delete.begin(with_(small, book), WHO, await recorded(small))
    assert [each.saga for each in book.begun_] == ["delete/1"]


async def test_a_move_that_ended_after_the_read_is_confirmed_by_the_delete(small: SmallRegion) -> None:
    read, book = await recorded(small), Book("delete/5", "delete/4")
    await changed(small, was_moved)
    await accept_delete.begin(with_(small, book), WHO, read)
    assert [each.saga for each in book.begun_] == ["delete/3"]


async def test_a_server_changed_by_an_operation_in_between_gets_the_newest_version(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a conductor lives that knows no moves: then nobody can have moved it."""
    seen = accept_delete._read_server

    async def earlier(context: SagaContext, server: Server) -> tuple[int, Server]:
        number, found = await seen(context, server)
        return number - 1, found

    monkeypatch.setattr(accept_delete, "_read_server", earlier)
    for book, wanted in (
        (Book("delete/5", "delete/4"), "delete/3"),
        (Book("delete/5", "delete/4", "delete/3"), "delete/2"),
    ):
        await accept_delete.begin(with_(small, book), WHO, await recorded(small))
        assert [each.saga for each in book.begun_] == [wanted]
        await small.region.write(lambda tx, new=book.begun_[0]: region_servers.release(tx, SERVER, new.id))


async def test_deleting_a_moved_server_waits_until_every_conductor_knows_moves(small: SmallRegion) -> None:
    book = Book("delete/5", "delete/4", "delete/3")
    await changed(small, was_moved)
    with pytest.raises(Unavailable, match="before all conductors are of this release"):
        await accept_delete.begin(with_(small, book), WHO, await recorded(small))
    assert book.begun_ == []
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.operation is None, "nothing was accepted"


async def test_quota_and_claims_are_released_before_the_server_is_shown_as_deleted(small: SmallRegion) -> None:
    """What the move held, too; who sees a 404 and boots at once is not refused for what is gone."""
    asked = await about_moved(small, "delete/4")
    await moved(small)
    held = await small.held()
    seen: list[dict[str, Any]] = []

    async def looked(run: Any) -> None:
        seen.append(await small.held())
        await delete.mark_deleted.do(run)

    saga = SAGAS["delete/4"]
    saga = saga.but(delete.mark_deleted.but(do=looked))
    await execute(saga, PROVED_OPERATION, asked, small.context, MemoryJournal(first_lines(saga), small.transact))
    assert [(each["claims"], set(each["quota"].values()), each["rows"]) for each in seen] == [(0, {0}, 1)]
    assert (held["claims"] > 0, held["rows"]) == (True, 1)
