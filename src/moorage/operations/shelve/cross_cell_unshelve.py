"""Unshelve of an offloaded server that may leave its cell: with permission, on a host of any suitable cell.

    check_cells       which cells cannot use its volumes and addresses
    the steps of `unshelve`, on a host of any other cell, and
      open_cell       checks that the other cell accepts writes, else the next host is tried
    begin_copy, seal_record, copy_record    the record, as it will be shown, is written to the new host's cell
    show_there        the new record is shown (point of no return)
    announce_here     on a host of its own cell, the record is changed in place instead
    leave_addresses, release_addresses, delete_image, remove_record, forget_hidden

It is on no host when it begins, so nothing is sent, and only the new host is used. Until the new record is shown, the
server's record is the one in its old cell, which a failure leaves unchanged.
"""

from moorage.model.ids import CellId
from moorage.operations.shelve.unshelve import (
    await_vifs,
    delete_image,
    ended_well,
    leave_addresses,
    record_host,
    release_addresses,
    show_active,
    start_guest,
    unshelved,
)
from moorage.operations.shelve.unshelve_claim import (
    UnshelveRun,
    begin_action,
    bind_ports,
    cell_at_begin,
    check_cells,
    check_image,
    claim_host,
    connect_volumes,
    read_ports,
)
from moorage.operations.steps import record_copies, second_records, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.second_records import SHOWN_THERE
from moorage.operations.unshelve_input import Unshelve
from moorage.saga import Saga, on_some_host, step
from moorage.store.cell.record_transfer import RecordCopy

IN_ITS_CELL = "the server is shown ACTIVE from here on"


def _elsewhere(run: UnshelveRun) -> CellId | None:
    """The cell that gets its record; None when it stays in its cell."""
    claim = run.get(claim_host)
    return None if claim is None or claim.cell == cell_at_begin(run) else claim.cell


@step(needs=(claim_host,), no_undo=second_records.A_FENCE)
async def open_cell(run: UnshelveRun) -> None:
    """Check that the new host's cell accepts writes before anything is bound there."""
    if (to := _elsewhere(run)) is not None:
        await second_records.open_cell_or_elsewhere(run, to)


@step(region=True, needs=(claim_host, start_guest))
async def begin_copy(run: UnshelveRun) -> None:
    """Mark the other cell's record as hidden."""
    to = _elsewhere(run)
    if to is None:
        await run.commit(lambda tx: None)
    else:
        await second_records.open_copy(run, to)


@begin_copy.undo
async def end_copy(run: UnshelveRun) -> None:
    """Remove the copy; a cell that does not answer removes it when it is back."""
    if (to := _elsewhere(run)) is not None:
        await second_records.drop_copy(run, to)


@step(needs=(claim_host, begin_copy))
async def seal_record(run: UnshelveRun) -> None:
    """Let requests that write wait for the other record."""
    if _elsewhere(run) is not None:
        await second_records.seal(run, cell_at_begin(run))


@seal_record.undo
async def unseal_record(run: UnshelveRun) -> None:
    """Let requests write to the record again."""
    if _elsewhere(run) is not None:
        await second_records.unseal(run, cell_at_begin(run))


@step(needs=(claim_host, seal_record), no_undo="the undo of begin_copy removes it: until then it is not shown")
async def copy_record(run: UnshelveRun) -> None:
    """Copy everything of the server: ACTIVE, on its host, with its action finished."""
    if (to := _elsewhere(run)) is None:
        return
    now = server_action.now_us()

    def rewritten(record: RecordCopy) -> RecordCopy:
        ended = record_copies.finished(record, server_action.request_of(run), ended_well(run, now), now)
        return RecordCopy(unshelved(run, record.server, now), ended.actions, ended.migrations)

    await second_records.copy(run, cell_at_begin(run), to, rewritten)


@step(region=True, needs=(claim_host, copy_record), no_undo=SHOWN_THERE, point_of_no_return=True)
async def show_there(run: UnshelveRun) -> None:
    """From this commit on the server is shown in the cell of its host."""
    to = _elsewhere(run)
    if to is None:
        await run.commit(lambda tx: None)
    else:
        await second_records.show(run, cell_at_begin(run), to)


@step(needs=(claim_host, show_there), no_undo=IN_ITS_CELL)
async def announce_here(run: UnshelveRun) -> None:
    """Show ACTIVE on a host of its own cell; in another cell it is shown so already."""
    if _elsewhere(run) is None:
        await show_active(run)


@step(needs=(claim_host, show_there), no_undo=SHOWN_THERE)
async def remove_record(run: UnshelveRun) -> bool:
    """Remove the old record. Returns False when its cell does not answer; it is not waited for."""
    return _elsewhere(run) is None or await second_records.removed(run, cell_at_begin(run))


@step(region=True, needs=(claim_host, remove_record), no_undo=SHOWN_THERE)
async def forget_hidden(run: UnshelveRun) -> None:
    """Remove the mark of the hidden record when the old record is gone."""
    if _elsewhere(run) is not None and run[remove_record]:
        await second_records.forget(run, cell_at_begin(run))


UNSHELVE_CROSS_CELL = Saga(
    "unshelve/3",
    Unshelve,
    begin_action,
    check_image,
    read_ports,
    check_cells,
    on_some_host(
        claim_host,
        open_cell,
        bind_ports,
        connect_volumes,
        record_host,
        start_guest,
        await_vifs,
        host=lambda claim: claim.host,
    ),
    begin_copy,
    seal_record,
    copy_record,
    show_there,
    announce_here,
    leave_addresses,
    release_addresses,
    delete_image,
    remove_record,
    forget_hidden,
    ended=records.release_server,
)
