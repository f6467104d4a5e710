"""The request of an evacuation, and its acceptance: only with proof that the server's host is fenced (RULES §11)."""

import logging

import msgspec

from moorage.model.errors import Conflict, Invalid, NotFound, Problem
from moorage.model.ids import OperationId, new_uuid
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server, TaskState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.boot.scheduler_hints import hinted_again
from moorage.operations.context import SagaContext
from moorage.operations.evacuate.cross_cell_evacuate import EVACUATE_CROSS_CELL
from moorage.operations.evacuate.evacuate import EVACUATE, EVACUATE_ACROSS
from moorage.operations.evacuate.evacuate_claim import ACTION
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.operations.steps import fencing, other_cells, server_lock
from moorage.operations.steps.ports import refuse_without_credentials
from moorage.operations.steps.server_group import group_of
from moorage.operations.steps.servers import StateCheck
from moorage.operations.unshelve_input import needs_of_server
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations

log = logging.getLogger(__name__)
RECORDED_WITHIN_S = 2.0


class EvacuateWish(msgspec.Struct, frozen=True):
    """What an evacuation request asks for."""

    host: str | None = None
    stopped: bool = False
    """The server stays off (2.95)."""
    shared_storage: bool = False
    """The caller says that the disk is on storage that other hosts share (until 2.13)."""
    password: str = ""
    cross_cell: bool = False
    """Whether the caller may have servers moved to other cells."""


async def begin(
    context: SagaContext,
    principal: Principal,
    server: Server,
    wish: EvacuateWish,
    *,
    check: StateCheck,
    request_id: str = "",
) -> None:
    """Accept an evacuation. Raises NotFound (server or host), Invalid (the same host, or the host is up), and Conflict."""
    if wish.host is not None:
        await _check_host(context, server, wish.host)
    check(server)
    refuse_without_credentials(context)
    near, far = await hinted_again(context, server)
    group = await group_of(context, server)
    proof = await fencing.refuse_unfenced(context, server)
    if wish.shared_storage and not server.volume_backed:
        raise Invalid("Invalid state of instance files on shared storage")
    versions = (EVACUATE_ACROSS, EVACUATE) if context.settings.allow_move_across_segments else (EVACUATE,)
    saga, owner = await other_cells.chosen(
        context, server, EVACUATE_CROSS_CELL, *versions, allowed=wish.cross_cell, host=wish.host
    )
    sealed = (
        context.seals.seal(wish.password) if server.config_drive and context.seals is not None and wish.password else ""
    )

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        if now.host != server.host:
            raise Conflict(f"Instance {now.id} was moved meanwhile.")
        input = Evacuate(
            server=now,
            seq=seq,
            migration=new_uuid(),
            fence=proof,
            stopped=wish.stopped,
            host=wish.host,
            needs=needs_of_server(now, settled=True),
            group=group,
            near=near,
            far=far,
            sealed_password=sealed,
            request_id=request_id,
            user=principal.user,
            global_request_id=global_request_id.get(),
            by_project=principal.project or "",
            across=saga is not EVACUATE and context.settings.allow_move_across_segments,
            cross_cell=saga is EVACUATE_CROSS_CELL,
        )
        return accepted(saga, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id)

    new = await server_lock.accept(context, server.id, ACTION, make, task=TaskState.REBUILDING, though_owed=True)
    await dispatch(context, new)
    await _recorded(context, server, msgspec.json.decode(new.asked, type=Evacuate).migration, new.id)


async def _recorded(context: SagaContext, server: Server, move: str, operation: OperationId) -> None:
    """Wait a moment until the migration's record exists: who evacuates polls it from the answer on, as with Nova."""
    if server.cell is None:
        return
    database = context.cells[server.cell]

    async def exists() -> bool:
        return await database.read(lambda tx: migrations.get(tx, move)) is not None

    try:
        await server_lock.ended_or(context, operation, exists, RECORDED_WITHIN_S)
    except Problem as failed:  # it was accepted, and its action and the server's state say how it ended
        log.info("the evacuation of %s failed at once: %s", server.id, failed)


async def _check_host(context: SagaContext, server: Server, host: str) -> None:
    """Check the requested host, with Nova's messages. A host of another cell passes here, and the claim finds no valid
    host.
    """
    for cell in context.cells.ids:
        if await context.cells[cell].read(lambda tx: cell_hosts.named(tx, host)) is not None:
            break
    else:
        raise NotFound(f"Compute host {host} not found.")
    if host == server.host:
        raise Invalid("The target host can't be the same one.")
