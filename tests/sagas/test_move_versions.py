"""Which version of a move is begun: the one that may leave a segment, where that is allowed and every conductor knows it."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from test_delete_versions import WHO, Book

from moorage.operations import evacuate_request, unshelve_request
from moorage.operations.all import SAGAS
from moorage.operations.evacuate_request import EvacuateWish
from moorage.operations.rooms import Settings
from moorage.operations.unshelve_request import UnshelveWish
from moorage.store.region import servers as region_servers
from moorage.testing.sagas import PROVED_OPERATION
from moorage.testing.small_evacuated import evacuable
from moorage.testing.small_moved import recorded
from moorage.testing.small_region import SERVER, SmallRegion
from moorage.testing.small_shelves import shelved


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


@pytest.mark.parametrize("name", ["evacuate", "unshelve"])
async def test_who_may_leave_a_segment_is_told_by_who_knows_of_it(small: SmallRegion, name: str) -> None:
    """During an upgrade it stays on its segment; nothing is refused."""
    await (evacuable(small) if name == "evacuate" else shelved(small, offload=True))
    await small.region.write(lambda tx: region_servers.let_go(tx, SERVER, PROVED_OPERATION))
    server = await recorded(small)
    for allowed, unknown, wanted in ((True, "", "2"), (True, f"{name}/2", "1"), (False, "", "1")):
        book, settings = Book(unknown), Settings(allow_move_across_segments=allowed)
        rooms = dataclasses.replace(small.rooms, tellers=cast("Any", book), settings=settings)
        if name == "evacuate":
            await evacuate_request.begin(rooms, WHO, server, EvacuateWish(), check=lambda _: None)
        else:
            await unshelve_request.begin(rooms, WHO, server, UnshelveWish(), check=lambda _: None)
        (new,) = book.begun_
        asked = msgspec.json.decode(new.asked, type=SAGAS[new.saga].asked)
        assert (new.saga, asked.across) == (f"{name}/{wanted}", wanted == "2")
        await small.region.write(lambda tx, new=new: region_servers.let_go(tx, SERVER, new.id))
