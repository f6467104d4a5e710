"""Claims of servers that are no more, and counters that do not say what the allocations say (RULES §5).

A server whose record its cell has lost is not one that is no more: its claim stays (RULES §22).  So do addresses of one that is
shelved, which is on no host.

A move holds what its server had on the host that it leaves, until it is confirmed or reverted.  Such a claim is stray when its cell has
the move's record, and the record says that it ended.  One that nobody has a record of, as of a cell that was put back to before the move,
stays until its server is deleted: that is a word that names it.  So does one whose record was put back to when it was under way.
Of a move that two cells have a record of, for its server went from one into the other, neither may say that it goes on.
"""

import logging
from collections.abc import Collection, Sequence
from functools import partial

import msgspec

from moorage.conductor.bulk_precheck import PAGE, precheck
from moorage.model.errors import Unavailable
from moorage.model.ids import ServerId
from moorage.model.verdict import Row
from moorage.operations.context import SagaContext
from moorage.operations.steps import servers as records
from moorage.sql import Tx
from moorage.store.cell import migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.region import audit_reads
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements

NAME = "stray_claims"

logger = logging.getLogger(__name__)


class OrphanAllocationsDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    released: tuple[str, ...] = ()
    drifted: int = 0
    """Counters that differ from the sum of their allocations; said loudly, for it must not happen."""
    waiting: int = 0
    """Consumers whose cell did not answer."""


class _Moves(msgspec.Struct, frozen=True):
    ended: dict[str, ServerId]
    waiting: int
    """Those of which a cell that does not answer may have the record."""


class OrphanAllocations:
    def __init__(self, context: SagaContext) -> None:
        self._context = context

    async def run(self) -> OrphanAllocationsDone:
        """One round; a consumer that is no server of ours is somebody else's, and left alone."""
        region = self._context.region
        consumers = await region.read(claim_statements.operations_consumers)
        seen = await precheck(self._context, consumers, cell_servers.placed)
        released: list[str] = []
        waiting = len(seen.waiting)
        for consumer in seen.suspects:
            try:
                if await self.release_stray(ServerId(consumer)):
                    released.append(consumer)
            except Unavailable as out:  # its cell: no reason to leave the others
                logger.info("the claim of server %s waits: %s", consumer, out)
                waiting += 1
        moves = await self._ended_moves()
        for move, server in moves.ended.items():
            if await self.release_move(move, server):
                released.append(move)
        drifted = await region.read(claim_statements.drift)
        return OrphanAllocationsDone(len(consumers), tuple(released), len(drifted), waiting + moves.waiting)

    async def _ended_moves(self) -> _Moves:
        """Moves that hold something, of which a cell's record says that they ended."""
        left = set(await self._context.region.read(claim_statements.moves_consumers))
        every, ended, going = _pages(left), dict[str, ServerId](), set[str]()
        open_ones: dict[str, ServerId] = {}
        out = False
        for cell in self._context.cells.ids if left else ():
            try:
                told = [
                    await self._context.cells[cell].read(partial(migrations.move_states, uuids=page)) for page in every
                ]
            except Unavailable as problem:
                logger.info("the moves of cell %s wait: %s", cell, problem)
                out = True
                continue
            for page in told:
                left -= page.keys()
                ended |= {uuid: each.server for uuid, each in page.items() if not each.is_open}
                going |= {uuid for uuid, each in page.items() if each.is_open}
                open_ones |= {
                    uuid: each.server for uuid, each in page.items() if each.is_open and not each.waits_for_host
                }
        ended = {uuid: server for uuid, server in ended.items() if uuid not in going}
        gone = await self._deleted(set(open_ones.values()))
        ended |= {uuid: server for uuid, server in open_ones.items() if server in gone}
        if out:
            return _Moves(ended, len(left))
        for unknown in _pages(left):
            ended |= await self._context.region.read(partial(_of_deleted, moves=unknown))
        return _Moves(ended, 0)

    async def _deleted(self, servers: Collection[ServerId]) -> frozenset[ServerId]:
        """Those of them whose delete has ended: nobody will end their moves."""
        if not servers:
            return frozenset()
        mapped = await self._context.region.read(partial(audit_reads.mapped_among, ids=servers))
        return frozenset(each.id for each in mapped if each.deleted and each.operation is None)

    async def release_move(self, move: str, server: ServerId) -> bool:
        """An operation that holds the server may be about to take it back: it is looked at once that is over."""

        def work(tx: Tx) -> tuple[Row, ...]:
            where = region_servers.find_and_hold(tx, server)
            if where is not None and where.operation is not None:
                return ()
            return self._context.placement.release(tx, move)

        rows = await self._context.region.write(work)
        self._context.placement.settle(rows)
        return bool(rows)

    async def release_stray(self, server: ServerId) -> bool:
        """Look at one; True: it should have held nothing, and holds nothing now. Raises Unavailable when its cell is out."""
        seq = await self._seq_of_stray(server)
        return seq is not None and await self._release(server, seq)

    async def _seq_of_stray(self, server: ServerId) -> int | None:
        """How many operations the server has had, if it should hold nothing."""
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None:
            return None
        found = await records.find(self._context, server)
        if found.missing_in is not None:
            return None
        record = found.server
        stray = record is None or record.deleted or (record.host is None and record.shelved is None)
        return where.op_seq if stray else None

    async def _release(self, server: ServerId, seq: int) -> bool:
        """Looked at again in the transaction that releases: an operation may have come since, or come and gone."""

        def work(tx: Tx) -> tuple[Row, ...]:
            where = region_servers.find_and_hold(tx, server)
            if where is None or where.operation is not None or where.op_seq != seq:
                return ()
            return self._context.placement.release(tx, server)

        rows = await self._context.region.write(work)
        self._context.placement.settle(rows)
        return bool(rows)


def _pages(moves: set[str]) -> list[list[str]]:
    ordered = sorted(moves)
    return [ordered[at : at + PAGE] for at in range(0, len(ordered), PAGE)]


def _of_deleted(tx: Tx, moves: Sequence[str]) -> dict[str, ServerId]:
    """Those of them whose server was deleted since, by the operation that made them."""
    found: dict[str, ServerId] = {}
    for move, operation in claim_statements.made_by(tx, moves).items():
        made = region_operations.get(tx, operation)
        where = None if made is None or made.ended_at is None else region_servers.find(tx, made.server)
        if where is not None and where.deleted:
            found[move] = where.id
    return found
