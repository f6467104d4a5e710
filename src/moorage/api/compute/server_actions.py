"""`POST /servers/{id}/action`: what may be done to a server, one route per name of action."""

import re
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import in_state, not_locked, notification_of, service_of, target_of, the_server
from moorage.api.routes import Route
from moorage.api.schema import Body, NovaInt
from moorage.api.timestamps import now_us
from moorage.model.action import Action, ActionEvent
from moorage.model.errors import Conflict, HostFailed, NotBuilt
from moorage.model.server import Server, VmState
from moorage.operations.guest.power import REBOOTED_AFTER, PowerVerb
from moorage.operations.guest_service import cannot
from moorage.operations.records import servers as writes

PATH = "/servers/{id}/action"
CONSOLE_LINES_MAX = 10_000
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f]")
"""What a console's output is shown without: all that moves a cursor or colours, but tabs and line ends stay."""
HARD_REBOOT_FROM = (VmState.ACTIVE, VmState.STOPPED, VmState.PAUSED, VmState.SUSPENDED, VmState.ERROR)
HARD_REBOOT_TASKS = (None, *REBOOTED_AFTER)
POWER: tuple[tuple[str, PowerVerb, str, str, tuple[VmState, ...]], ...] = (
    ("os-start", "start", "os_compute_api:servers:start", "start", (VmState.STOPPED,)),
    ("os-stop", "stop", "os_compute_api:servers:stop", "stop", (VmState.ACTIVE, VmState.ERROR)),
    ("pause", "pause", "os_compute_api:os-pause-server:pause", "pause", (VmState.ACTIVE,)),
    ("unpause", "unpause", "os_compute_api:os-pause-server:unpause", "unpause", (VmState.PAUSED,)),
    ("suspend", "suspend", "os_compute_api:os-suspend-server:suspend", "suspend", (VmState.ACTIVE,)),
    ("resume", "resume", "os_compute_api:os-suspend-server:resume", "resume", (VmState.SUSPENDED,)),
)
"""(name on the wire, verb, policy rule, word of the refusal, the states it may be done from)."""


def _power(
    verb: PowerVerb, rule: str, word: str, states: tuple[VmState, ...]
) -> Callable[[AnyCall], Awaitable[Response]]:
    async def act(call: AnyCall) -> Response:
        server = await the_server(call, rule)
        not_locked(call, server)
        in_state(server, word, states)
        await service_of(call).power(call.principal, server, verb, call.request_id)
        return Response(202)

    return act


class RebootKind(Body):
    type: Literal["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]


class RebootBody(Body):
    reboot: RebootKind


async def reboot(call: Call[RebootBody]) -> Response:
    server = await the_server(call, "os_compute_api:servers:reboot")
    not_locked(call, server)
    hard = call.body.reboot.type.lower() == "hard"
    in_state(
        server,
        "reboot",
        HARD_REBOOT_FROM if hard else (VmState.ACTIVE,),
        HARD_REBOOT_TASKS if hard else (None,),
    )
    await service_of(call).power(call.principal, server, "hard_reboot" if hard else "reboot", call.request_id)
    return Response(202)


class LockReason(Body):
    locked_reason: Annotated[str, Meta(min_length=1, max_length=255)] | None = None


class LockBody(Body):
    lock: LockReason | None


async def _write(call: AnyCall, server: Server, action: str, changed: writes.Changed, event: str = "") -> None:
    """The change, and the action that says who made it; its event names the machine of this API, as Nova's does."""
    now = now_us(call.context.clock)
    shown = Action(
        server=server.id,
        action=action,
        request_id=call.request_id,
        user=call.principal.user,
        project=server.project,
        started_at=now,
        updated_at=now,
        finished_at=now,
        events=(ActionEvent(event, now, now, "Success", socket.gethostname()),) if event else (),
    )
    listener = notification_of(call, "lock" if action == "lock" else "unlock" if action == "unlock" else "update")
    await writes.change(call.context.region, call.context.cells, server.id, changed, now, shown, listener)


async def lock(call: Call[LockBody]) -> Response:
    """A lock by the server's own project may be taken off by it; one by another project, by administrators.

    A reason stays until the server is unlocked, or another one is given.

    Whoever is in the project changes nothing about a server that is locked already.
    """
    server = await the_server(call, "os_compute_api:os-lock-server:lock")
    reason = call.body.lock.locked_reason if call.body.lock is not None else None
    owner = server.project == call.principal.project
    if server.locked and owner:
        return Response(202)
    by = "owner" if owner else "admin"
    fields = {"locked": True, "locked_by": by, **({"locked_reason": reason} if reason else {})}
    await _write(call, server, "lock", writes.with_fields(**fields), "api_lock")
    return Response(202)


async def unlock(call: AnyCall) -> Response:
    server = await the_server(call, "os_compute_api:os-lock-server:unlock")
    by = "owner" if server.project == call.principal.project else "admin"
    if server.locked_by and server.locked_by != by:
        call.require("os_compute_api:os-lock-server:unlock:unlock_override", target_of(server))
    unlocked = writes.with_fields(locked=False, locked_by=None, locked_reason=None)
    await _write(call, server, "unlock", unlocked, "api_unlock")
    return Response(202)


class WantedState(Body):
    state: Literal["active", "error"]


class ResetBody(Body):
    reset: WantedState = msgspec.field(name="os-resetState")


async def reset_state(call: Call[ResetBody]) -> Response:
    server = await the_server(call, "os_compute_api:os-admin-actions:reset_state")
    active = call.body.reset.state == "active"

    def changed(now: Server) -> Server:
        return msgspec.structs.replace(now, vm_state=_active_again(now) if active else VmState.ERROR, task_state=None)

    await _write(call, server, "resetState", changed)
    return Response(202)


def _active_again(server: Server) -> VmState:
    """Not ACTIVE while something else is kept for it, which only its own way back ends."""
    if server.moved is not None:  # its old host still has its resources: only a confirm or a revert is allowed
        return VmState.RESIZED
    if server.shelved is not None:  # its disk is an image, and its guest is off or gone: an unshelve
        return VmState.SHELVED if server.host is not None else VmState.SHELVED_OFFLOADED
    return VmState.ACTIVE


async def inject_network_info(call: AnyCall) -> Response:
    """Guests ask for their addresses (DHCP, config drive), so there is nothing to put into them."""
    server = await the_server(call, "os_compute_api:os-admin-actions:inject_network_info")
    not_locked(call, server)
    return Response(202)


async def force_delete(call: AnyCall) -> Response:
    server = await the_server(call, "os_compute_api:os-deferred-delete:force")
    not_locked(call, server)
    await service_of(call).delete(call.principal, server, force=True, request_id=call.request_id)
    return Response(202)


async def restore(call: AnyCall) -> Response:
    """Restore a soft-deleted server; the project's quota must have room for it."""
    server = await the_server(call, "os_compute_api:os-deferred-delete:restore")
    not_locked(call, server)
    check = partial(in_state, action="restore", states=(VmState.SOFT_DELETED,))
    check(server)
    await service_of(call).restore(call.principal, server, check=check, request_id=call.request_id)
    return Response(202)


class ConsoleLength(Body):
    length: NovaInt | None = None


class ConsoleOutputBody(Body):
    console: ConsoleLength = msgspec.field(name="os-getConsoleOutput")


async def console_output(call: Call[ConsoleOutputBody]) -> Response:
    """Show the last lines of the guest's console.

    Raises Conflict while the server has no host or the host does not answer, and NotBuilt when the driver keeps no
    console log.
    """
    server = await the_server(call, "os_compute_api:os-console-output")
    if server.host is None or server.vm_state is VmState.BUILDING:
        raise Conflict(f"Instance {server.id} is not ready")
    length = call.body.console.length
    lines = None if length is None or length < 0 else min(int(length), CONSOLE_LINES_MAX)
    try:
        output = await service_of(call).console(server, lines)
    except HostFailed as failure:
        if cannot(failure):
            raise NotBuilt("The requested functionality is not supported.", private=str(failure)) from failure
        raise Conflict(
            f"The host of instance {server.id} cannot tell its console now.", private=str(failure)
        ) from failure
    return Response(200, {"output": CONTROLS.sub("", output)})


ROUTES = (
    *(Route("POST", PATH, _power(verb, rule, word, states), action=name) for name, verb, rule, word, states in POWER),
    Route("POST", PATH, reboot, takes=RebootBody, action="reboot"),
    Route("POST", PATH, lock, takes=LockBody, action="lock"),
    Route("POST", PATH, unlock, action="unlock"),
    Route("POST", PATH, reset_state, takes=ResetBody, action="os-resetState"),
    Route("POST", PATH, inject_network_info, action="injectNetworkInfo"),
    Route("POST", PATH, force_delete, action="forceDelete"),
    Route("POST", PATH, restore, action="restore"),
    Route("POST", PATH, console_output, takes=ConsoleOutputBody, action="os-getConsoleOutput"),
)
