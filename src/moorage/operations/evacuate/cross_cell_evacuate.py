"""Evacuation of a server that may leave its cell: with permission, to a host of any suitable cell.

    check_cells       which cells cannot use its volumes and addresses
    the steps of `evacuate`, on a host of any other cell, and
      open_cell       checks that the other cell's database accepts writes, else the next host is tried
    begin_copy, seal_record, copy_record    the record, as it will be shown, is written to the new host's cell
    show_there        the new record is shown (point of no return)
    record_left       the old record's move becomes `done`; on a host of its own cell, the record is changed in place
    leave_addresses, release_addresses

The old record stays, sealed, and the region marks it as hidden. Its migration tells the old host, when that returns, to
destroy its guest; what the move holds there is released then (conductor/returned_hosts.py). Afterwards the reconciler
`hidden_records` removes the record.
"""

import logging

import msgspec

from moorage.model.errors import Unavailable
from moorage.model.ids import CellId
from moorage.model.migration import Migration, MigrationStatus
from moorage.operations.evacuate.evacuate import (
    OVER,
    await_vifs,
    ended_well,
    evacuated,
    leave_addresses,
    prove_fenced,
    record_destination,
    release_addresses,
    show_evacuated,
    start_guest,
)
from moorage.operations.evacuate.evacuate_claim import (
    EvacuateRun,
    begin_action,
    bind_ports,
    check_cells,
    claim_host,
    connect_volumes,
    fence_source,
    read_ports,
)
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.operations.steps import moving, record_copies, second_records, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.second_records import SHOWN_THERE
from moorage.saga import Saga, on_some_host, step
from moorage.store.cell.record_transfer import RecordCopy

PATIENCE_S = 24 * 3600.0

logger = logging.getLogger(__name__)


def _home(run: EvacuateRun) -> CellId:
    """The cell of its record when this began."""
    return moving.current_end(run.input.server).cell


def _elsewhere(run: EvacuateRun) -> CellId | None:
    """The cell that gets its record; None when it stays in its cell."""
    claim = run.get(claim_host)
    return None if claim is None or claim.cell == _home(run) else claim.cell


@step(needs=(claim_host,), no_undo=second_records.A_FENCE)
async def open_cell(run: EvacuateRun) -> None:
    """Check that the new host's cell accepts writes before anything is bound there."""
    if (to := _elsewhere(run)) is not None:
        await second_records.open_cell_or_elsewhere(run, to)


@step(region=True, needs=(claim_host, start_guest))
async def begin_copy(run: EvacuateRun) -> None:
    """Mark the other cell's record as hidden."""
    to = _elsewhere(run)
    if to is None:
        await run.commit(lambda tx: None)
    else:
        await second_records.open_copy(run, to)


@begin_copy.undo
async def end_copy(run: EvacuateRun) -> None:
    """Remove the copy; a cell that does not answer removes it when it is back."""
    if (to := _elsewhere(run)) is not None:
        await second_records.drop_copy(run, to)


@step(needs=(claim_host, begin_copy))
async def seal_record(run: EvacuateRun) -> None:
    """Let requests that write wait for the other record."""
    if _elsewhere(run) is not None:
        await second_records.seal(run, _home(run))


@seal_record.undo
async def unseal_record(run: EvacuateRun) -> None:
    """Let requests write to the record again."""
    if _elsewhere(run) is not None:
        await second_records.unseal(run, _home(run))


@step(needs=(claim_host, seal_record), no_undo="the undo of begin_copy removes it: until then it is not shown")
async def copy_record(run: EvacuateRun) -> None:
    """Copy everything of the server to the other cell: on its new host, with action and move ended."""
    if (to := _elsewhere(run)) is None:
        return
    now, home, move = server_action.now_us(), _home(run), run.input.migration

    def done(each: Migration) -> Migration:
        status = MigrationStatus.DONE
        return msgspec.structs.replace(each, status=status, updated_at=now, source_cell=home, dest_cell=to)

    def rewritten(record: RecordCopy) -> RecordCopy:
        ended = record_copies.finished(record, server_action.request_of(run), ended_well(run, now), now)
        moves = tuple(done(each) if each.uuid == move else each for each in ended.migrations)
        return RecordCopy(evacuated(run, record.server, now), ended.actions, moves)

    await second_records.copy(run, home, to, rewritten)


@step(region=True, needs=(claim_host, copy_record), no_undo=SHOWN_THERE, point_of_no_return=True)
async def show_there(run: EvacuateRun) -> None:
    """From this commit on the server is shown in the cell of its host."""
    to = _elsewhere(run)
    if to is None:
        await run.commit(lambda tx: None)
    else:
        await second_records.show(run, _home(run), to)


@step(needs=(claim_host, show_there), no_undo=SHOWN_THERE, patience_s=PATIENCE_S)
async def record_left(run: EvacuateRun) -> None:
    """Set the old cell's move to `done`, so that what it holds is released when the old host returns; then the start
    counts.

    Another cell is tried once: its database is not waited for. A move that is `migrating` there counts as done when the
    server is shown elsewhere (`evacuations_over.left_at`).
    """
    claim = run[claim_host]
    if _elsewhere(run) is None:
        await show_evacuated(run)
        return
    try:
        await moving.show(run, _home(run), run.input.migration, MigrationStatus.DONE, unless=OVER)
    except Unavailable as out:
        logger.info(
            "%s: the old record of server %s is not marked as done: %s", run.operation, run.input.server.id, out.public
        )
    run.context.hosts.start_counts(claim.name, run.input.server.id, run.input.seq)


EVACUATE_CROSS_CELL = Saga(
    "evacuate/3",
    Evacuate,
    begin_action,
    fence_source,
    read_ports,
    check_cells,
    on_some_host(
        claim_host,
        open_cell,
        bind_ports,
        connect_volumes,
        record_destination,
        prove_fenced,
        start_guest,
        await_vifs,
        host=lambda claim: claim.host,
    ),
    begin_copy,
    seal_record,
    copy_record,
    show_there,
    record_left,
    leave_addresses,
    release_addresses,
    ended=records.release_server,
)
