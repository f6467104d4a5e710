"""The round that confirms resizes begins nothing where none waits for longer than the window, or where there is no window."""

import dataclasses

import pytest

from moorage.conductor.reconcilers.unconfirmed import ConfirmResizes, UnconfirmedDone, still_waiting
from moorage.model.errors import Conflict
from moorage.testing.small_moved import moved, recorded
from moorage.testing.small_region import SmallRegion
from moorage.testing.small_stories import booted


async def test_unconfirmed_already_fine() -> None:
    small = await SmallRegion.open()
    await booted(small)
    rooms = dataclasses.replace(
        small.rooms, settings=dataclasses.replace(small.rooms.settings, resize_confirm_window_s=3600)
    )
    assert await ConfirmResizes(rooms).run() == UnconfirmedDone()
    with pytest.raises(Conflict, match="waits for no confirmation"):
        still_waiting(await recorded(small))
    await moved(small)
    still_waiting(await recorded(small))
    rooms = dataclasses.replace(rooms, region=small.rooms.region)
    assert await ConfirmResizes(rooms).run() == UnconfirmedDone(looked_at=1)
    never = dataclasses.replace(rooms, settings=dataclasses.replace(rooms.settings, resize_confirm_window_s=0))
    assert await ConfirmResizes(never).run() == UnconfirmedDone()
    await small.close()
