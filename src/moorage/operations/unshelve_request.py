"""Accept an unshelve: where it may be is asked and checked before anything is begun."""

import msgspec

from moorage.clients.http import request_id as carried
from moorage.model.asker import Asker
from moorage.model.errors import Conflict, Invalid, Unavailable
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted
from moorage.model.server import Server, TaskState, VmState
from moorage.operations import unshelve_in_place
from moorage.operations.accept import accepted, tell_later
from moorage.operations.boot_request import check_zone
from moorage.operations.hints import hinted_again
from moorage.operations.rooms import Rooms
from moorage.operations.steps import other_cells, slot
from moorage.operations.steps.ports import refuse_without_credentials
from moorage.operations.steps.server_group import group_of
from moorage.operations.steps.servers import StateCheck
from moorage.operations.steps.volumes import volumes_of
from moorage.operations.unshelve import ACTION, UNSHELVE, UNSHELVE_ACROSS
from moorage.operations.unshelve_asked import Unshelve, needs_of_server
from moorage.operations.unshelve_cross_cell import UNSHELVE_CROSS_CELL


class UnshelveWish(msgspec.Struct, frozen=True):
    """Where it is to be."""

    zone: str | msgspec.UnsetType | None = msgspec.UNSET
    """None: it is pinned to no zone any more; unset: to the one it was."""
    host: str | None = None
    cross_cell: bool = False
    """Who asks may have servers moved to other cells."""


async def begin(
    rooms: Rooms, asker: Asker, server: Server, wish: UnshelveWish, *, check: StateCheck, request_id: str = ""
) -> None:
    """Accept an unshelve. Raises Invalid (no such zone or host), Conflict and NotFound."""
    if server.vm_state is VmState.SHELVED:
        await unshelve_in_place.begin(rooms, asker, server, check=check, request_id=request_id)
        return
    zone = server.pinned_az if isinstance(wish.zone, msgspec.UnsetType) else wish.zone
    await check_place(rooms, wish, zone)
    await check_volumes(rooms, server, wish)
    refuse_without_credentials(rooms)
    same, different = await hinted_again(rooms, server)
    group = await group_of(rooms, server)
    versions = (UNSHELVE_ACROSS, UNSHELVE) if rooms.settings.allow_move_across_segments else (UNSHELVE,)
    saga, owner = await other_cells.chosen(
        rooms, server, UNSHELVE_CROSS_CELL, *versions, allowed=wish.cross_cell, host=wish.host
    )
    gates = rooms.gates().made_early()

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        if now.vm_state is VmState.SHELVED:
            raise Unavailable("The instance is being changed; try again.")
        asked = Unshelve(
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
            user=asker.user,
            global_request_id=carried.get(),
            by_project=asker.project or "",
            gates=gates,
            across=saga is not UNSHELVE and rooms.settings.allow_move_across_segments,
            cross_cell=saga is UNSHELVE_CROSS_CELL,
        )
        return accepted(saga, operation, now, asked, owner=owner, user=asker.user, seq=seq, request_id=request_id)

    new = await slot.accept(rooms, server.id, ACTION, make, task=TaskState.UNSHELVING)
    await tell_later(rooms, new)


async def check_place(rooms: Rooms, wish: UnshelveWish, zone: str | None) -> None:
    """Raises Invalid for a zone or host that is not there, Conflict for a host of another zone, in Nova's words."""
    if isinstance(wish.zone, str):
        await check_zone(rooms, wish.zone)
    if wish.host is None:
        return
    world = rooms.placement.world()
    at = world.slots_by_name.get(wish.host)
    if at is None:
        raise Invalid(f"Compute host {wish.host} could not be found.")
    if zone is not None and world.zone_names[int(world.zone[at])] != zone:
        raise Conflict(f'Host "{wish.host}" is not in the availability zone "{zone}".')


async def check_volumes(rooms: Rooms, server: Server, wish: UnshelveWish) -> None:
    """Where volumes and servers must be in one zone, a zone that is asked for must be theirs. Raises Conflict, in Nova's words."""
    if rooms.settings.cross_az_attach or not isinstance(wish.zone, str):
        return
    for device in server.volumes:
        volume = await volumes_of(rooms).show(str(device.volume))
        if volume.availability_zone != wish.zone:
            raise Conflict(
                "The availability zone between the server and its attached volumes do not match: The specified availability zone "
                f"does not match the volume {volume.id} attached to the server. Specified availability zone is {wish.zone}. "
                f"Volume is in {volume.availability_zone}.."
            )
