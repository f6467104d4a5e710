"""Compares operations that were open when the region's database was backed up with what the cells have seen since (RULES §22).

Steps are idempotent, so an operation that was interrupted continues, with an epoch above all that cells and hosts know.  An
operation that a cell contradicts is ended and undoes nothing: what it would do or undo belongs to a later operation by now.
An operation is contradicted when

    any        the record is deleted, or a later operation or a later executor wrote it
    boot       the record is no longer being built, or is on another host than the last claim that is known here
    the others the action has ended in the cell that the region names

If two cells have a record of the server, the record that is not sealed counts.
"""

from collections.abc import Mapping, Sequence

import msgspec

from moorage.main.adopt_records import as_shown, moved_unknown, region_view_of
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.model.operation import OPEN_STATUSES, Operation, OperationStatus
from moorage.model.server import VmState
from moorage.saga.journal import Ended, StepResult, decode_lines, encode_lines
from moorage.sql import Database, Tx
from moorage.store.cell import identity as cell_identities
from moorage.store.cell.identity import KnownServer
from moorage.store.cell.servers import EPOCHS_PER_OPERATION
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

PAGE_ROWS = 500
EPOCHS_BETWEEN = 1_000
"""Margin: hosts may know this many epochs more than the cells do."""


async def settle_operations(region: Database, cells: Mapping[CellId, Database], now_us: int) -> tuple[int, list[str]]:
    """Continue or end each operation that was open at the backup. Returns how many continue, and a line for each that was ended."""
    going, lines = 0, list[str]()
    for operation in await _open(region):
        in_cells = {cell: await _read_seen(database, operation) for cell, database in cells.items()}
        where, shown = as_shown(in_cells, await region_view_of(region, ServerId(operation.server)))
        why, status = contradicted(operation, shown)
        if why:
            await _end(region, operation, where, in_cells, why, status, now_us)
            lines.append(f"operation {operation.id} ({operation.saga} of server {operation.server}) was ended: {why}")
            continue
        known = max((each.rank for each in in_cells.values()), default=0)
        epoch = known % EPOCHS_PER_OPERATION if known // EPOCHS_PER_OPERATION == operation.seq else 0
        above = max(operation.epoch, epoch) + EPOCHS_BETWEEN
        await region.write(lambda tx, id=operation.id, above=above: region_operations.raise_epoch(tx, id, above))  # type: ignore[misc]
        going += 1
    return going, lines


async def know_more(region: Database, cells: Mapping[CellId, Database]) -> bool:
    """Tell whether a cell has seen more of an open operation than the region knows: then the region is older than the cell.

    Marks alone do not show this.  They rise only every few seconds, so a backup that is a few seconds old may have the newest mark.
    """
    for operation in await _open(region):
        in_cells = {cell: await _read_seen(database, operation) for cell, database in cells.items()}
        view = await region_view_of(region, ServerId(operation.server))
        if is_behind(operation, list(in_cells.values())) or moved_unknown(in_cells, view, operation.seq):
            return True
    return False


def is_behind(operation: Operation, in_cells: Sequence[KnownServer]) -> bool:
    """Tell whether the cell has seen more of this operation than the region knows.

    The region counts an epoch before its executor writes to a cell, and has the claim of a host before a boot's record is written.
    """
    if max((each.rank for each in in_cells), default=0) > operation.seq * EPOCHS_PER_OPERATION + operation.epoch:
        return True
    boot = operation.saga.partition("/")[0] == "boot"
    return boot and any(each.record is not None for each in in_cells) and _claimed_host(operation) is None


async def _open(region: Database) -> list[Operation]:
    operations: list[Operation] = []
    marker: OperationId | None = None
    statuses = tuple(OPEN_STATUSES)
    while page := await region.read(
        lambda tx, marker=marker: region_operations.listed(tx, statuses=statuses, marker=marker, limit=PAGE_ROWS)  # type: ignore[misc]
    ):
        marker = page[-1].id
        operations += await region.read(lambda tx, page=page: region_operations.by_ids(tx, [each.id for each in page]))  # type: ignore[misc]
    return sorted(operations, key=lambda each: (each.server, each.seq))


async def _read_seen(database: Database, operation: Operation) -> KnownServer:
    request_id = operation.request_id or f"req-{operation.id}"
    return await database.read(lambda tx: cell_identities.seen(tx, ServerId(operation.server), request_id))


def contradicted(operation: Operation, in_cells: Sequence[KnownServer]) -> tuple[str, OperationStatus]:
    """Say why the operation must not continue, and how it ended; an empty sentence: it may continue."""
    record = next((each.record for each in in_cells if each.record is not None), None)
    rank = max((each.rank for each in in_cells), default=0)
    own = operation.seq * EPOCHS_PER_OPERATION + operation.epoch
    name = operation.saga.partition("/")[0]
    if record is not None and record.deleted:
        return "its server was deleted", OperationStatus.DONE if name == "delete" else OperationStatus.UNDONE
    if name == "boot":
        if record is None:
            return "", OperationStatus.OPEN
        if record.vm_state is not VmState.BUILDING or rank // EPOCHS_PER_OPERATION > operation.seq:
            return f"its server is {record.vm_state.value} in its cell", OperationStatus.DONE
        if record.host != _claimed_host(operation):
            return f"its server is being built on {record.host}, which was chosen since", OperationStatus.UNDONE
        return "", OperationStatus.OPEN
    if rank > own and record is not None:
        return "its server was changed by somebody later", OperationStatus.UNDONE
    if name != "delete" and any(each.finished for each in in_cells):
        failed = any(each.failed for each in in_cells)
        return "its action has ended in the cell", OperationStatus.UNDONE if failed else OperationStatus.DONE
    return "", OperationStatus.OPEN


def _claimed_host(operation: Operation) -> str | None:
    """The host of the last claim in a boot's journal."""
    names = [
        msgspec.json.decode(line.value).get("name")
        for line in decode_lines(operation.journal)
        if isinstance(line, StepResult) and line.step == "claim_host"
    ]
    return None if not names else str(names[-1])


async def _end(
    region: Database,
    operation: Operation,
    where: CellId | None,
    in_cells: Mapping[CellId, KnownServer],
    why: str,
    status: OperationStatus,
    now_us: int,
) -> None:
    line = encode_lines([Ended("done" if status is OperationStatus.DONE else "unwound")]).encode()
    server = ServerId(operation.server)
    deleted = any(each.record is not None and each.record.deleted for each in in_cells.values())

    def work(tx: Tx) -> None:
        end = region_operations.JournalWrite(
            epoch=operation.epoch,
            head=operation.head,
            after=operation.head + 1,
            more=line,
            spill=len(operation.journal) > region_operations.JOURNAL_MAX_BYTES,
            status=status,
            ended=True,
            fault=f"the region's database was restored, and {why}",
        )
        region_operations.append(tx, operation.id, end)
        heir = region_servers.release(tx, server, operation.id, drop_order=where is not None)
        if heir is not None:
            region_operations.let_begin(tx, heir)
        if where is not None:
            region_servers.recorded_in(tx, server, where)
        if deleted:
            region_servers.mark_deleted(tx, server, now_us)

    await region.write(work)
