"""Live migration of a server that may leave its cell: with permission, to a host of a cell that is linked with its own.

    check_cells       which cells are unsuitable: not linked (`[compute] cell_links`), without its volumes or addresses
    the steps of `live_migrate`, on a host of any other cell, and
      open_cell       checks that the other cell's database accepts writes, else the next host is tried
    switch_guest      the source sends to the destination, as within a cell (point of no return)
    activate_bindings, complete_volumes, land_guest
    begin_copy, seal_record, copy_record, show_there    the record is written to the new host's cell, and shown there
    record_moved      on a host of its own cell, the record is changed in place instead
    clear_source, drop_source_volumes, drop_source_bindings, release_source
    remove_record, forget_hidden    the old record is removed; it stays while the guest is lost: the old host needs it
    record_completed

The hosts send to each other, so only cells whose hosts reach one another are considered. From the switch on the saga
only goes forward, and waits for a cell that does not answer.
"""

import msgspec

from moorage.model.ids import CellId
from moorage.model.migration import Migration
from moorage.operations.live_migrate.live_migrate import (
    FORWARD_ONLY,
    FORWARD_PATIENCE_S,
    HOSTS_TRIED_MAX,
    activate_bindings,
    bound_twice,
    clear_source,
    complete_volumes,
    drop_source_bindings,
    drop_source_volumes,
    keeps_source,
    land_guest,
    moved,
    record_completed,
    record_moved,
    release_source,
    switch_guest,
)
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate
from moorage.operations.live_migrate.prepare_destination import (
    LiveRun,
    await_vifs,
    begin_action,
    bind_destination,
    check_cells,
    check_destination,
    check_source,
    claim_host,
    export_volumes,
    prepare_guest,
    read_ports,
    record_destination,
)
from moorage.operations.steps import moving, second_records
from moorage.operations.steps import servers as records
from moorage.saga import Saga, on_some_host, step
from moorage.store.cell.record_transfer import RecordCopy


def _home(run: LiveRun) -> CellId:
    """The cell of its record when this began."""
    return moving.current_end(run.input.server).cell


def _elsewhere(run: LiveRun) -> CellId | None:
    """The cell that gets its record; None when it stays in its cell."""
    claim = run[claim_host]
    return None if claim.cell == _home(run) else claim.cell


@step(needs=(claim_host,), no_undo=second_records.A_FENCE)
async def open_cell(run: LiveRun) -> None:
    """Check that the new host's cell accepts writes before anything is made there."""
    if (to := _elsewhere(run)) is not None:
        await second_records.open_cell_or_elsewhere(run, to)


@step(region=True, needs=(claim_host, land_guest), no_undo=FORWARD_ONLY)
async def begin_copy(run: LiveRun) -> None:
    """Mark the other cell's record as hidden."""
    to = _elsewhere(run)
    if to is None:
        await run.commit(lambda tx: None)
    else:
        await second_records.open_copy(run, to)


@step(needs=(claim_host, begin_copy), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def seal_record(run: LiveRun) -> None:
    """Let requests that write wait for the other record."""
    if _elsewhere(run) is not None:
        await second_records.seal(run, _home(run))


@step(needs=(read_ports, claim_host, seal_record), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def copy_record(run: LiveRun) -> None:
    """Copy everything of the server to the other cell, on its new host; for a lost guest also what its old host keeps."""
    if (to := _elsewhere(run)) is None:
        return
    home, move = _home(run), run.input.migration
    second = await bound_twice(run, run[claim_host], run[read_ports])

    def across(each: Migration) -> Migration:
        return msgspec.structs.replace(each, source_cell=home, dest_cell=to) if each.uuid == move else each

    def rewritten(record: RecordCopy) -> RecordCopy:
        server = moved(run, record.server, second=second)
        return RecordCopy(server, record.actions, tuple(map(across, record.migrations)))

    await second_records.copy(run, home, to, rewritten)


@step(region=True, needs=(claim_host, copy_record), no_undo=FORWARD_ONLY)
async def show_there(run: LiveRun) -> None:
    """From this commit on the server is shown in the cell of its host."""
    if (to := _elsewhere(run)) is not None:
        await second_records.show(run, _home(run), to)


@step(needs=(claim_host, land_guest, show_there), no_undo=FORWARD_ONLY)
async def remove_record(run: LiveRun) -> bool:
    """Remove the old record. Returns False when it stays for now: its cell does not answer, or the old host keeps what
    was lost.
    """
    if _elsewhere(run) is None:
        return True
    return not await keeps_source(run) and await second_records.removed(run, _home(run))


@step(region=True, needs=(claim_host, remove_record), no_undo=FORWARD_ONLY)
async def forget_hidden(run: LiveRun) -> None:
    """Remove the marks of hidden records when the old record is gone."""
    if _elsewhere(run) is not None and run[remove_record]:
        await second_records.forget(run, _home(run))


LIVE_MIGRATE_CROSS_CELL = Saga(
    "live_migrate/2",
    LiveMigrate,
    begin_action,
    read_ports,
    check_source,
    check_cells,
    on_some_host(
        claim_host,
        open_cell,
        check_destination,
        bind_destination,
        record_destination,
        export_volumes,
        prepare_guest,
        await_vifs,
        max_attempts=HOSTS_TRIED_MAX,
        host=lambda claim: claim.host,
    ),
    switch_guest,
    activate_bindings,
    complete_volumes,
    land_guest,
    begin_copy,
    seal_record,
    copy_record,
    show_there,
    record_moved,
    clear_source,
    drop_source_volumes,
    drop_source_bindings,
    release_source,
    remove_record,
    forget_hidden,
    record_completed,
    ended=records.release_server,
)
