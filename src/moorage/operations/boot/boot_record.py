"""What a boot writes about a server besides its record in the cell: its action, its fault, and its order at the end."""

import msgspec

from moorage.model.action import Action, ActionEvent
from moorage.model.errors import Problem
from moorage.model.server import VmState
from moorage.operations.boot.boot_input import Boot
from moorage.operations.steps.failures import fault_of
from moorage.operations.steps.server_action import now_us
from moorage.sql import Tx
from moorage.store.region import servers as region_servers


def write_error(tx: Tx, boot: Boot, problem: Problem) -> None:
    """Let the server's order show ERROR, with the fault."""
    now = now_us()
    fault = fault_of(problem, now)
    where = region_servers.find(tx, boot.server.id)
    order = boot.server if where is None or where.order is None else where.order
    region_servers.write_order(
        tx,
        msgspec.structs.replace(
            order,
            vm_state=VmState.ERROR,
            task_state=None,
            fault=fault,
            updated_at=now,
            generation=order.generation + 1,
        ),
    )


def without_boot_only(boot: Boot) -> Boot | None:
    """The input that the journal keeps when the boot is over; None when nothing must be removed.

    Moves read what they need from the server's record.
    """
    server = boot.server
    if not (server.hints or server.user_data or boot.files or boot.sealed_password):
        return None
    server = msgspec.structs.replace(server, hints={}, user_data=None)
    return msgspec.structs.replace(boot, server=server, files=(), sealed_password="")


def create_action(boot: Boot, now: int, events: tuple[ActionEvent, ...]) -> Action:
    """The action that shows the boot."""
    return Action(
        server=boot.server.id,
        action="create",
        request_id=request_of(boot),
        user=boot.server.user,
        project=boot.server.project,
        started_at=boot.server.created_at,
        updated_at=now,
        events=events,
    )


def request_of(boot: Boot) -> str:
    """The id of the request that asked for the boot."""
    return boot.request_id or f"req-{boot.server.id}"
