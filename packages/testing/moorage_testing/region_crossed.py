"""A small region with a server that was moved to the other cell, and waits there to be confirmed or reverted: for proofs."""

from typing import Any

import msgspec

from moorage.model.ids import OperationId
from moorage.operations.delete.delete import Delete
from moorage.operations.registry import SAGAS
from moorage.operations.resize.confirm_resize import ConfirmResize
from moorage.operations.resize.revert_resize import RevertResize
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import RESIZED, TEMPORARY, recorded, resizing
from moorage_testing.saga_proof import PROVED_OPERATION


async def crossed(small: SmallRegion, **world: Any) -> SmallRegion:
    """The server on host2 of the second cell, in VERIFY_RESIZE, held by the operation that is to be proved; what it left is on host1."""
    asked = await resizing(small, operation=RESIZED, **world)
    image = None if asked.server.volume_backed else TEMPORARY
    asked = msgspec.structs.replace(asked, cross_cell=True, image=image, host="host2")
    saga = SAGAS["resize/2"]
    await execute(saga, RESIZED, asked, small.context, MemoryJournal(first_lines(saga), small.transact))
    await small.hand_to(PROVED_OPERATION)
    small.watches_cells = True
    return small


async def released(small: SmallRegion, operation: OperationId = PROVED_OPERATION) -> SmallRegion:
    """Nobody holds it any more."""
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, operation))
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
