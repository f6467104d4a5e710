"""A small region with a server that was moved to the other cell, and waits there to be confirmed or reverted: for proofs."""

from typing import Any

import msgspec

from moorage.model.ids import OperationId
from moorage.model.migration import MigrationStatus
from moorage.operations import move_claims, resize
from moorage.operations.boot import Claim
from moorage.operations.confirm_resize import ConfirmResize
from moorage.operations.delete import Delete
from moorage.operations.resize import ResizeRun
from moorage.operations.resize_asked import tries_of
from moorage.operations.revert_resize import RevertResize
from moorage.operations.steps import doing, moving, record_copies, second_records
from moorage.operations.steps.hosts import errand
from moorage.saga import Paper, first_lines, tell
from moorage.sql import Tx
from moorage.store.cell.copies import RecordCopy
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage.testing.sagas import PROVED_OPERATION
from moorage.testing.small_moved import RESIZED, recorded, resizing
from moorage.testing.small_region import CELLS, SERVER, SmallRegion


async def _claim_there(run: ResizeRun) -> Claim:
    cards, server = run[resize.read_ports], run[resize.begin_action].server
    assert server is not None
    return await move_claims.claimed(run, tries_of(run.asked, server, cards, CELLS[1], run.blamed), cards)


async def _switch_off(run: ResizeRun) -> None:
    here = moving.here(run.asked.server).address
    await run.rooms.hosts.power_off(here, errand(run, "stop_guest"), run.asked.server.id)


async def _nothing(run: ResizeRun) -> None:
    """No host speaks to one of another cell."""


async def _record_there(run: ResizeRun) -> None:
    """The copy, and the flip."""
    left, to = CELLS
    await run.rooms.region.write(lambda tx: hidden_records.open_row(tx, SERVER, to))
    await second_records.seal(run, left)

    def rewritten(record: RecordCopy) -> RecordCopy:
        now = doing.now_us()
        after = resize.resized(run, record.server, now)
        assert after.moved is not None
        after = msgspec.structs.replace(after, moved=msgspec.structs.replace(after.moved, cell=left))
        ended: dict[str, Any] = {"source_cell": left, "dest_cell": to}
        there = record_copies.with_status(record, run.asked.migration, MigrationStatus.FINISHED, now, **ended)
        there = record_copies.finished(there, doing.request_of(run), (), now)
        return msgspec.structs.replace(there, server=after)

    await second_records.copy(run, left, to, rewritten)

    def flip(tx: Tx) -> None:
        assert region_servers.show_in(tx, SERVER, run.operation, left, to)
        hidden_records.end_row(tx, SERVER, to, doing.now_us())
        hidden_records.open_row(tx, SERVER, left)

    await run.rooms.region.write(flip)


_MOVE = (
    resize.RESIZE.but(resize.claim_host.but(do=_claim_there))
    .but(resize.send_guest.but(do=_switch_off))
    .but(resize.land_guest.but(do=_nothing))
    .but(resize.record_resized.but(do=_record_there))
)


async def crossed(small: SmallRegion, **world: Any) -> SmallRegion:
    """The server on host2 of the second cell, in VERIFY_RESIZE, held by the operation that is to be proved; what it left is on host1."""
    asked = msgspec.structs.replace(await resizing(small, operation=RESIZED, **world), host="host2")
    await tell(_MOVE, RESIZED, asked, small.rooms, Paper(first_lines(_MOVE), small.transact))
    await small.hand_to(PROVED_OPERATION)
    small.watches_cells = True
    return small


async def let_go(small: SmallRegion, operation: OperationId = PROVED_OPERATION) -> SmallRegion:
    """Nobody holds it any more."""
    await small.region.write(lambda tx: region_servers.let_go(tx, SERVER, operation))
    return small


async def about_crossed(small: SmallRegion, saga: str, **world: Any) -> ConfirmResize | RevertResize | Delete:
    """What is asked of what comes after it."""
    await crossed(small, **world)
    server = await recorded(small)
    match saga:
        case "confirm_resize/2":
            return ConfirmResize(server, 3, "req-confirm", "user-1")
        case "revert_resize/2":
            return RevertResize(server, 3, "req-revert", "user-1")
        case _:
            return Delete(server, seq=3, request_id="req-delete")
