"""Deletes incomplete images of a server that is being deleted: their snapshots would keep volumes that are to go with
it.

An image of volumes belongs to its operation once that is accepted; a request that was killed before undoes nothing. The
reconciler for such images (`stray_images`) would come too late for the delete's volumes.
"""

import asyncio
import logging
import time

from moorage.model.errors import Invalid, Problem
from moorage.model.ids import ServerId
from moorage.operations.context import SagaContext
from moorage.operations.steps.snapshot_image import MADE_FOR, OF_SERVER

IMAGES_MAX = 100
GONE_WITHIN_S = 20.0
"""How long snapshots that are being deleted are waited for; after that, volumes stay."""
LOOK_FIRST_S = 0.05
LOOK_MOST_S = 2.0

logger = logging.getLogger(__name__)


async def went(context: SagaContext, server: ServerId) -> bool:
    """Delete them, with their snapshots; the delete holds the server, so no new image is made. Returns True when there
    were some, and all are gone.

    A service that does not answer does not delay the delete.
    """
    filters = {MADE_FOR: "snapshot", OF_SERVER: server, "status": "in:queued,saving"}
    until = time.monotonic() + GONE_WITHIN_S
    try:
        images = await context.images.every(filters, at_most=IMAGES_MAX)
        for image in images:
            if not await _without_snapshots(context, image.id, until):
                return False
            await context.images.delete(image.id)
            logger.warning("image %s of server %s was incomplete, and is deleted with the server", image.id, server)
    except Problem as out:
        logger.info("incomplete images of server %s stay for now: %s", server, out)
        return False
    return bool(images)


async def _without_snapshots(context: SagaContext, image: str, until: float) -> bool:
    """Whether its snapshots are gone in time."""
    volumes, pause_s = context.volumes, LOOK_FIRST_S
    if volumes is None:
        return False
    while left := await volumes.snapshots_for(image):
        for each in left:
            if each.status != "deleting":
                try:
                    await volumes.delete_snapshot(each.id)
                except Invalid:  # it is being made
                    continue
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_MOST_S)
    return True
