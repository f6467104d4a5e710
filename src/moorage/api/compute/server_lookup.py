"""One server of a call: found, and allowed, in the order Nova asks; and the refusals every action shares."""

from collections.abc import Iterable

from moorage.api.call import AnyCall
from moorage.api.cross_cell import find_server
from moorage.model.errors import Conflict, NotBuilt, NotFound
from moorage.model.json_types import JsonObject
from moorage.model.server import Server, TaskState, VmState
from moorage.operations.notifications.outbox_writer import ChangeEvent
from moorage.operations.records.servers import ChangeListener
from moorage.operations.server_service import ServerService

BUSY = "task_state"
CROSS_CELL = "compute:servers:resize:cross_cell"


def target_of(server: Server) -> JsonObject:
    return {"project_id": server.project, "user_id": server.user}


async def the_server(call: AnyCall, rule: str | None, *, deleted: bool = False) -> Server:
    """The server named in the path. NotFound also when it is another project's; then policy is asked."""
    server = await find_server(call.context, call.path["id"], deleted=deleted)
    if server.project != call.principal.project and not call.is_admin:
        raise NotFound(f"Instance {server.id} could not be found.")
    if rule is not None:
        call.require(rule, target_of(server))
    return server


def service_of(call: AnyCall) -> ServerService:
    """What begins operations; for a dry run, what only says what would begin. Raises NotBuilt when this process begins none."""
    service = call.context.operations
    if service is None:
        raise NotBuilt("This API process cannot begin operations.")
    return service.preview() if call.preview else service


def notification_of(call: AnyCall, event: ChangeEvent) -> ChangeListener | None:
    """Writes the notification of a change that is no operation; None when notifications are off."""
    writer = call.context.notification_writer
    return None if writer is None else writer.of_change(call.principal, call.request_id, event)


def may_cross_cells(call: AnyCall, server: Server) -> bool:
    """Whether who asks may have this server moved to another cell; the one rule is for moves of every kind."""
    return call.allows(CROSS_CELL, target_of(server))


def not_locked(call: AnyCall, server: Server) -> None:
    """Raises Conflict when the server is locked, unless an administrator asks."""
    if server.locked and not call.is_admin:
        raise Conflict(f"Instance {server.id} is locked")


def in_state(
    server: Server, action: str, states: Iterable[VmState], tasks: Iterable[TaskState | None] = (None,)
) -> None:
    """Check the server's state. Raises Conflict, which names the state that forbids the action."""
    states = frozenset(states)
    if server.vm_state not in states:
        raise Conflict(f"Cannot '{action}' instance {server.id} while it is in vm_state {server.vm_state.value}")
    if server.moved is not None and VmState.RESIZED not in states:  # whatever an administrator said of it since
        raise Conflict(
            f"Cannot '{action}' instance {server.id}: it was moved, and that is neither confirmed nor reverted"
        )
    if server.task_state not in tasks:
        task = None if server.task_state is None else server.task_state.value
        raise Conflict(f"Cannot '{action}' instance {server.id} while it is in {BUSY} {task}")
    if server.launched_at is None:
        raise Conflict(f"Cannot '{action}' instance {server.id} while it is not launched")
