"""Rescue and unrescue: the guest boots from a rescue image, with its own disks attached, and later from its own disk
again.

The server's own disk is not changed meanwhile, so a rescue that fails is undone: the guest is as before. An unrescue
that fails leaves the server rescued, and another one is possible.
"""

from dataclasses import dataclass, field

import msgspec

from moorage.bus.rescue_messages import RescueGuest, UnrescueGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import Conflict, HostFailed, Invalid, NotFound
from moorage.model.guest import PowerState as GuestState
from moorage.model.ids import OperationId
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.rescue import RescueSpec
from moorage.model.server import ApiPowerState, Fault, Server, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.model.world import Ask
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.guest_respawn import cards_of
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import HOST_SILENT, NO_GUEST, command_context
from moorage.operations.steps.servers import LocatedServer, StateCheck
from moorage.operations.steps.volumes import in_use
from moorage.saga import Run, Saga, step

RESCUE_EVENT = "compute_rescue_instance"
UNRESCUE_EVENT = "compute_unrescue_instance"
HOST_PATIENCE_S = 600.0
NOTHING_DONE = frozenset({NO_GUEST, "not_supported"})
DEVICES = frozenset({"disk", "cdrom", "floppy"})
BUSES = frozenset({"fdc", "ide", "lxc", "sata", "scsi", "uml", "usb", "virtio", "xen"})
BACKED_TRAIT = "COMPUTE_RESCUE_BFV"
MAPPINGS = ("block_device_mapping", "img_block_device_mapping")
"""An image with one of these properties has no disk; it names snapshots of volumes."""
LEFT_RESCUED = (
    "The host fell silent while a rescue or its end was taken back; a hard reboot brings the server's own disk."
)


class Rescue(msgspec.Struct, frozen=True):
    server: Server
    """The record before."""
    seq: int
    rescue: RescueSpec
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    """The project of the token with which the user asked."""
    sealed_password: str = ""
    """For the config drive that the rescued guest gets; empty: the server has none, or the password is not returned."""


class Unrescue(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""


RescueRun = Run[Rescue, SagaContext]
UnrescueRun = Run[Unrescue, SagaContext]


# ------------------------------------------------------------------------------------------------------- rescue


@step
async def begin_action(run: RescueRun) -> LocatedServer:
    return await server_action.begun(run, "rescue", RESCUE_EVENT)


@begin_action.undo
async def fail_action(run: RescueRun) -> None:
    """Restore the record: the guest runs from its own disk, or is off."""
    await server_action.failed(run, RESCUE_EVENT)


@step(needs=(begin_action,), patience_s=HOST_PATIENCE_S)
async def rescue_guest(run: RescueRun) -> GuestState:
    """Let the host shut the guest down and boot it from the rescue image, with a config drive of its own where the
    server has one.
    """
    located = run[begin_action]
    order = RescueGuest(run.input.rescue, await _drive(run, located.server))
    to, mine = server_action.host_of(located), command_context(run, "rescue_guest")
    return await run.context.hosts.change_guest(to, mine, run.input.server.id, Verb.RESCUE_GUEST, order)


async def _drive(run: RescueRun, server: Server | None) -> InstanceMetadata | None:
    """The server's own config drive, with the password of this rescue; the boot's password is stored nowhere."""
    if server is None or not server.config_drive:
        return None
    cards, zone = await cards_of(run.context, server), server.availability_zone
    guest = guest_of(server, cards.networks, cards.ports, zone or run.context.settings.default_availability_zone)
    sealed = run.input.sealed_password
    return (await with_drive(run.context, server, guest, cards.networks, cards.ports, sealed_password=sealed)).drive


@rescue_guest.undo
async def unrescue_again(run: RescueRun) -> None:
    """Boot the guest from its own disk again, or leave it off as it was. Without a guest there is nothing to undo.

    A silent host is not waited for: then it is unknown what the guest runs, and the server is in ERROR.
    """
    located = run.get(begin_action)
    if located is not None:
        order = UnrescueGuest(power_on=_was_on(run.input.server))
        await _take_back(run, located, "unrescue_again", Verb.UNRESCUE_GUEST, order)


async def _take_back(
    run: Run[Rescue, SagaContext] | Run[Unrescue, SagaContext],
    located: LocatedServer,
    step: str,
    verb: Verb,
    order: msgspec.Struct,
) -> None:
    try:
        await run.context.hosts.change_guest(
            server_action.host_of(located), command_context(run, step), run.input.server.id, verb, order
        )
    except HostFailed as failed:
        if failed.code == HOST_SILENT:
            await _unknown(run, located)
        elif failed.code not in NOTHING_DONE:
            raise


async def _unknown(run: Run[Rescue, SagaContext] | Run[Unrescue, SagaContext], located: LocatedServer) -> None:
    assert located.cell is not None
    fault = Fault(500, LEFT_RESCUED, server_action.now_us())
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: msgspec.structs.replace(server, vm_state=VmState.ERROR, fault=fault),
    )


def _was_on(server: Server) -> bool:
    return server.vm_state is VmState.ACTIVE or (
        server.vm_state is not VmState.STOPPED and server.power_state == ApiPowerState.RUNNING
    )


@step(needs=(begin_action, rescue_guest), no_undo="a server that was shown rescued stays so", point_of_no_return=True)
async def record_rescued(run: RescueRun) -> None:
    state = int(run[rescue_guest])
    await server_action.done(
        run, run[begin_action], RESCUE_EVENT, lambda server: rescued(run.input, server, state, server_action.now_us())
    )


def rescued(input: Rescue, server: Server, power: int, now: int) -> Server:
    """The record of a rescued server."""
    return msgspec.structs.replace(
        server,
        vm_state=VmState.RESCUED,
        task_state=None,
        power_state=power,
        rescue=input.rescue,
        launched_at=now,
        updated_at=now,
    )


RESCUE = Saga("rescue/1", Rescue, begin_action, rescue_guest, record_rescued, ended=records.release_server)


# ----------------------------------------------------------------------------------------------------- unrescue


@step
async def begin_unrescue(run: UnrescueRun) -> LocatedServer:
    return await server_action.begun(run, "unrescue", UNRESCUE_EVENT)


@begin_unrescue.undo
async def fail_unrescue(run: UnrescueRun) -> None:
    """The server is still rescued, and another unrescue is possible."""
    await server_action.failed(run, UNRESCUE_EVENT)


@step(needs=(begin_unrescue,), patience_s=HOST_PATIENCE_S)
async def unrescue_guest(run: UnrescueRun) -> GuestState:
    to, mine = server_action.host_of(run[begin_unrescue]), command_context(run, "unrescue_guest")
    return await run.context.hosts.change_guest(to, mine, run.input.server.id, Verb.UNRESCUE_GUEST, UnrescueGuest())


@unrescue_guest.undo
async def rescue_again(run: UnrescueRun) -> None:
    """Boot from the rescue image again, because the server is still shown as rescued."""
    located, spec = run.get(begin_unrescue), run.input.server.rescue
    if located is not None and spec is not None:
        await _take_back(run, located, "rescue_again", Verb.RESCUE_GUEST, RescueGuest(spec))


@step(needs=(begin_unrescue, unrescue_guest), no_undo="it records what happened", point_of_no_return=True)
async def record_unrescued(run: UnrescueRun) -> None:
    state = int(run[unrescue_guest])
    await server_action.done(
        run, run[begin_unrescue], UNRESCUE_EVENT, lambda server: unrescued(server, state, server_action.now_us())
    )


def unrescued(server: Server, power: int, now: int) -> Server:
    """The record of a server that runs from its own disk again."""
    return msgspec.structs.replace(
        server, vm_state=VmState.ACTIVE, task_state=None, power_state=power, rescue=None, updated_at=now
    )


UNRESCUE = Saga("unrescue/1", Unrescue, begin_unrescue, unrescue_guest, record_unrescued, ended=records.release_server)


# --------------------------------------------------------------------------------------------------- acceptance


@dataclass(frozen=True)
class RescueRequest:
    """What a rescue request asks for."""

    image: str | None = None
    """None: the default image of the configuration, or the server's own."""
    password: str = field(default="", repr=False)
    """The administrator password of the rescued guest, for its config drive."""
    may_boot_from_volume: bool = False
    """Whether servers that boot from a volume may be rescued (2.87), from an image that names both device and bus."""


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    server: Server,
    request: RescueRequest,
    *,
    check: StateCheck,
    request_id: str = "",
) -> None:
    """Accept a rescue. Raises Invalid (an image that cannot rescue) and Conflict."""
    check(server)
    if server.volume_backed and not request.may_boot_from_volume:
        raise _not_backed(server)
    spec = await _spec(context, token, server, request.image)
    await _volumes_in_use(context, principal, token, server)
    if server.volume_backed:
        if not (spec.device and spec.bus):
            raise _not_backed(server)
        await _check_host(context, server)
    owner = await context.dispatcher.choose(RESCUE.name)
    password, seals = request.password, context.seals
    sealed = seals.seal(password) if server.config_drive and seals is not None and password else ""

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        input = Rescue(
            now, seq, spec, request_id, principal.user, global_request_id.get(), principal.project or "", sealed
        )
        return accepted(RESCUE, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id)

    await dispatch(context, await server_lock.accept(context, server.id, "rescue", make, task=TaskState.RESCUING))


async def begin_back(
    context: SagaContext, principal: Principal, server: Server, *, check: StateCheck, request_id: str = ""
) -> None:
    """Accept an unrescue. Raises Conflict."""
    owner = await context.dispatcher.choose(UNRESCUE.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        input = Unrescue(now, seq, request_id, principal.user, global_request_id.get(), principal.project or "")
        return accepted(
            UNRESCUE, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    await dispatch(context, await server_lock.accept(context, server.id, "unrescue", make, task=TaskState.UNRESCUING))


async def _spec(context: SagaContext, token: str, server: Server, image: str | None) -> RescueSpec:
    """From the requested image, or the operator's, or the server's own."""
    if image is None and not context.settings.rescue_image:
        if server.volume_backed or server.image is None:  # it has no image of its own to boot from
            raise _not_backed(server)
        return _stable(server.image, server.image_properties)
    wanted = image or context.settings.rescue_image
    try:
        shown = await context.images.show(wanted, token if image else None)
    except NotFound as missing:
        raise _unsupported(wanted) from missing
    if shown.status != "active" or any(shown.properties.get(each) for each in MAPPINGS):
        raise _unsupported(wanted)
    return _stable(shown.id, shown.properties)


async def _volumes_in_use(context: SagaContext, principal: Principal, token: str, server: Server) -> None:
    """Raises Conflict for a volume that is in use: the caller may wait for it, as in Nova (a rebuild answers Invalid)."""
    try:
        await in_use(context, principal, token, server)
    except Invalid as refused:
        raise Conflict(refused.public, private=refused.private) from refused


def _not_backed(server: Server) -> Invalid:
    return Invalid(f"Instance {server.id} cannot be rescued: Cannot rescue a volume-backed instance")


async def _check_host(context: SagaContext, server: Server) -> None:
    """Raises Invalid when the server's host cannot rescue servers that boot from a volume."""
    ask = Ask(resources={}, required=(BACKED_TRAIT,), host=server.host, project=server.project, staying=True)
    if not context.placement.rank(ask).best and not (await context.placement.rank_fresh(ask)).best:
        raise Invalid(f"Instance {server.id} cannot be rescued: Host unable to rescue a volume-backed instance")


def _stable(image: str, properties: dict[str, str]) -> RescueSpec:
    """When the image names a device or a bus, every disk keeps its place."""
    device, bus = properties.get("hw_rescue_device", ""), properties.get("hw_rescue_bus", "")
    if (device and device not in DEVICES) or (bus and bus not in BUSES):
        raise _unsupported(image)
    return RescueSpec(image, dict(properties), device, bus)


def _unsupported(image: str) -> Invalid:
    return Invalid(f"Requested rescue image '{image}' is not supported")
