"""Boots that sleep, for operations that cancel them."""

from contextlib import suppress

from moorage.model.errors import Unavailable
from moorage.model.ids import ConductorId
from moorage.operations.context import SagaContext

WAITING_BOOTS = ("boot/3", "boot/4")


async def waker_of(context: SagaContext) -> ConductorId | None:
    """Who takes up a sleeping boot that is cancelled now; None: it is left to who wakes sleepers.

    A conductor of an earlier release could not.
    """
    with suppress(Unavailable):
        return await context.dispatcher.choose(WAITING_BOOTS[-1])
    return None
