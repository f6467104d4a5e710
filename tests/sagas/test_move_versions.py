"""Which version of a move is begun: the one that may leave a segment, if that is allowed and every conductor knows it."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from tests.sagas.test_delete_versions import WHO, Book

from moorage.operations.context import SagaSettings
from moorage.operations.evacuate import accept_evacuate
from moorage.operations.evacuate.accept_evacuate import EvacuateWish
from moorage.operations.registry import SAGAS
from moorage.operations.shelve import accept_unshelve
from moorage.operations.shelve.accept_unshelve import UnshelveWish
from moorage.store.region import servers as region_servers
from moorage_testing.region_evacuated import evacuable
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import recorded
from moorage_testing.region_shelved import shelved
from moorage_testing.saga_proof import PROVED_OPERATION


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


@pytest.mark.parametrize("name", ["evacuate", "unshelve"])
async def test_moves_across_segments_need_a_version_that_supports_them(small: SmallRegion, name: str) -> None:
    """During an upgrade it stays on its segment; nothing is refused."""
    await (evacuable(small) if name == "evacuate" else shelved(small, offload=True))
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    server = await recorded(small)
    for allowed, unknown, wanted in ((True, "", "2"), (True, f"{name}/2", "1"), (False, "", "1")):
        book, settings = Book(unknown), SagaSettings(allow_move_across_segments=allowed)
        context = dataclasses.replace(small.context, dispatcher=cast("Any", book), settings=settings)
        if name == "evacuate":
            await accept_evacuate.begin(context, WHO, server, EvacuateWish(), check=lambda _: None)
        else:
            await accept_unshelve.begin(context, WHO, server, UnshelveWish(), check=lambda _: None)
        (new,) = book.begun_
        asked = msgspec.json.decode(new.asked, type=SAGAS[new.saga].input_type)
        assert (new.saga, asked.across) == (f"{name}/{wanted}", wanted == "2")
        await small.region.write(lambda tx, new=new: region_servers.release(tx, SERVER, new.id))
