"""An image of a server that boots from a volume: snapshots of its volumes, and an image without data that names them.

The image and the snapshots are made with the user's token while the request is answered, for they belong to the user and cost the
user's quota; from then on this operation owns them (docs/decisions/0015): it waits until the snapshots are there, writes what they
are into the image, as Nova does (`block_device_mapping`, `bdm_v2`), and makes it whole; or all of them go.

A guest that runs and has an agent (`hw_qemu_guest_agent`) is still from before the first snapshot until the last is there, as far as its host
can do that; without, the volumes are as after a sudden loss of power, and a server whose image says `os_require_quiesce` is refused.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec

from moorage.bus.agent_rpc import NOT_SUPPORTED
from moorage.model.errors import Conflict, HostFailed, Invalid, NotFound, Problem, Unavailable, UnknownOutcome
from moorage.model.guest import Quiesce
from moorage.model.ids import ImageId, OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import BlockDevice, Server, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.model.volume import SNAPSHOT_SETTLED, VolumeSnapshot
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.images.snapshot import SnapshotRequest
from moorage.operations.steps import quiesce as steps_quiesce
from moorage.operations.steps import server_action, server_lock, snapshot_image
from moorage.operations.steps import servers as records
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, volumes_of
from moorage.saga import Run, Saga, step
from moorage.store.region import servers as region_servers

ACTION, EVENT = "createImage", "api_snapshot_instance"
IMAGE_PATIENCE_S = 300.0
GIVEN_UP_WITHIN_S = 10.0
"""So long who is refused waits for the snapshots that were made until then; they go later if that is not enough."""
LOOK_FIRST_S = 0.05
LOOK_MOST_S = 2.0
OURS = frozenset({"block_device_mapping", "bdm_v2", "root_device_name", "disk_format", "container_format", "size"})
"""What a user's metadata do not say of such an image."""


class Taken(msgspec.Struct, frozen=True):
    """A snapshot of one of the server's volumes."""

    bdm: str
    snapshot: str
    size_gib: int = 0


class SnapshotVolumes(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    image: ImageId
    taken: tuple[Taken, ...] = ()
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    still: bool = False
    """The guest was made still before the first snapshot, with the image's id as the reason."""


VolumesRun = Run[SnapshotVolumes, SagaContext]


class NotTaken(Problem):
    """A snapshot of a volume did not come to be."""

    code = "snapshot_not_taken"


class NotQuiesced(Conflict):
    """The server's image says that its volumes are not to be copied while the guest writes to them."""

    code = "quiesce_failed"


@step(of_request=True)
async def hold_image(run: VolumesRun) -> ImageId:
    """Image and snapshots, and that the guest is still, are this operation's from here on: all was done before it was accepted."""
    return run.input.image


@hold_image.undo
async def delete_image(run: VolumesRun) -> None:
    """The guest writes again; then the snapshots go: by the image, what is left of them could be found. Absent is success."""
    if run.input.still:
        await steps_quiesce.thaw_if_possible(run.context, run.input.server, run.input.image)
    for each in run.input.taken:
        await _drop(run.context, each.snapshot)
    await run.context.images.delete(run.input.image)


@step(needs=(hold_image,))
async def begin_action(run: VolumesRun) -> LocatedServer:
    """The action shows from the start."""
    return await server_action.begun(run, ACTION)


@begin_action.undo
async def fail_action(run: VolumesRun) -> None:
    """The action ends in Error; the server is as it was."""
    await server_action.failed(run, EVENT)


@step(region=True, needs=(begin_action,), no_undo="what is being done goes with the operation")
async def show_taking(run: VolumesRun) -> None:
    task = TaskState.IMAGE_SNAPSHOT
    await run.commit(lambda tx: region_servers.show_task(tx, run.input.server.id, run.operation, task))


@step(needs=(show_taking,), patience_s=VOLUME_PATIENCE_S, no_undo="the snapshots go by the first step's undo")
async def await_snapshots(run: VolumesRun) -> None:
    """Wait until the snapshots can be used. Raises NotTaken when one cannot."""
    for each in run.input.taken:
        found = await _settled(run.context, each.snapshot)
        if found is None or found.status != "available":
            status = "deleted" if found is None else found.status
            raise NotTaken(f"Snapshot {each.snapshot} of a volume of the server is {status}.")


@step(needs=(await_snapshots,), no_undo="a guest that was let go needs nothing")
async def thaw_guest(run: VolumesRun) -> None:
    """The guest writes again. Raises NotTaken where it had to be still until now, and nobody can say that it was."""
    input = run.input
    if not input.still:
        return None
    if snapshot_image.quiesce_of(input.server) is not Quiesce.MUST:
        return await steps_quiesce.thaw_if_possible(run.context, input.server, input.image)
    try:
        await steps_quiesce.thaw(run.context, input.server, input.image)
    except HostFailed as failed:
        raise NotTaken(
            "The guest was not quiesced until all its volumes were copied.", private=failed.private
        ) from failed


@step(needs=(await_snapshots,), patience_s=IMAGE_PATIENCE_S, no_undo="the image goes by the first step's undo")
async def write_image(run: VolumesRun) -> None:
    """What the server's disks are made from; the image is whole then."""
    await run.context.images.fill_with_properties(run.input.image, properties_of(run.input))


@step(needs=(begin_action, write_image), no_undo="an image that is whole is its owner's", point_of_no_return=True)
async def record_image(run: VolumesRun) -> None:
    """The action has ended; a server is no other for being copied."""
    await server_action.done(run, run[begin_action], EVENT, lambda server: server)


SNAPSHOT_VOLUMES = Saga(
    "snapshot_volumes/1",
    SnapshotVolumes,
    hold_image,
    begin_action,
    show_taking,
    await_snapshots,
    write_image,
    record_image,
    ended=records.release_server,
)


SNAPSHOT_STILL = Saga(
    "snapshot_volumes/2",
    SnapshotVolumes,
    hold_image,
    begin_action,
    show_taking,
    await_snapshots,
    thaw_guest,
    write_image,
    record_image,
    ended=records.release_server,
)
"""Of a guest that may be still meanwhile."""


async def _settled(context: SagaContext, snapshot: str) -> VolumeSnapshot | None:
    """The snapshot when it is made, or is not to be; None: it is not there. Raises Unavailable when that takes too long."""
    until, pause_s = time.monotonic() + context.settings.volume_wait_s, LOOK_FIRST_S
    while True:
        try:
            found = await volumes_of(context).snapshot(snapshot)
        except NotFound:
            return None
        if found.status in SNAPSHOT_SETTLED:
            return found
        if time.monotonic() >= until:
            raise Unavailable(f"Snapshot {snapshot} is still {found.status}.", code="snapshot_slow")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_MOST_S)


async def _drop(context: SagaContext, snapshot: str) -> None:
    """A snapshot that is being made cannot be deleted yet, so that is waited for."""
    found = await _settled(context, snapshot)
    if found is not None and found.status not in {"deleting", "deleted"}:
        await volumes_of(context).delete_snapshot(snapshot)


# ------------------------------------------------------------------------------------------------ what is written


def properties_of(input: SnapshotVolumes) -> dict[str, str]:
    """The image's properties about its disks, as Nova writes them: lists are JSON, and everything is text."""
    by_bdm = {each.bdm: each for each in input.taken}
    mapping = [_mapped(each, by_bdm.get(each.bdm)) for each in input.server.block_devices]
    return {"block_device_mapping": msgspec.json.encode(mapping).decode(), "bdm_v2": "True"}


def _mapped(device: BlockDevice, taken: Taken | None) -> dict[str, object]:
    """One device: a snapshot becomes a volume again, a blank disk of the host is blank again."""
    return {
        "source_type": device.source if taken is None else "snapshot",
        "destination_type": device.destination,
        "guest_format": None if taken is not None else device.guest_format,
        "device_type": device.device_type,
        "disk_bus": device.disk_bus,
        "boot_index": device.boot_index,
        "device_name": device.device,
        "delete_on_termination": device.delete_on_termination,
        "snapshot_id": None if taken is None else taken.snapshot,
        "volume_id": None,
        "image_id": None,
        "volume_size": device.size_gib if taken is None else taken.size_gib or device.size_gib,
        "volume_type": None,
        "no_device": None,
        "tag": None,
    }


# --------------------------------------------------------------------------------------------------- beginning


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    server: Server,
    wish: SnapshotRequest,
    *,
    check: Callable[[Server], None],
    request_id: str = "",
) -> ImageId:
    """Make the image and the snapshots, accept the operation, and answer with the image's id.

    Raises what the image and the volume service refuse, Invalid where the guest must stand still for it, and Conflict.
    """
    quiesce = quiesce_wanted(server)
    saga = SNAPSHOT_VOLUMES if quiesce is Quiesce.NO else SNAPSHOT_STILL
    owner = await context.dispatcher.choose(saga.name)
    told = {name: value for name, value in wish.metadata.items() if name not in OURS}
    also = {**told, "root_device_name": server.root_device, "disk_format": "raw", "container_format": "bare"}
    image = await snapshot_image.make(context, principal, token, server, wish.name, "snapshot", also)
    still = False
    try:
        still = await _made_still(context, server, image, quiesce)
        taken = await _take(context, principal, token, server, wish.name, image)
    except UnknownOutcome as lost:  # the snapshot may come yet: by the image a later round finds it
        await _thaw(context, server, image, still)
        raise Unavailable(lost.public, private=lost.private) from lost
    except Problem:
        await _thaw(context, server, image, still)
        await _give_up(context, image)
        raise

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        if {each.bdm for each in now.volumes} != {each.bdm for each in taken}:
            raise Conflict(
                f"The volumes of instance {now.id} were changed meanwhile; try again.", code="volumes_changed"
            )
        if quiesce_wanted(now) is Quiesce.MUST and not still:
            raise Conflict(f"Instance {now.id} was started meanwhile; try again.", code="server_started")
        if still and now.host != server.host:
            raise Conflict(f"Instance {now.id} was moved meanwhile; try again.", code="server_moved")
        by = principal.project or ""
        input = SnapshotVolumes(now, seq, image, taken, request_id, principal.user, global_request_id.get(), by, still)
        return accepted(saga, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id)

    try:
        new = await server_lock.accept(context, server.id, ACTION, make, task=TaskState.IMAGE_SNAPSHOT_PENDING)
    except Problem as refused:
        if isinstance(refused, Conflict | NotFound):  # certain: nothing was accepted
            await _thaw(context, server, image, still)
            await _give_up(context, image)
        raise
    await dispatch(context, new)
    return image


def quiesce_wanted(server: Server) -> Quiesce:
    """As Nova decides it: only a guest that runs is made still, and only through its agent. Raises Invalid where it must be, and has none."""
    wanted = snapshot_image.quiesce_of(server)
    if server.vm_state is not VmState.ACTIVE:
        return Quiesce.NO
    if wanted is Quiesce.MUST and not snapshot_image.has_agent(server):
        raise Invalid(f"Instance {server.id} must be quiesced (os_require_quiesce): QEMU guest agent is not enabled")
    return wanted


async def _made_still(context: SagaContext, server: Server, image: ImageId, quiesce: Quiesce) -> bool:
    """Whether the guest is still. Raises Invalid where its host cannot do that, NotQuiesced where it did not, if it must be."""
    if quiesce is Quiesce.NO:
        return False
    try:
        await steps_quiesce.freeze(context, server, image)
    except Problem as failed:
        if failed.code not in steps_quiesce.NEVER_STILL:  # it may have been, or be yet
            await steps_quiesce.thaw_if_possible(context, server, image)
        if quiesce is not Quiesce.MUST:
            return False
        if failed.code == NOT_SUPPORTED:
            raise Invalid(f"Quiescing is not supported in instance {server.id}", private=failed.private) from failed
        raise NotQuiesced(f"Failed to quiesce instance: {failed.public}", private=failed.private) from failed
    return True


async def _thaw(context: SagaContext, server: Server, image: ImageId, still: bool) -> None:
    if still:
        await steps_quiesce.thaw_if_possible(context, server, image)


async def _take(
    context: SagaContext, principal: Principal, token: str, server: Server, name: str, image: ImageId
) -> tuple[Taken, ...]:
    taken: list[Taken] = []
    for device in server.volumes:
        assert device.volume is not None
        made = await volumes_of(context).make_snapshot(
            device.volume, f"snapshot for {name}", image, principal.project or "", token
        )
        taken.append(Taken(device.bdm, made.id, made.size_gib))
    return tuple(taken)


async def _give_up(context: SagaContext, image: ImageId) -> None:
    """Of a request that was refused; what cannot go soon goes in a later round, by the image, which stays until then."""
    try:
        if await asyncio.shield(_dropped_soon(context, image)):
            await snapshot_image.drop(context, image)
    except Problem:
        return


async def _dropped_soon(context: SagaContext, image: ImageId) -> bool:
    """The same as `dropped`, and again for a while: a snapshot that is being made cannot be deleted yet."""
    until, pause_s = time.monotonic() + GIVEN_UP_WITHIN_S, LOOK_FIRST_S
    while not await dropped(context, image):
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_MOST_S)
    return True


async def dropped(context: SagaContext, image: str) -> bool:
    """Delete the snapshots that were made for an image; False: one cannot go yet."""
    all_went = True
    for each in await volumes_of(context).snapshots_for(image):
        if each.status not in {"deleting", "deleted"}:
            try:
                await volumes_of(context).delete_snapshot(each.id)
            except Invalid:
                all_went = False
    return all_went
