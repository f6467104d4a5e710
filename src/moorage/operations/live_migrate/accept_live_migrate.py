"""Accepts a live migration, and the requests about one that is under way."""

from collections.abc import Sequence

import msgspec

from moorage.model.action import Action
from moorage.model.errors import Conflict, HostFailed, Invalid, NoCapacity
from moorage.model.ids import OperationId, new_uuid
from moorage.model.migration import Migration, MigrationStatus
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server, TaskState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.boot.scheduler_hints import hinted_again
from moorage.operations.context import SagaContext
from moorage.operations.live_migrate.cross_cell_live_migrate import LIVE_MIGRATE_CROSS_CELL
from moorage.operations.live_migrate.live_migrate import LIVE_MIGRATE
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate
from moorage.operations.records.servers import ChangeListener
from moorage.operations.steps import live_migration, other_cells, server_lock
from moorage.operations.steps.live_migration_limit import move_of
from moorage.operations.steps.ports import refuse_without_credentials
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.server_group import group_of
from moorage.operations.steps.servers import StateCheck
from moorage.operations.unshelve_input import needs_of_server
from moorage.sql import Tx
from moorage.store.cell import actions, migrations
from moorage.store.cell.notifications import OUTBOX as CELL_OUTBOX
from moorage.store.region import inbox
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

CHECKED_WITHIN_S = 60.0
"""How long a request of an old microversion waits for the checks before the move."""
GIVEN_UP = "aborted"
CHECKED = frozenset(
    {
        MigrationStatus.QUEUED,
        MigrationStatus.PREPARING,
        MigrationStatus.RUNNING,
        MigrationStatus.POST_MIGRATING,
        MigrationStatus.COMPLETED,
    }
)


class LiveWish(msgspec.Struct, frozen=True):
    """What a live migration request asks for."""

    host: str | None = None
    block: bool | None = None
    """None: `auto`."""
    waits: bool = False
    """Whether the request waits for the checks before the move, and answers with their refusal."""
    cross_cell: bool = False
    """Whether the caller may have servers moved to other cells."""


async def begin(
    context: SagaContext,
    principal: Principal,
    server: Server,
    wish: LiveWish,
    *,
    check: StateCheck,
    request_id: str = "",
) -> None:
    """Accept a live migration. Raises NotFound, Conflict, and Invalid when the host does not exist or, if the request
    waits for the checks, when a check refuses.
    """
    check(server)
    if wish.host is not None:
        check_host(context, server, wish.host, cross_cell=wish.cross_cell)
    if wish.waits and wish.host is not None and wish.host == server.host:
        raise Invalid(f"Unable to migrate instance ({server.id}) to current host ({wish.host}).")
    refuse_without_credentials(context)
    near, far = await hinted_again(context, server)
    group = await group_of(context, server)
    linked = wish.cross_cell and any(server.cell in pair for pair in context.settings.cell_links)
    saga, owner = await other_cells.chosen(
        context, server, LIVE_MIGRATE_CROSS_CELL, LIVE_MIGRATE, allowed=linked, host=wish.host
    )
    settings = context.settings
    move = new_uuid()

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        if now.moved is not None:
            raise Conflict(f"Instance {now.id} was moved, and the move is neither confirmed nor reverted.")
        input = LiveMigrate(
            server=now,
            seq=seq,
            migration=move,
            host=wish.host,
            block=wish.block,
            needs=needs_of_server(now, settled=True),
            group=group,
            near=near,
            far=far,
            post_copy=settings.live_migration_permit_post_copy,
            timeout_s=settings.live_migration_timeout_s,
            request_id=request_id,
            user=principal.user,
            global_request_id=global_request_id.get(),
            by_project=principal.project or "",
            cross_cell=saga is LIVE_MIGRATE_CROSS_CELL,
        )
        return accepted(saga, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id)

    new = await server_lock.accept(context, server.id, "os-migrateLive", make, task=TaskState.MIGRATING)
    await dispatch(context, new)
    if wish.waits:
        await _checked(context, server, new, move)


async def _checked(context: SagaContext, server: Server, new: Accepted, move: str) -> None:
    """Wait until a suitable host was found. Raises Invalid with the reason when there is none."""
    assert server.cell is not None
    database = context.cells[server.cell]

    async def prepares() -> bool:
        migration = await database.read(lambda tx: migrations.get(tx, move))
        return migration is not None and migration.status in CHECKED

    try:
        await server_lock.ended_or(context, new.id, prepares, CHECKED_WITHIN_S)
    except (HostFailed, NoCapacity) as refused:
        raise Invalid(refused.public, private=refused.private, code=refused.code) from refused


def check_host(context: SagaContext, server: Server, host: str, *, cross_cell: bool = False) -> None:
    """Check the requested host, with Nova's messages. `cross_cell`: it may be in a cell that is linked with the
    server's.

    Raises Invalid.
    """
    other_cells.refuse_other_cell(context, server, host, allowed=cross_cell)
    cell = other_cells.cell_of(context, host)
    if cell != server.cell and frozenset({cell, server.cell}) not in context.settings.cell_links:
        raise Invalid(f"Compute host {host} cannot be reached: its cell is not linked with the server's.")


# -------------------------------------------------------------------------------------------- migrations under way


async def force_complete(
    context: SagaContext,
    principal: Principal,
    server: Server,
    migration: Migration,
    request_id: str,
    listeners: Sequence[ChangeListener] = (),
) -> None:
    """Accept the request; the executor lets the source switch as soon as it reads it."""
    wish = inbox.ExternalEvent(server.id, live_migration.FORCE, migration.uuid, seen_at=now_us())
    await context.region.write(lambda tx: inbox.put_placed(tx, [wish]))
    await note_action(context, principal, server, "live_migration_force_complete", request_id, listeners)


async def abort(
    context: SagaContext, principal: Principal, server: Server, migration: Migration, request_id: str
) -> None:
    """Accept the abort; the executor undoes the migration unless the guest has left by then. A repeat is accepted
    again. Raises Invalid when the migration has ended.
    """

    def work(tx: Tx) -> OperationId | None:
        where = region_servers.find(tx, server.id)
        operation = None if where is None or where.operation is None else region_operations.get(tx, where.operation)
        if operation is None or move_of(operation) != migration.uuid:
            return None
        if operation.cancel is None:
            region_operations.ask_to_cancel(tx, operation.id, GIVEN_UP)
        return operation.id

    held = await context.region.write(work)
    if held is None:
        raise Invalid(f"Migration {migration.number} of instance {server.id} has ended and cannot be aborted.")
    await note_action(context, principal, server, "live_migration_cancel", request_id)
    operation = await context.region.read(lambda tx: region_operations.get(tx, held))
    if operation is not None:
        await context.dispatcher.cancelled(held, operation.owner)


async def note_action(
    context: SagaContext,
    principal: Principal,
    server: Server,
    word: str,
    request_id: str,
    listeners: Sequence[ChangeListener] = (),
) -> None:
    """Record a request about a move among the server's actions; the move's own action says how it ended."""
    assert server.cell is not None
    now = now_us()
    action = Action(
        server=server.id,
        action=word,
        request_id=request_id,
        user=principal.user,
        project=server.project,
        started_at=now,
        updated_at=now,
        finished_at=now,
    )

    def work(tx: Tx) -> None:
        actions.write(tx, action)
        for listener in listeners:
            listener(tx, CELL_OUTBOX, server, server)

    await context.cells[server.cell].write(work)
