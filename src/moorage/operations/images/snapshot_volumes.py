"""Image of a server that boots from a volume: snapshots of its volumes, and an image without data that names them.

The image and the snapshots are made with the user's token while the request is answered, because they belong to the
user and use the user's quota. Then this operation owns them (docs/decisions/0015): it waits until the snapshots are
ready, writes their mapping into the image, as Nova does (`block_device_mapping`, `bdm_v2`), and completes it; or it
deletes them all.

A running guest with an agent (`hw_qemu_guest_agent`) is quiesced from before the first snapshot until after the last
one, where its host supports that. Otherwise the volumes are as after a sudden power loss; a server whose image says
`os_require_quiesce` is refused then.
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
"""How long a refused request waits for snapshots that are being made, to delete them; a reconciler deletes the rest."""
LOOK_FIRST_S = 0.05
LOOK_MOST_S = 2.0
OURS = frozenset({"block_device_mapping", "bdm_v2", "root_device_name", "disk_format", "container_format", "size"})
"""Properties that the user's metadata cannot set for such an image."""


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
    """Whether the guest was quiesced before the first snapshot, with the image's id as the reason."""


VolumesRun = Run[SnapshotVolumes, SagaContext]


class NotTaken(Problem):
    """A snapshot of a volume failed."""

    code = "snapshot_not_taken"


class NotQuiesced(Conflict):
    """The server's image forbids copies of its volumes while the guest writes, and the guest could not be quiesced."""

    code = "quiesce_failed"


@step(of_request=True)
async def hold_image(run: VolumesRun) -> ImageId:
    """From here on this operation owns the image, the snapshots and the quiesced guest; all exist before it was
    accepted.
    """
    return run.input.image


@hold_image.undo
async def delete_image(run: VolumesRun) -> None:
    """Resume the guest's writes, then delete the snapshots, then the image: by the image the remaining snapshots can be
    found. Absent counts as success.
    """
    if run.input.still:
        await steps_quiesce.thaw_if_possible(run.context, run.input.server, run.input.image)
    for each in run.input.taken:
        await _drop(run.context, each.snapshot)
    await run.context.images.delete(run.input.image)


@step(needs=(hold_image,))
async def begin_action(run: VolumesRun) -> LocatedServer:
    """Show the action from the start."""
    return await server_action.begun(run, ACTION, EVENT)


@begin_action.undo
async def fail_action(run: VolumesRun) -> None:
    """End the action with Error; the server is unchanged."""
    await server_action.failed(run, EVENT)


@step(region=True, needs=(begin_action,), no_undo="what is being done goes with the operation")
async def show_taking(run: VolumesRun) -> None:
    task = TaskState.IMAGE_SNAPSHOT
    await run.commit(lambda tx: region_servers.show_task(tx, run.input.server.id, run.operation, task))


@step(needs=(show_taking,), patience_s=VOLUME_PATIENCE_S, no_undo="the snapshots go by the first step's undo")
async def await_snapshots(run: VolumesRun) -> None:
    """Wait until the snapshots are ready. Raises NotTaken when one failed."""
    for each in run.input.taken:
        row = await _settled(run.context, each.snapshot)
        if row is None or row.status != "available":
            status = "deleted" if row is None else row.status
            raise NotTaken(f"Snapshot {each.snapshot} of a volume of the server is {status}.")


@step(needs=(await_snapshots,), no_undo="a guest that was let go needs nothing")
async def thaw_guest(run: VolumesRun) -> None:
    """Resume the guest's writes. Raises NotTaken when the guest had to be quiesced until now and the host cannot
    confirm that it was.
    """
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
    """Write the mapping of the disks into the image, which completes it."""
    await run.context.images.fill_with_properties(run.input.image, properties_of(run.input))


@step(needs=(begin_action, write_image), no_undo="an image that is whole is its owner's", point_of_no_return=True)
async def record_image(run: VolumesRun) -> None:
    """Finish the action; the record does not change otherwise."""
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
"""For a guest that may be quiesced meanwhile."""


async def _settled(context: SagaContext, snapshot: str) -> VolumeSnapshot | None:
    """The snapshot when it is ready or failed; None when it does not exist. Raises Unavailable when that takes too
    long.
    """
    until, pause_s = time.monotonic() + context.settings.volume_wait_s, LOOK_FIRST_S
    while True:
        try:
            row = await volumes_of(context).snapshot(snapshot)
        except NotFound:
            return None
        if row.status in SNAPSHOT_SETTLED:
            return row
        if time.monotonic() >= until:
            raise Unavailable(f"Snapshot {snapshot} is still {row.status}.", code="snapshot_slow")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_MOST_S)


async def _drop(context: SagaContext, snapshot: str) -> None:
    """A snapshot that is being made cannot be deleted yet, so this waits for it."""
    row = await _settled(context, snapshot)
    if row is not None and row.status not in {"deleting", "deleted"}:
        await volumes_of(context).delete_snapshot(snapshot)


# ------------------------------------------------------------------------------------------------------ the image


def properties_of(input: SnapshotVolumes) -> dict[str, str]:
    """The image's properties about its disks, in Nova's form: lists are JSON, and all values are text."""
    by_bdm = {each.bdm: each for each in input.taken}
    mapping = [_mapped(each, by_bdm.get(each.bdm)) for each in input.server.block_devices]
    return {"block_device_mapping": msgspec.json.encode(mapping).decode(), "bdm_v2": "True"}


def _mapped(device: BlockDevice, taken: Taken | None) -> dict[str, object]:
    """One device: a snapshot becomes a volume again, an empty local disk stays empty."""
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


# -------------------------------------------------------------------------------------------------- acceptance


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
    """Create the image and the snapshots, accept the operation, and return the image's id.

    Raises what the image and volume services refuse, Invalid when the guest must be quiesced and cannot be, Conflict (also
    NotQuiesced), and Unavailable when a service does not answer.
    """
    quiesce = quiesce_wanted(server)
    saga = SNAPSHOT_VOLUMES if quiesce is Quiesce.NO else SNAPSHOT_STILL
    owner = await context.dispatcher.choose(saga.name)
    metadata = {name: value for name, value in wish.metadata.items() if name not in OURS}
    also = {**metadata, "root_device_name": server.root_device, "disk_format": "raw", "container_format": "bare"}
    image = await snapshot_image.make(context, principal, token, server, wish.name, "snapshot", also)
    still = False
    try:
        still = await _made_still(context, server, image, quiesce)
        taken = await _take(context, principal, token, server, wish.name, image)
    except UnknownOutcome as lost:  # the snapshot may still appear: a reconciler finds it by the image
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
    """Whether to quiesce, decided as in Nova: only a running guest, and only through its agent. Raises Invalid when it
    is required and there is no agent.
    """
    wanted = snapshot_image.quiesce_of(server)
    if server.vm_state is not VmState.ACTIVE:
        return Quiesce.NO
    if wanted is Quiesce.MUST and not snapshot_image.has_agent(server):
        raise Invalid(f"Instance {server.id} must be quiesced (os_require_quiesce): QEMU guest agent is not enabled")
    return wanted


async def _made_still(context: SagaContext, server: Server, image: ImageId, quiesce: Quiesce) -> bool:
    """Whether the guest is quiesced. If it is required: raises Invalid when its host cannot do that, NotQuiesced when
    it failed.
    """
    if quiesce is Quiesce.NO:
        return False
    try:
        await steps_quiesce.freeze(context, server, image)
    except Problem as failed:
        if failed.code not in steps_quiesce.NEVER_STILL:  # it may have been quiesced, or may be yet
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
    """Undo a refused request. Snapshots that cannot be deleted soon are found by a reconciler through the image, which
    stays until then.
    """
    try:
        if await asyncio.shield(_dropped_soon(context, image)):
            await snapshot_image.drop(context, image)
    except Problem:
        return


async def _dropped_soon(context: SagaContext, image: ImageId) -> bool:
    """Like `dropped`, repeated for a while: a snapshot that is being made cannot be deleted yet."""
    until, pause_s = time.monotonic() + GIVEN_UP_WITHIN_S, LOOK_FIRST_S
    while not await dropped(context, image):
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_MOST_S)
    return True


async def dropped(context: SagaContext, image: str) -> bool:
    """Delete the snapshots that were made for an image. Returns False when one cannot be deleted yet."""
    all_went = True
    for each in await volumes_of(context).snapshots_for(image):
        if each.status not in {"deleting", "deleted"}:
            try:
                await volumes_of(context).delete_snapshot(each.id)
            except Invalid:
                all_went = False
    return all_went
