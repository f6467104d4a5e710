"""Deletes images that were made of servers and that no operation works on, and that are no longer needed.

Three kinds are found by our own key (`MADE_FOR`): images without data, or with incomplete data, whose server no
operation holds; complete images of shelved disks that no record names; and images that carried a disk to another cell,
whose move is over. A complete snapshot belongs to its owner, whatever happens to the server.

Snapshots of volumes that were made for such an image are deleted before the image.

The data may be all that is left of a disk, so two indications are needed (RULES §22): the region and the server's
record on one side, and on the other side the image itself, which was unchanged in every read for `GRACE_S`. An image of
a server that the region does not know belongs to others (two regions may share an image service), and so does one of a
server whose cell has lost its record.
"""

import logging
from collections.abc import Iterable

import msgspec

from moorage.conductor.bulk_precheck import precheck
from moorage.model.clock import Clock, SystemClock
from moorage.model.errors import Problem, Unavailable
from moorage.model.ids import ServerId
from moorage.model.image import Image
from moorage.operations.context import SagaContext
from moorage.operations.images import snapshot_volumes
from moorage.operations.steps import servers as records
from moorage.operations.steps.snapshot_image import MADE_FOR, OF_SERVER, ONLY_FOR_US, PURPOSES
from moorage.store.region import servers as region_servers

NAME = "stray_images"
GRACE_S = 600.0
IMAGES_MAX = 100_000
WHOLE = "active"

logger = logging.getLogger(__name__)


class OrphanImagesDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    deleted: tuple[str, ...] = ()
    suspected: int = 0
    """Images that may be orphans; they are deleted when they have been so for long enough."""
    waiting: int = 0
    """Images of servers whose cell did not answer."""


class OrphanImageScan(msgspec.Struct, frozen=True):
    """What a scan found without changing anything."""

    count: int
    strays: tuple[tuple[ServerId, Image], ...]
    waiting: tuple[ServerId, ...]


class OrphanImages:
    def __init__(self, context: SagaContext, clock: Clock | None = None, grace_s: float = GRACE_S) -> None:
        self._context, self._clock, self._grace_s = context, clock or SystemClock(), grace_s
        self._since: dict[tuple[str, str], float] = {}
        """(image, its state) → when it was first seen as an orphan in this state."""

    async def run(self) -> OrphanImagesDone:
        """Run one round."""
        scan = await self.scan()
        ripe = self._ripe([image for _, image in scan.strays])
        gone = [image.id for image in ripe if await self.delete(image)]
        return OrphanImagesDone(scan.count, tuple(gone), len(scan.strays) - len(gone), len(scan.waiting))

    async def scan(self) -> OrphanImageScan:
        """The images are read first: an operation that holds a server by then has not finished with them."""
        images = await self._ours()
        by_server: dict[str, list[Image]] = {}
        for image in images:
            by_server.setdefault(image.properties.get(OF_SERVER, ""), []).append(image)
        checked = await precheck(self._context, by_server, lambda tx, servers: ())
        strays: list[tuple[ServerId, Image]] = []
        waiting = list(checked.waiting)
        for server in checked.suspects:
            try:
                strays += [(server, image) for image in await self._strays(server, by_server[server])]
            except Unavailable as out:  # its cell does not answer: the others are handled all the same
                logger.info("images of server %s wait: %s", server, out)
                waiting.append(server)
        return OrphanImageScan(len(images), tuple(strays), tuple(waiting))

    async def _ours(self) -> list[Image]:
        half = [{MADE_FOR: purpose, "status": "in:queued,saving"} for purpose in PURPOSES]
        images: list[Image] = []
        whole = [{MADE_FOR: purpose, "status": WHOLE} for purpose in ONLY_FOR_US]
        for filters in (*half, *whole):
            images += await self._context.images.every(filters, at_most=IMAGES_MAX)
        return images

    async def _strays(self, server: ServerId, images: Iterable[Image]) -> list[Image]:
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None:
            return []
        located = await records.find(self._context, server)
        if located.judges_nothing or (located.server is None and not where.deleted):
            return []
        record = located.server
        needed = None if record is None or record.deleted or record.shelved is None else record.shelved.image
        now = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        if now is None or now.operation is not None or now.op_seq != where.op_seq:
            return []
        return [image for image in images if image.id != needed]

    def _ripe(self, strays: Iterable[Image]) -> list[Image]:
        """Those that were orphans, and unchanged, in every read for long enough."""
        now = self._clock.monotonic()
        self._since = {key: self._since.get(key, now) for key in ((image.id, image.updated_at) for image in strays)}
        return [image for image in strays if now - self._since[image.id, image.updated_at] >= self._grace_s]

    async def delete(self, image: Image) -> bool:
        """Delete it after its snapshots. Returns False while it waits for those."""
        try:
            if self._context.volumes is not None and not await snapshot_volumes.dropped(self._context, image.id):
                return False
        except Problem as out:  # the volume service does not answer: a later round finds the snapshots by the image
            logger.info("image %s waits for its snapshots to be deleted: %s", image.id, out)
            return False
        went = await self._context.images.delete(image.id)
        if went:
            logger.warning(
                "image %s of server %s is no longer needed, and is deleted", image.id, image.properties[OF_SERVER]
            )
        return went
