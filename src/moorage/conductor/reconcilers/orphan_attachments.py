"""Releases volume attachments that name a server which does not have them: from a call that arrived after its undo, or
from a delete while the volume service did not answer.

An attachment is an orphan when no operation holds its server and the server's record does not list it. That is one
indication (RULES §22); the second is one of these:

* the record says that the server was deleted;
* the attachment is a reservation, which no host ever had;
* it is incomplete, and the record lists no other attachment of that volume: no guest has it, and removing it affects no
  other attachment;
* it is exported to a host that is not the server's, and that host says that no guest of the server has the volume: the
  record alone may be of an earlier time.

What remains is exported to the server's host: it stays, and the log reports it. Attachments of servers that are not
ours are never changed, nor those of a server whose record its cell has lost.

Volumes of a request whose process died before it accepted the boot are deleted, by the intent that it left.

Two more effects of late calls are repaired: an attachment that the record lists and that became incomplete again is
completed, and a volume with the status `detaching` without a detach becomes `in-use` again.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from functools import partial

import msgspec

from moorage.clients.volume import VolumeClient
from moorage.conductor.bulk_precheck import precheck
from moorage.model.errors import Problem, Unavailable
from moorage.model.ids import ServerId
from moorage.model.server import Server
from moorage.model.volume import ATTACHED, RESERVED, Attachment, Volume
from moorage.operations.context import SagaContext
from moorage.operations.steps import servers as records
from moorage.operations.steps.export_use import is_unused
from moorage.operations.steps.volumes import delete_or_leave, volumes_of
from moorage.operations.volumes.detach_volume import DETACHING
from moorage.sql import Tx
from moorage.store.cell import server_queries
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers
from moorage.store.region import volume_intents

NAME = "stray_attachments"
AT_ONCE = 8
INTENT_OLD_US = 600 * 1_000_000
"""A request that makes volumes has ended by then."""

logger = logging.getLogger(__name__)


class OrphanAttachmentsDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    """Attachments."""
    dropped: tuple[str, ...] = ()
    amiss: tuple[str, ...] = ()
    """Attachments that are exported to their servers' hosts, and that no record lists: an operator must decide."""
    mended: int = 0
    """Attachments that were completed, and volumes that were set from `detaching` to `in-use`."""
    waiting: tuple[str, ...] = ()
    """Servers whose cell, or the volume service, did not answer."""


class ReleasedAttachments(msgspec.Struct, frozen=True):
    dropped: tuple[str, ...] = ()
    amiss: tuple[str, ...] = ()
    mended: int = 0
    waits: bool = False


class OrphanAttachments:
    def __init__(self, context: SagaContext) -> None:
        self._context = context

    @property
    def _client(self) -> VolumeClient:
        return volumes_of(self._context)

    async def run(self) -> OrphanAttachmentsDone:
        """Run one round. The attachments are read first: an operation that holds a server by then has not finished with
        them.
        """
        by_server: dict[str, list[Attachment]] = {}
        count = 0
        async for each in self._client.all_attachments():
            count += 1
            if each.server:
                by_server.setdefault(each.server, []).append(each)
        going = await self._going()

        def cleared(tx: Tx, servers: Sequence[ServerId]) -> Collection[ServerId]:
            listed = server_queries.listed_attachments(tx, servers)
            return {
                server
                for server, those in listed.items()
                if _fine(by_server.get(server, ()), those) and server not in going
            }

        await self.unfinished()
        checked = await precheck(self._context, sorted(by_server.keys() | going.keys()), cleared)
        slots = asyncio.Semaphore(AT_ONCE)

        async def repair_one(server: ServerId) -> ReleasedAttachments:
            async with slots:
                try:
                    return await self.repair(server, by_server.get(server, ()), going.get(server, ()))
                except Problem as problem:  # its cell may not answer: the others are handled all the same
                    logger.info("attachments of server %s wait: %s", server, problem)
                    return ReleasedAttachments(waits=True)

        done = await asyncio.gather(*map(repair_one, checked.suspects))
        waiting = [server for server, each in zip(checked.suspects, done, strict=True) if each.waits]
        return OrphanAttachmentsDone(
            count,
            tuple(one for each in done for one in each.dropped),
            tuple(one for each in done for one in each.amiss),
            sum(each.mended for each in done),
            (*checked.waiting, *waiting),
        )

    async def unfinished(self) -> None:
        """Delete volumes that were made for a boot that was never accepted: the intent names the server, and so does
        their metadata.
        """
        before = time.time_ns() // 1000 - INTENT_OLD_US
        for server in await self._context.region.read(lambda tx: volume_intents.old(tx, before)):
            if await self._context.region.read(partial(region_servers.find, server=server)) is None:
                if await self._recorded(server):
                    continue
                for volume in await self._client.created_for(server):
                    logger.warning("volume %s was made for server %s, which was never accepted", volume.id, server)
                    await delete_or_leave(self._context, volume.id)
            await self._context.region.write(partial(volume_intents.done, servers=[server]))

    async def _recorded(self, server: ServerId) -> bool:
        """Whether a cell has it all the same, or may: then the region went back, and the volumes are in use."""
        for cell in self._context.cells.ids:
            try:
                record = await self._context.cells[cell].read(partial(cell_servers.get, server=server))
            except Unavailable as out:
                logger.info("volumes made for server %s wait: %s", server, out)
                return True
            if record is not None:
                logger.warning("server %s is recorded in %s, and the region does not know it", server, cell)
                return True
        return False

    async def _going(self) -> dict[str, list[str]]:
        """Server → its volumes with the status `detaching`."""
        return going(await self._client.with_status(DETACHING))

    async def repair(
        self, id: ServerId, attachments: Sequence[Attachment], going: Sequence[str]
    ) -> ReleasedAttachments:
        """Repair these attachments, which were read with the server's id; `going`: its volumes with the status
        `detaching`.
        """
        where = await self._context.region.read(lambda tx: region_servers.find(tx, id))
        if where is None or where.operation is not None or where.may_run:
            return ReleasedAttachments()
        located = await records.find(self._context, id)
        if located.judges_nothing:
            return ReleasedAttachments()
        server = None if located.server is None or located.server.deleted else located.server
        listed = {} if server is None else {each.attachment: each.volume for each in server.volumes if each.attachment}
        if await self._moved(id, where.op_seq):
            return ReleasedAttachments()
        dropped, amiss, mended = [], [], 0
        for each in attachments:
            if each.id in listed:
                if each.status not in {ATTACHED, RESERVED}:
                    await self._client.complete(each.id)
                    mended += 1
            elif await self._is_stray(each, server, listed.values()):
                await self._client.drop_attachment(each.id)
                dropped.append(each.id)
                await self._goes_with(located.server, each.volume)
            elif not where.debts:  # a host that owes the volume is asked for it when it is home
                logger.error(
                    "attachment %s is exported to the host of server %s, whose record does not list it", each.id, id
                )
                amiss.append(each.id)
        for volume in going:
            if volume in listed.values():
                await self._client.roll_detaching(volume)
                mended += 1
        return ReleasedAttachments(tuple(dropped), tuple(amiss), mended)

    async def _is_stray(self, each: Attachment, server: Server | None, listed: Collection[str | None]) -> bool:
        """Whether there is a second indication."""
        if server is None or server.host is None or each.status == RESERVED:
            return True
        if each.status != ATTACHED:
            return each.volume not in listed
        host = (await self._client.show(each.volume)).hosts.get(each.id)
        if host is None or host == server.host:
            return False
        return await is_unused(self._context, host, server.id, each.volume)

    async def _goes_with(self, record: Server | None, volume: str) -> None:
        """Delete a volume that was to go with its server, when its delete could not do it."""
        went = () if record is None or not record.deleted else record.volumes
        if any(each.volume == volume and each.delete_on_termination for each in went):
            await delete_or_leave(self._context, volume)

    async def _moved(self, server: ServerId, seq: int) -> bool:
        """Whether an operation began, or began and ended, while the record was read."""
        now = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        return now is None or now.operation is not None or now.op_seq != seq


def going(volumes: Collection[Volume]) -> dict[str, list[str]]:
    """Server → those of these volumes with the status `detaching`; a volume of several servers is left out, because its
    server is ambiguous.
    """
    by_server: dict[str, list[str]] = {}
    for volume in volumes:
        servers = {server for _, server in volume.attachments}
        if len(servers) == 1:
            by_server.setdefault(servers.pop(), []).append(volume.id)
    return by_server


def _fine(attachments: Sequence[Attachment], listed: Collection[str]) -> bool:
    return all(each.id in listed and each.status in {ATTACHED, RESERVED} for each in attachments)
