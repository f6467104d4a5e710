"""The beginning and end of every operation on a server that is on a host: its record is found, its action shown and
finished.
"""

import time
from collections.abc import Callable
from typing import Protocol

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import Action, ActionEvent
from moorage.model.errors import NotFound
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.steps import servers as records
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.servers import AboutServer, LocatedServer
from moorage.saga import Run
from moorage.sql import Tx
from moorage.store.cell import actions


class UserInput(AboutServer, Protocol):
    """The input of an operation that a user requested."""

    @property
    def user(self) -> str: ...


DoingRun = Run[UserInput, SagaContext]
Changed = Callable[[Server], Server]


def request_of(run: DoingRun) -> str:
    return run.input.request_id or f"req-{run.operation}"


def now_us() -> int:
    return time.time_ns() // 1000


def action_of(run: DoingRun, word: str) -> Action:
    """The action while it is under way."""
    now = now_us()
    return Action(
        server=run.input.server.id,
        action=word,
        request_id=request_of(run),
        user=run.input.user,
        project=run.input.server.project,
        started_at=now,
        updated_at=now,
    )


def ended_event(name: str, now: int, host: str | None) -> ActionEvent:
    """An event that ended successfully."""
    return ActionEvent(name, now, now, "Success", host)


async def begun(run: DoingRun, word: str) -> LocatedServer:
    """Read the record, now that no other operation holds the server, and show the action. Raises NotFound when it is on
    no host.
    """
    found = await records.find(run.context, run.input.server.id)
    if found.server is None or found.cell is None or found.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    await run.context.cells[found.cell].write(lambda tx: actions.write(tx, action_of(run, word)))
    return found


def finish(tx: Tx, run: DoingRun, events: tuple[ActionEvent, ...], now: int) -> None:
    """Finish the action with success."""
    actions.finish(tx, run.input.server.id, request_of(run), events, now, None)


async def failed(run: DoingRun, event: str, changed: Changed | None = None) -> None:
    """End the action with Error; `changed` returns the record to write, which is otherwise unchanged."""
    found = await records.find(run.context, run.input.server.id)
    if found.cell is None or found.server is None:
        return
    now = now_us()
    events = (failed_event(event, now, found.server.host, run.turned),)

    def finish(tx: Tx) -> None:
        actions.finish(tx, run.input.server.id, request_of(run), events, now, "Error")

    if changed is None:
        await run.context.cells[found.cell].write(finish)
    else:
        await records.change(run.context, found.cell, found.server.id, records.fence(run), changed, finish)


async def done(run: DoingRun, found: LocatedServer, event: str, changed: Changed) -> None:
    """Write the record and the end of the action together."""
    assert found.cell is not None
    now = now_us()
    host = None if found.server is None else found.server.host
    events = (ActionEvent(event, now, now, "Success", host),)
    await records.change(
        run.context,
        found.cell,
        run.input.server.id,
        records.fence(run),
        changed,
        lambda tx: actions.finish(tx, run.input.server.id, request_of(run), events, now, None),
    )


def host_of(found: LocatedServer) -> HostAddress:
    """The host of its guest."""
    assert found.server is not None
    assert found.server.cell is not None
    assert found.server.host is not None
    return HostAddress(found.server.cell, found.server.host)
