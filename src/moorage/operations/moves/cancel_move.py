"""Cancels a move: it is undone as far as it came, and its server stays where it was.

A cold move can be cancelled until its server is recorded on its new host; afterwards it is reverted. A live one can be
aborted until its guest has left. An evacuation has nothing to go back to.
"""

import msgspec

from moorage.model.errors import Conflict, NotFound
from moorage.model.ids import OperationId
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.model.operation import Operation
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.evacuate.evacuate import EVACUATE_ACROSS
from moorage.operations.live_migrate import accept_live_migrate
from moorage.operations.steps.moving import ON_REQUEST
from moorage.sql import Tx
from moorage.store.cell import migrations
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

ACTION = "cancel_move"
RESIZE_SAGA = "resize/"
WHY_NOT = {
    MigrationStatus.FINISHED: "its server is on its new host: confirm or revert it",
    MigrationStatus.CONFIRMING: "it is being confirmed",
    MigrationStatus.REVERTING: "it is being reverted",
    MigrationStatus.POST_MIGRATING: "its guest has left its old host",
}


class _MoveInput(msgspec.Struct, frozen=True):
    migration: str = ""


def move_of(operation: Operation) -> str:
    """The UUID of the move that an operation executes; empty when it is not a move, or when it ends an earlier one."""
    return msgspec.json.decode(operation.asked, type=_MoveInput).migration if operation.asked else ""


async def cancel(context: SagaContext, principal: Principal, server: Server, move: str, request_id: str) -> None:
    """Accept the cancel; the executor undoes the move unless it is too late by then. A repeat is accepted again.

    Raises NotFound (the server has no such move), Conflict with the reason why it cannot be cancelled, and Unavailable
    while conductors of a release without this run.
    """
    migration = None
    if server.cell is not None:
        migration = await context.cells[server.cell].read(lambda tx: migrations.get(tx, move))
    if migration is not None and migration.server != server.id:
        migration = None
    live = migration is not None and migration.type is MigrationType.LIVE_MIGRATION and not migration.ended
    if migration is not None and live and migration.status is not MigrationStatus.POST_MIGRATING:
        return await accept_live_migrate.abort(context, principal, server, migration, request_id)

    def work(tx: Tx) -> OperationId | None:
        where = region_servers.find(tx, server.id)
        held = None if where is None or where.operation is None else region_operations.get(tx, where.operation)
        if held is None or not held.saga.startswith(RESIZE_SAGA) or move_of(held) != move:
            return None
        if migration is not None and migration.status in WHY_NOT:
            return None
        if held.cancel is None:
            region_operations.ask_to_cancel(tx, held.id, ON_REQUEST)
        return held.id

    await context.dispatcher.choose(EVACUATE_ACROSS.name)  # a conductor of the previous release takes this for a delete
    holder = await context.region.write(work)
    if holder is None:
        raise _refusal(server, move, migration)
    await accept_live_migrate.note_action(context, principal, server, ACTION, request_id)
    operation = await context.region.read(lambda tx: region_operations.get(tx, holder))
    if operation is not None:
        await context.dispatcher.cancelled(holder, operation.owner)
    return None


def _refusal(server: Server, move: str, migration: Migration | None) -> Conflict | NotFound:
    if migration is None:
        return NotFound(f"Move {move} of instance {server.id} could not be found.")
    why = WHY_NOT.get(migration.status, f"it is {migration.status.value}")
    if migration.type is MigrationType.EVACUATION and not migration.ended:
        why = "an evacuation has no host to go back to"
    return Conflict(f"Move {move} of instance {server.id} cannot be cancelled: {why}.")
