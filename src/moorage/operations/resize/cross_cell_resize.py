"""Resize and cold migration that may end in another cell, for callers with that permission (docs/decisions/0021).

    check_neighbours  which cells are unsuitable, and why
    on a host of any cell, and if that one refuses on the next one:
      claim_host, prepare_host
      open_cell       the other cell accepts writes; a cell that does not answer costs no attempt
      bind_destination, reserve_volumes   refusals are found here, before the guest is changed
      record_destination
      hold_image, stop_guest, take_snapshot, upload_image   the disk goes through the image service, once
      send_guest, land_guest       only within the cell
      switch_volumes, activate_bindings, start_guest, await_vifs
    begin_copy, seal_record, copy_record   the record, as it will be shown, is in the other cell, and hidden
    show_there        one commit shows that record (point of no return)
    record_resized    within the cell: the record says VERIFY_RESIZE
    delete_image

From `stop_guest` on the guest is off through all attempts, so the image, which later attempts use again, is never older
than the disk. No host sends to a host of another cell. A move within its cell is done as in `resize/1`: steps for
another cell do nothing then.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from moorage.model.errors import Problem
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.migration import MigrationStatus
from moorage.model.server import TaskState, VmState
from moorage.operations.boot.boot import Claim
from moorage.operations.images.snapshot import IMAGE_PATIENCE_S
from moorage.operations.resize import prepare_resize, resize, transfer_image
from moorage.operations.resize.prepare_cross_cell import (
    check_services,
    claim_host,
    left_cell,
    open_cell,
    prepare_host,
    record_destination,
    reserve_volumes,
    server_of,
    stays_in_cell,
)
from moorage.operations.resize.prepare_resize import (
    HOST_PATIENCE_S,
    ResizeRun,
    activate_bindings,
    begin_action,
    bind_destination,
    check_source,
    read_ports,
)
from moorage.operations.resize.resize import await_vifs, switch_volumes
from moorage.operations.resize.resize_input import Resize
from moorage.operations.steps import moving, record_copies, second_records, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import SILENT, command_context, source_command_context
from moorage.operations.steps.moving import End
from moorage.saga import Saga, on_some_host, step
from moorage.sql import Tx
from moorage.store.cell.record_transfer import RecordCopy

PATIENCE_S = 24 * 3600.0
FORWARD_ONLY = "the server has been shown on its new host"


@step(
    moves=True,
    needs=(begin_action, claim_host, record_destination, transfer_image.hold_image),
    patience_s=HOST_PATIENCE_S,
)
async def stop_guest(run: ResizeRun) -> None:
    """Switch the guest off, for any destination. It stays off: its disk no longer changes."""
    server = server_of(run)
    if server.vm_state is not VmState.ACTIVE:
        return
    await records.not_overtaken(run, left_cell(run))
    with moving.nowhere_else():
        await run.context.hosts.power_off(
            server_action.host_of(run[begin_action]), command_context(run, "stop_guest"), server.id
        )


@stop_guest.undo
async def start_source(run: ResizeRun) -> None:
    """Runs only in the final unwinding: a guest that was on is switched on again, with its volumes. No other host has
    it by then.

    A server that is to be deleted stays off: the unwinding does not wait then for a silent host, which may still run
    the guest.
    """
    server, mine = run.input.server, partial(source_command_context, run)
    await prepare_resize.plug_volumes_again(run, mine)
    if server.vm_state is VmState.ACTIVE and (not await moving.for_delete(run) or await _is_gone(run)):
        await moving.switch_on_again(run, mine("start_source"))


async def _is_gone(run: ResizeRun) -> bool:
    """Whether the claimed host has nothing of it any more."""
    claim = run.get(claim_host)
    if claim is None or claim.name == run.input.server.host:
        return True
    source = moving.current_end(run.input.server)
    return await moving.take_back_guest(run, "drop_sent", claim, run.input.migration, same_host=False, source=source)


@step(
    host_local=True,
    needs=(begin_action, claim_host, prepare_host, record_destination, stop_guest, transfer_image.upload_image),
    patience_s=IMAGE_PATIENCE_S,
)
async def send_guest(run: ResizeRun) -> None:
    """Within its cell the disk is sent from host to host."""
    if stays_in_cell(run):
        await prepare_resize.send_guest.do(run)


@send_guest.undo
async def end_sending(run: ResizeRun) -> None:
    """Remove what was sent. The guest stays off, because another host may be tried."""
    claim = run.get(claim_host)
    if claim is None or claim.cell != run.input.server.cell:
        return
    source, mine = moving.current_end(run.input.server), command_context(run, "end_sending")
    await moving.if_there(run.context.hosts.power_off(source.address, mine, run.input.server.id))
    if claim.name != run.input.server.host:
        move = run.input.migration
        await moving.take_back_guest(run, "drop_what_came", claim, move, same_host=False, source=source)


@step(
    host_local=True,
    needs=(begin_action, read_ports, claim_host, send_guest, switch_volumes, activate_bindings),
    patience_s=HOST_PATIENCE_S,
)
async def land_guest(run: ResizeRun) -> None:
    """Within its cell the new host makes the guest from what was sent."""
    if stays_in_cell(run):
        await resize.land_guest.do(run)


@land_guest.undo
async def drop_guest(run: ResizeRun) -> None:
    claim = run.get(claim_host)
    if claim is not None and claim.cell == run.input.server.cell:
        same, source = claim.name == run.input.server.host, moving.current_end(run.input.server)
        await moving.take_back_guest(run, "drop_guest", claim, run.input.migration, same_host=same, source=source)


@step(
    host_local=True,
    needs=(claim_host, transfer_image.hold_image, switch_volumes, activate_bindings, land_guest),
    patience_s=HOST_PATIENCE_S,
)
async def start_guest(run: ResizeRun) -> PowerState:
    """Switch it on there, or leave it off as it was; in another cell it is made from the image of its disk, or from its
    volumes.
    """
    if stays_in_cell(run):
        return await resize.start_guest.do(run)
    claim, image = run[claim_host], run[transfer_image.hold_image]
    await records.not_overtaken(run, left_cell(run), TaskState.RESIZE_FINISH)
    guest = await resize.guest_there(run, run[activate_bindings])
    guest = msgspec.structs.replace(guest, image=image or guest.image)
    return await _started(run, claim, guest)


async def _started(run: ResizeRun, claim: Claim, guest: GuestSpec) -> PowerState:
    to = End(claim.cell, claim.name).address
    try:
        with moving.elsewhere_only(
            but=tuple(SILENT)
        ):  # it may run there: no other host starts it before this is decided
            state = await run.context.hosts.start_guest(to, command_context(run, "start_guest"), guest)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise
    run.context.placement.count_failure(claim.host, failed=False)
    return state


@start_guest.undo
async def destroy_guest(run: ResizeRun) -> None:
    """Destroy the guest. A silent host may run it: the old guest is not started until that host answers or is fenced
    (RULES §11).
    """
    assert resize.start_guest.undo_with is not None
    await resize.start_guest.undo_with(run)


# ------------------------------------------------------------------------------------------------------ the records


@step(region=True, needs=(claim_host, await_vifs))
async def begin_copy(run: ResizeRun) -> None:
    """Mark the other cell's record as hidden."""
    if not stays_in_cell(run):
        await second_records.open_copy(run, run[claim_host].cell)


@begin_copy.undo
async def end_copy(run: ResizeRun) -> None:
    """Remove the copy; a cell that does not answer removes it when it is back."""
    claim = run.get(claim_host)
    if claim is not None and claim.cell != run.input.server.cell:
        await second_records.drop_copy(run, claim.cell)


@step(needs=(claim_host, begin_copy))
async def seal_record(run: ResizeRun) -> None:
    """Let requests that write wait for the other record."""
    if not stays_in_cell(run):
        await second_records.seal(run, left_cell(run))


@seal_record.undo
async def unseal_record(run: ResizeRun) -> None:
    """Let requests write to the record again."""
    await second_records.unseal(run, moving.current_end(run.input.server).cell)


@step(
    needs=(read_ports, claim_host, activate_bindings, start_guest, begin_copy, seal_record),
    no_undo="the undo of begin_copy removes it: until then it is not shown",
)
async def copy_record(run: ResizeRun) -> None:
    """Copy everything of the server: VERIFY_RESIZE on its new host, with action and move finished."""
    if stays_in_cell(run):
        return
    written = await second_records.copy(run, left_cell(run), run[claim_host].cell, _finished(run))
    if run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, written)


def _finished(run: ResizeRun) -> Callable[[RecordCopy], RecordCopy]:
    now, request = server_action.now_us(), server_action.request_of(run)
    events = resize.events_of(run, now)

    def rewritten(record: RecordCopy) -> RecordCopy:
        copied = record_copies.finished(record, request, events, now)
        copied = record_copies.with_status(copied, run.input.migration, MigrationStatus.FINISHED, now)
        return msgspec.structs.replace(copied, server=resize.resized(run, record.server, now))

    return rewritten


@step(
    region=True,
    needs=(claim_host, seal_record, copy_record),
    no_undo="a server that is shown in another cell is reverted by another operation",
    point_of_no_return=True,
)
async def show_there(run: ResizeRun) -> None:
    """From this commit on the server is shown in the other cell; within its cell only the journal lines are written."""
    claim = run[claim_host]
    if stays_in_cell(run):
        await run.commit(lambda tx: None)
        return
    await second_records.show(run, left_cell(run), claim.cell)
    run.context.hosts.start_counts(claim.name, run.input.server.id, run.input.seq)


@step(needs=(read_ports, claim_host, activate_bindings, show_there), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def record_resized(run: ResizeRun) -> None:
    """Within its cell: show VERIFY_RESIZE on the new host, in the new size, and finish the action."""
    if stays_in_cell(run):
        await resize.record_resized.do(run)


def _ended(tx: Tx, run: ResizeRun, status: str) -> None:
    assert resize.RESIZE.ended is not None
    resize.RESIZE.ended(tx, run, status)


RESIZE_ACROSS_CELLS = Saga(
    "resize/2",
    Resize,
    begin_action,
    check_source,
    read_ports,
    check_services,
    on_some_host(
        claim_host,
        prepare_host,
        open_cell,
        bind_destination,
        reserve_volumes,
        record_destination,
        transfer_image.hold_image,
        stop_guest,
        transfer_image.take_snapshot,
        transfer_image.upload_image,
        send_guest,
        switch_volumes,
        activate_bindings,
        land_guest,
        start_guest,
        await_vifs,
        host=lambda claim: claim.host,
    ),
    begin_copy,
    seal_record,
    copy_record,
    show_there,
    record_resized,
    transfer_image.delete_image,
    ended=_ended,
)
