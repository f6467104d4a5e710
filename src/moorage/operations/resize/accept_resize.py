"""Accepts a resize or migration: flavor, host, quota, and the refusals that Nova makes in the request itself."""

import msgspec

from moorage.model import guest_hardware
from moorage.model.errors import Conflict, Invalid, Problem
from moorage.model.flavor import Flavor
from moorage.model.flavor_classes import classes_of
from moorage.model.ids import ImageId, OperationId, new_uuid
from moorage.model.migration import MigrationType
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import FlavorCopy, Server, TaskState
from moorage.model.task_context import global_request_id
from moorage.operations import flavor_cache
from moorage.operations.accept import accepted, dispatch, newest_known
from moorage.operations.boot.boot_servers import needs_of_flavor, refuse_devices
from moorage.operations.boot.scheduler_hints import hinted_again
from moorage.operations.context import SagaContext
from moorage.operations.disk_config import PROPERTY
from moorage.operations.resize.cross_cell_resize import RESIZE_ACROSS_CELLS
from moorage.operations.resize.resize import RESIZE
from moorage.operations.resize.resize_input import Resize
from moorage.operations.steps import move_ports, other_cells, server_lock
from moorage.operations.steps.ports import refuse_without_credentials
from moorage.operations.steps.server_group import group_of
from moorage.operations.steps.servers import StateCheck
from moorage.sql import Tx
from moorage.store.region import quotas


class ResizeWish(msgspec.Struct, frozen=True):
    """What the request asks for; without a flavor it is a migration."""

    flavor: str | None = None
    host: str | None = None
    disk_config: str | None = None
    sees_all_flavors: bool = False
    cross_cell: bool = False
    """Whether the caller may have servers moved to other cells."""


async def begin(
    context: SagaContext,
    principal: Principal,
    server: Server,
    wish: ResizeWish,
    *,
    check: StateCheck,
    request_id: str = "",
) -> None:
    """Accept a resize or migration. Raises Invalid (flavor or host unusable), OverQuota, Conflict and NotFound."""
    check(server)
    _check_host(context, server, wish)
    flavor = server.flavor
    if wish.flavor is not None:
        flavor = await _flavor(context, server, wish)
        _check_flavor(server, flavor)
    if wish.disk_config == "AUTO" and server.image_properties.get(PROPERTY, "").strip().lower() == "disabled":
        raise Invalid(f"Requested image {server.image or ''} has automatic disk resize disabled.")
    refuse_without_credentials(context)
    near, far = await hinted_again(context, server)
    group = await group_of(context, server)
    leaves = other_cells.may_leave(context, allowed=wish.cross_cell) and await other_cells.all_know(context)
    saga, owner = await newest_known(context, *((RESIZE_ACROSS_CELLS, RESIZE) if leaves else (RESIZE,)))
    crosses = saga is RESIZE_ACROSS_CELLS
    other_cells.refuse_unless_crossing(context, server, wish.host, crosses=crosses)
    defaults = await context.limits_of(server.project)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        move_ports.refuse_silent(context, now.host or "")
        if now.moved is not None:
            raise Conflict(f"Instance {now.id} was moved, and the move is neither confirmed nor reverted.")
        input = Resize(
            server=now,
            seq=seq,
            flavor=flavor,
            migration=new_uuid(),
            kind=MigrationType.MIGRATION if wish.flavor is None else MigrationType.RESIZE,
            host=wish.host,
            same_host=context.settings.allow_resize_to_same_host and wish.flavor is not None,
            across=context.settings.allow_move_across_segments,
            disk_config=wish.disk_config,
            needs=needs_of_flavor(
                flavor, now.image_properties, local_root=not now.volume_backed, settled=wish.flavor is None
            ),
            group=group,
            near=near,
            far=far,
            charged=more(now, flavor),
            request_id=request_id,
            user=principal.user,
            global_request_id=global_request_id.get(),
            by_project=principal.project or "",
            cross_cell=crosses,
            image=ImageId(new_uuid()) if crosses and not now.volume_backed else None,
        )
        return accepted(saga, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id)

    def charge(tx: Tx, now: Server) -> Problem | None:
        wanted = more(now, flavor)
        short = quotas.reserve(tx, now.project, wanted, defaults, now.user) if wanted else None
        return None if short is None else short.problem()

    word = "migrate" if wish.flavor is None else "resize"
    await dispatch(
        context, await server_lock.accept(context, server.id, word, make, task=TaskState.RESIZE_PREP, also=charge)
    )


def more(server: Server, flavor: FlavorCopy) -> dict[str, int]:
    """The additional quota; as in Nova, only that is checked."""
    wants = {"cores": flavor.vcpus - server.flavor.vcpus, "ram": flavor.ram_mib - server.flavor.ram_mib}
    had = classes_of(server.flavor, local_root=not server.volume_backed)
    for name, amount in classes_of(flavor, local_root=not server.volume_backed).items():
        wants[name] = amount - had.get(name, 0)
    return {name: amount for name, amount in wants.items() if amount > 0}


def _check_host(context: SagaContext, server: Server, wish: ResizeWish) -> None:
    """Check the requested host, with Nova's messages."""
    if wish.host is None:
        return
    if wish.host == server.host:
        raise Invalid("Cannot migrate to the host where the server exists.")
    other_cells.refuse_other_cell(context, server, wish.host, allowed=wish.cross_cell)


async def _flavor(context: SagaContext, server: Server, wish: ResizeWish) -> FlavorCopy:
    assert wish.flavor is not None
    flavor = await flavor_cache.read(context.region, wish.flavor)
    if flavor is None or flavor.disabled or not _usable(flavor, server, wish):
        raise Invalid(f"Flavor {wish.flavor} could not be found.")
    return flavor.copy()


def _usable(flavor: Flavor, server: Server, wish: ResizeWish) -> bool:
    return wish.sees_all_flavors or flavor.usable_by(server.project)


def _check_flavor(server: Server, flavor: FlavorCopy) -> None:
    now, base = server.flavor, server.base_image
    local = not server.volume_backed
    if flavor.disk_gib == 0 and now.disk_gib != 0 and local:
        raise Invalid("Server disk was unable to be resized because: Resize to zero disk flavor is not allowed.")
    if flavor.id == now.id and flavor.number in (0, now.number or flavor.number):
        raise Invalid("When resizing, instances must change flavor!")
    refuse_devices(flavor)
    guest_hardware.check(flavor.vcpus, flavor.ram_mib, flavor.extra_specs, server.image_properties)
    if base is None:
        return
    if flavor.ram_mib < base.min_ram_mib:
        raise Invalid("Flavor's memory is too small for requested image.")
    if local and flavor.disk_gib and flavor.disk_gib < base.min_disk_gib:
        largest, least = flavor.disk_gib * 1024**3, base.min_disk_gib * 1024**3
        raise Invalid(
            f"Flavor's disk is smaller than the minimum size specified in image metadata. Flavor disk is {largest} bytes, "
            f"minimum size is {least} bytes."
        )
