"""Accepts an unshelve: the requested place is checked before anything begins."""

import msgspec

from moorage.model.errors import Conflict, Invalid, Unavailable
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.boot.boot_checks import check_zone
from moorage.operations.boot.scheduler_hints import hinted_again
from moorage.operations.context import SagaContext
from moorage.operations.shelve import unshelve_in_place
from moorage.operations.shelve.cross_cell_unshelve import UNSHELVE_CROSS_CELL
from moorage.operations.shelve.unshelve import UNSHELVE, UNSHELVE_ACROSS
from moorage.operations.shelve.unshelve_claim import ACTION
from moorage.operations.steps import other_cells, server_lock
from moorage.operations.steps.ports import refuse_without_credentials
from moorage.operations.steps.server_group import group_of
from moorage.operations.steps.servers import StateCheck
from moorage.operations.steps.volumes import volumes_of
from moorage.operations.unshelve_input import Unshelve, needs_of_server


class UnshelveWish(msgspec.Struct, frozen=True):
    """Where the server is to be."""

    zone: str | msgspec.UnsetType | None = msgspec.UNSET
    """None: it is no longer pinned to a zone; unset: it stays pinned as it was."""
    host: str | None = None
    cross_cell: bool = False
    """Whether the caller may have servers moved to other cells."""


async def begin(
    context: SagaContext,
    principal: Principal,
    server: Server,
    wish: UnshelveWish,
    *,
    check: StateCheck,
    request_id: str = "",
) -> None:
    """Accept an unshelve. Raises Invalid (no such zone or host), Conflict, NotFound, and Unavailable while the server
    is being changed.
    """
    if server.vm_state is VmState.SHELVED:
        await unshelve_in_place.begin(context, principal, server, check=check, request_id=request_id)
        return
    zone = server.pinned_az if isinstance(wish.zone, msgspec.UnsetType) else wish.zone
    await check_place(context, wish, zone)
    await check_volumes(context, server, wish)
    refuse_without_credentials(context)
    same, different = await hinted_again(context, server)
    group = await group_of(context, server)
    versions = (UNSHELVE_ACROSS, UNSHELVE) if context.settings.allow_move_across_segments else (UNSHELVE,)
    saga, owner = await other_cells.chosen(
        context, server, UNSHELVE_CROSS_CELL, *versions, allowed=wish.cross_cell, host=wish.host
    )
    gates = context.gates().made_early()

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        if now.vm_state is VmState.SHELVED:
            raise Unavailable("The instance is being changed; try again.")
        input = Unshelve(
            server=now,
            seq=seq,
            image=None if now.shelved is None else now.shelved.image,
            zone=zone,
            host=wish.host,
            needs=needs_of_server(now),
            group=group,
            same_host=same,
            different_host=different,
            request_id=request_id,
            user=principal.user,
            global_request_id=global_request_id.get(),
            by_project=principal.project or "",
            gates=gates,
            across=saga is not UNSHELVE and context.settings.allow_move_across_segments,
            cross_cell=saga is UNSHELVE_CROSS_CELL,
        )
        return accepted(saga, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id)

    new = await server_lock.accept(context, server.id, ACTION, make, task=TaskState.UNSHELVING)
    await dispatch(context, new)


async def check_place(context: SagaContext, wish: UnshelveWish, zone: str | None) -> None:
    """Raises Invalid for an unknown zone or host, Conflict for a host of another zone; with Nova's messages."""
    if isinstance(wish.zone, str):
        await check_zone(context, wish.zone)
    if wish.host is None:
        return
    world = context.placement.world()
    at = world.slots_by_name.get(wish.host)
    if at is None:
        raise Invalid(f"Compute host {wish.host} could not be found.")
    if zone is not None and world.zone_names[int(world.zone[at])] != zone:
        raise Conflict(f'Host "{wish.host}" is not in the availability zone "{zone}".')


async def check_volumes(context: SagaContext, server: Server, wish: UnshelveWish) -> None:
    """Where volumes and servers must be in one zone, check the requested zone. Raises Conflict, with Nova's message."""
    if context.settings.cross_az_attach or not isinstance(wish.zone, str):
        return
    for device in server.volumes:
        volume = await volumes_of(context).show(str(device.volume))
        if volume.availability_zone != wish.zone:
            raise Conflict(
                "The availability zone between the server and its attached volumes do not match: The specified availability zone "
                f"does not match the volume {volume.id} attached to the server. Specified availability zone is {wish.zone}. "
                f"Volume is in {volume.availability_zone}.."
            )
