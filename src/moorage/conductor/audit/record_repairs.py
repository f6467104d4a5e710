"""Repairs mappings and records."""

from collections.abc import Callable
from functools import partial

import msgspec

from moorage.model.audit import Finding
from moorage.model.clock import Clock
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.model.migration import MigrationStatus
from moorage.model.server import Fault, Server, VmState
from moorage.operations.context import SagaContext
from moorage.sql import Tx
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import migrations, record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import EPOCHS_PER_OPERATION, Fence
from moorage.store.region import audit_reads, hidden_records
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region.servers import Whereabouts
from moorage.store.servers import server_values

LINES_MAX = 2**31 - 1
NOBODY = "No operation was building the server any more; an audit found this."


class RecordRepairs:
    def __init__(self, context: SagaContext, clock: Clock) -> None:
        self._context, self._clock = context, clock

    @property
    def _now_us(self) -> int:
        return int(self._clock.now() * 1_000_000)

    async def _rows(self, server: ServerId) -> dict[CellId, Server]:
        """The living records of a server: no hidden ones, and a sealed one only in the cell that the region names.

        Raises Unavailable when a cell does not answer.
        """

        def read(tx: Tx) -> tuple[Whereabouts | None, frozenset[CellId]]:
            return region_servers.find(tx, server), hidden_records.open_of(tx, [server]).get(server, frozenset())

        where, hidden = await self._context.region.read(read)
        rows: dict[CellId, Server] = {}
        for cell in self._context.cells.ids:
            row, sealed = await self._context.cells[cell].read(partial(cell_servers.get_with_seal, server=server))
            named = where is not None and where.cell == cell
            if row is not None and not row.deleted and cell not in hidden and (named or not sealed):
                rows[cell] = row
        return rows

    async def _free(self, server: ServerId) -> Whereabouts | None:
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        return None if where is None or where.operation is not None else where

    async def learn(self, finding: Finding) -> str:
        """Only for a server with a record in exactly one cell."""
        rows = await self._rows(ServerId(finding.server))
        if len(rows) != 1:
            return ""
        [(cell, row)] = rows.items()

        def work(tx: Tx) -> bool:
            if region_servers.find(tx, row.id) is not None:
                return False
            audit_reads.learn(tx, server_values(row), row.op_epoch // EPOCHS_PER_OPERATION, cell)
            return True

        return f"the region has it in {cell}" if await self._context.region.write(work) else ""

    async def map_to(self, finding: Finding) -> str:
        where = await self._free(ServerId(finding.server))
        rows = await self._rows(ServerId(finding.server))
        if where is None or len(rows) != 1:
            return ""
        [cell] = rows
        done = await self._context.region.write(lambda tx: audit_reads.map_to(tx, where.id, cell, where.op_seq))
        return f"mapped to {cell}, before {where.cell}" if done else ""

    async def remove_older(self, finding: Finding) -> str:
        """Only when the region names one cell, and the record there is newer and not sealed: two independent
        indications.
        """
        where = await self._free(ServerId(finding.server))
        rows = await self._rows(ServerId(finding.server))
        mine = None if where is None or where.cell is None else rows.get(where.cell)
        if where is None or where.cell is None or mine is None or await self._is_sealed(where.cell, where.id):
            return ""
        gone: list[str] = []
        for cell, row in rows.items():
            if cell != where.cell and row.op_epoch < mine.op_epoch:
                await self._context.cells[cell].write(partial(cell_servers.remove, server=row.id, fence=_fence_of(row)))
                gone.append(cell)
        return f"removed in {', '.join(gone)}" if gone else ""

    async def _is_sealed(self, cell: CellId, server: ServerId) -> bool:
        return await self._context.cells[cell].read(partial(record_transfer.is_sealed, server=server))

    async def hide(self, finding: Finding) -> str:
        """Hide a sealed record when another cell's record is shown, and remove it when it is no longer needed; at once
        for a deleted server.

        A sealed record in the region's own cell is shown: it takes writes again.
        """
        server, cell = ServerId(finding.server), CellId(finding.where)
        where = await self._free(server)
        if where is None or where.cell is None or not await self._is_sealed(cell, server):
            return ""
        if where.cell == cell and not where.deleted:
            return await self._unseal(where, cell)
        if not await self._context.region.write(lambda tx: _if_still(tx, where, hidden_records.open_row, cell)):
            return ""
        if not where.deleted:
            return "hidden"
        last = Fence(OperationId("audit"), where.op_seq, EPOCHS_PER_OPERATION - 1, LINES_MAX)
        gone = await self._context.cells[cell].write(
            lambda tx: record_transfer.remove_unless_waited_for(tx, server, cell, last)
        )
        return "hidden" if not gone else "removed" if await self._end(where, cell) else ""

    async def _unseal(self, where: Whereabouts, cell: CellId) -> str:
        """No operation holds the server, and no other cell's record is about to be shown."""
        if set(await self._rows(where.id)) != {cell}:
            return ""

        def work(tx: Tx) -> bool:
            row = cell_servers.get(tx, where.id)
            if row is None or row.op_epoch // EPOCHS_PER_OPERATION > where.op_seq:
                return False
            record_transfer.unseal(tx, where.id, _fence_of(row))
            return True

        return "shown, and written to again" if await self._context.cells[cell].write(work) else ""

    async def end_hidden(self, finding: Finding) -> str:
        """End the row of a hidden record that does not exist."""
        server, cell = ServerId(finding.server), CellId(finding.where)
        where = await self._free(server)
        if where is None or await self._context.cells[cell].read(partial(cell_servers.get, server=server)) is not None:
            return ""
        return "ended" if await self._end(where, cell) else ""

    async def _end(self, where: Whereabouts, cell: CellId) -> bool:
        now = self._now_us

        def end(tx: Tx, server: ServerId, of: CellId) -> None:
            hidden_records.end_row(tx, server, of, now)

        return await self._context.region.write(lambda tx: _if_still(tx, where, end, cell))

    async def mark_deleted(self, finding: Finding) -> str:
        server, now = ServerId(finding.server), self._now_us
        where = await self._free(server)
        if where is None or where.recorded_in is None:
            return ""
        row = await self._context.cells[where.recorded_in].read(lambda tx: cell_servers.get(tx, server))
        if row is None or not row.deleted:
            return ""

        def work(tx: Tx) -> bool:
            held = region_servers.find_and_hold(tx, server)
            if held is None or held.operation is not None or held.op_seq != where.op_seq:
                return False
            region_servers.mark_deleted(tx, server, row.deleted_at or now)
            return True

        return "deleted in the region too" if await self._context.region.write(work) else ""

    async def mark_record_deleted(self, finding: Finding) -> str:
        server, now = ServerId(finding.server), self._now_us
        where = await self._free(server)
        if where is None or not where.deleted:
            return ""
        await self._context.cells[CellId(finding.where)].write(
            lambda tx: cell_identities.mark_deleted(tx, [server], now)
        )
        return "the record is deleted"

    async def drop_order(self, finding: Finding) -> str:
        server = ServerId(finding.server)
        where = await self._free(server)
        if where is None or where.order is None or where.cell is None or where.cell not in await self._rows(server):
            return ""
        cell = where.cell
        done = await self._context.region.write(lambda tx: audit_reads.map_to(tx, server, cell, where.op_seq))
        return "the order is dropped" if done else ""

    async def clear_task(self, finding: Finding) -> str:
        server, cell = ServerId(finding.server), CellId(finding.where)
        if await self._free(server) is None:
            return ""

        def work(tx: Tx) -> bool:
            row = cell_servers.get(tx, server)
            if row is None or row.task_state is None:
                return False
            cell_servers.write(tx, msgspec.structs.replace(row, task_state=None), _fence_of(row))
            return True

        return "cleared" if await self._context.cells[cell].write(work) else ""

    async def show_error(self, finding: Finding) -> str:
        server = ServerId(finding.server)
        where = await self._free(server)
        if where is None:
            return ""
        fault = Fault(500, NOBODY, self._now_us)
        if where.order is None:
            changed = await self._context.cells[CellId(finding.where)].write(
                lambda tx: cell_identities.settle(tx, [server], fault)
            )
            return "in ERROR" if changed else ""
        failed = msgspec.structs.replace(
            where.order,
            vm_state=VmState.ERROR,
            task_state=None,
            fault=fault,
            updated_at=fault.created_at,
            generation=where.order.generation + 1,
        )

        def work(tx: Tx) -> bool:
            held = region_servers.find_and_hold(tx, server)
            same = held is not None and held.operation is None and held.op_seq == where.op_seq
            return same and region_servers.write_order(tx, failed)

        return "in ERROR" if await self._context.region.write(work) else ""

    async def release_lock(self, finding: Finding) -> str:
        """Release the server lock; the operation that waited in line begins."""
        server = ServerId(finding.server)

        def work(tx: Tx) -> bool:
            rows = audit_reads.mapped_among(tx, [server])
            if not rows or rows[0].operation is None or not rows[0].slot_left:
                return False
            heir = region_servers.release(tx, server, OperationId(rows[0].operation))
            if heir is not None:
                region_operations.let_begin(tx, heir)
            return True

        return "released" if await self._context.region.write(work) else ""

    async def end_migration(self, finding: Finding) -> str:
        if await self._free(ServerId(finding.server)) is None:
            return ""
        now = self._now_us

        def work(tx: Tx) -> bool:
            row = migrations.get(tx, finding.what)
            if row is None or row.ended:
                return False
            migrations.put(tx, msgspec.structs.replace(row, status=MigrationStatus.ERROR, updated_at=now))
            return True

        for cell in self._context.cells.ids:
            if await self._context.cells[cell].write(work):
                return "recorded as failed"
        return ""

    async def forget_fence(self, finding: Finding) -> str:
        server = ServerId(finding.server)
        if await self._context.region.read(lambda tx: region_servers.find(tx, server)) is not None:
            return ""
        await self._context.cells[CellId(finding.where)].write(lambda tx: cell_servers.forget_fences(tx, [server]))
        return "forgotten"


def _if_still(tx: Tx, where: Whereabouts, change: Callable[[Tx, ServerId, CellId], None], cell: CellId) -> bool:
    """Write the change, if no operation began on the server since."""
    held = region_servers.find_and_hold(tx, where.id)
    if held is None or held.operation is not None or held.op_seq != where.op_seq or held.cell != where.cell:
        return False
    change(tx, where.id, cell)
    return True


def _fence_of(row: Server) -> Fence:
    """With the fence of the last writer: no later operation is refused because of it."""
    operation = row.operation or OperationId("audit")
    return Fence(operation, row.op_epoch // EPOCHS_PER_OPERATION, row.op_epoch % EPOCHS_PER_OPERATION, row.op_line)
