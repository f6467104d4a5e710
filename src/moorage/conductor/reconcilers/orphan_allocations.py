"""Releases claims of servers that no longer exist, and reports counters that differ from their allocations (RULES §5).

A server whose record its cell has lost still exists: its claim stays (RULES §22). So do addresses of a shelved server,
which is on no host.

A move holds what its server had on the source host, until it is confirmed or reverted. Such a claim is an orphan when
the cell has the move's record, and the record says that the move has ended. A claim without a record of its move, for
example of a cell that was restored to a state before the move, stays until its server is deleted, because only the
delete names it. So does a claim whose record was restored to a state in which the move was under way. For a move that
two cells have recorded, because its server went from one to the other, both must say that it has ended.
"""

import logging
from collections.abc import Collection, Sequence
from functools import partial

import msgspec

from moorage.conductor.bulk_precheck import PAGE, precheck
from moorage.model.errors import Unavailable
from moorage.model.ids import ServerId
from moorage.model.verdict import InventoryState
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
    """Counters that differ from the sum of their allocations; logged as an error, because it must not happen."""
    waiting: int = 0
    """Consumers whose cell did not answer."""


class _Moves(msgspec.Struct, frozen=True):
    ended: dict[str, ServerId]
    waiting: int
    """Moves whose record a cell may have that does not answer."""


class OrphanAllocations:
    def __init__(self, context: SagaContext) -> None:
        self._context = context

    async def run(self) -> OrphanAllocationsDone:
        """Run one round. Consumers that are not our servers belong to others, and are left alone."""
        region = self._context.region
        consumers = await region.read(claim_statements.operations_consumers)
        checked = await precheck(self._context, consumers, cell_servers.placed)
        released: list[str] = []
        waiting = len(checked.waiting)
        for consumer in checked.suspects:
            try:
                if await self.release_stray(ServerId(consumer)):
                    released.append(consumer)
            except Unavailable as out:  # its cell does not answer: the others are handled all the same
                logger.info("the claim of server %s waits: %s", consumer, out)
                waiting += 1
        moves = await self._ended_moves()
        for move, server in moves.ended.items():
            if await self.release_move(move, server):
                released.append(move)
        drifted = await region.read(claim_statements.drift)
        return OrphanAllocationsDone(len(consumers), tuple(released), len(drifted), waiting + moves.waiting)

    async def _ended_moves(self) -> _Moves:
        """Moves that hold a claim, and that have ended by a cell's record."""
        left = set(await self._context.region.read(claim_statements.moves_consumers))
        every, ended, going = _pages(left), dict[str, ServerId](), set[str]()
        open_ones: dict[str, ServerId] = {}
        out = False
        for cell in self._context.cells.ids if left else ():
            try:
                pages = [
                    await self._context.cells[cell].read(partial(migrations.move_states, uuids=page)) for page in every
                ]
            except Unavailable as problem:
                logger.info("the moves of cell %s wait: %s", cell, problem)
                out = True
                continue
            for page in pages:
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
        """Those of these servers whose delete has ended: no operation will end their moves."""
        if not servers:
            return frozenset()
        mapped = await self._context.region.read(partial(audit_reads.mapped_among, ids=servers))
        return frozenset(each.id for each in mapped if each.deleted and each.operation is None)

    async def release_move(self, move: str, server: ServerId) -> bool:
        """While an operation holds the server, it may be about to move the claim back: the next round decides."""

        def work(tx: Tx) -> tuple[InventoryState, ...]:
            where = region_servers.find_and_hold(tx, server)
            if where is not None and where.operation is not None:
                return ()
            return self._context.placement.release(tx, move)

        rows = await self._context.region.write(work)
        self._context.placement.settle(rows)
        return bool(rows)

    async def release_stray(self, server: ServerId) -> bool:
        """Check one server; return whether it held something that it should not, and now holds nothing. Raises
        Unavailable when its cell does not answer.
        """
        seq = await self._seq_of_stray(server)
        return seq is not None and await self._release(server, seq)

    async def _seq_of_stray(self, server: ServerId) -> int | None:
        """The number of the server's operations, if it should hold nothing."""
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None or where.may_run:
            return None
        located = await records.find(self._context, server)
        if located.judges_nothing:
            return None
        record = located.server
        stray = record is None or record.deleted or (record.host is None and record.shelved is None)
        return where.op_seq if stray else None

    async def _release(self, server: ServerId, seq: int) -> bool:
        """Checked again in the transaction that releases: an operation may have begun, or begun and ended, since."""

        def work(tx: Tx) -> tuple[InventoryState, ...]:
            where = region_servers.find_and_hold(tx, server)
            if where is None or where.operation is not None or where.op_seq != seq or where.may_run:
                return ()
            return self._context.placement.release(tx, server)

        rows = await self._context.region.write(work)
        self._context.placement.settle(rows)
        return bool(rows)


def _pages(moves: set[str]) -> list[list[str]]:
    ordered = sorted(moves)
    return [ordered[at : at + PAGE] for at in range(0, len(ordered), PAGE)]


def _of_deleted(tx: Tx, moves: Sequence[str]) -> dict[str, ServerId]:
    """Those of these moves whose server the operation that made them has since deleted."""
    by_move: dict[str, ServerId] = {}
    for move, operation in claim_statements.made_by(tx, moves).items():
        made = region_operations.get(tx, operation)
        where = None if made is None or made.ended_at is None else region_servers.find(tx, made.server)
        if where is not None and where.deleted:
            by_move[move] = where.id
    return by_move
