"""The reconciler that confirms resizes begins nothing if none waits for longer than the window, or if there is no window."""

import dataclasses
from typing import Any

import msgspec
import pytest

from moorage.conductor.reconcilers.unconfirmed_resizes import ConfirmResizes, UnconfirmedDone, still_waiting
from moorage.model.clock import SystemClock
from moorage.model.errors import Conflict, UnknownOutcome
from moorage.model.ids import CellId, ServerId
from moorage.model.server import Server
from moorage.operations.resize import confirm_resize
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import moved, recorded
from moorage_testing.region_states import booted
from moorage_testing.saga_proof import PROVED_OPERATION


class Later(SystemClock):
    """Two hours on."""

    def now(self) -> float:
        return super().now() + 7200.0


async def test_unconfirmed_resizes_already_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    small = await SmallRegion.open()
    await booted(small)
    context = dataclasses.replace(
        small.context, settings=dataclasses.replace(small.context.settings, resize_confirm_window_s=3600)
    )
    assert await ConfirmResizes(context).run() == UnconfirmedDone()
    with pytest.raises(Conflict, match="no longer waits for confirmation"):
        still_waiting(await recorded(small))
    await moved(small)
    still_waiting(await recorded(small))
    context = dataclasses.replace(small.context, settings=context.settings)
    assert await ConfirmResizes(context).run() == UnconfirmedDone(looked_at=1)
    never = dataclasses.replace(context, settings=dataclasses.replace(context.settings, resize_confirm_window_s=0))
    assert await ConfirmResizes(never).run() == UnconfirmedDone()
    due = ConfirmResizes(context, Later())
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    small.hosts.silent.add("host3")
    waiting = UnconfirmedDone(looked_at=1, waiting=(SERVER,))
    assert await due.run() == waiting
    small.hosts.silent.clear()
    there = small.hosts.guests.pop(("host3", SERVER))
    assert await due.run() == waiting, "the old host has the only disk"
    small.hosts.guests["host3", SERVER] = there
    one = await recorded(small)
    two, asked = msgspec.structs.replace(one, id=ServerId("two")), list[str]()

    async def both(cell: CellId) -> list[Server]:
        return [one, two] if cell == one.cell else []

    async def busy(to: Any, server: str, *_: Any) -> None:
        asked.append(server)
        raise UnknownOutcome("it did not answer in time")

    with monkeypatch.context() as patch:
        patch.setattr(due, "_resized", both)
        patch.setattr(small.hosts, "ask", busy)
        assert await due.run() == UnconfirmedDone(looked_at=2, waiting=(SERVER, "two"))
        assert asked == [SERVER], "a host that does not answer holds up its own servers only"
        assert len((await due.run()).waiting) == len(asked) == 2

    async def begun(*_: Any, **__: Any) -> None:
        """A small region has no executors."""

    monkeypatch.setattr(confirm_resize, "begin", begun)
    assert (await due.run()).begun == (SERVER,)
    await small.close()
