"""The beginning and end of every operation on a server that is on a host: its record is found, its action shown and
finished.
"""

import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

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


AboutRun = Run[AboutServer, SagaContext]
DoingRun = Run[UserInput, SagaContext]
Changed = Callable[[Server], Server]


def request_of(run: AboutRun) -> str:
    return run.input.request_id or f"req-{run.operation}"


def now_us() -> int:
    return time.time_ns() // 1000


SHOWN = "events of the action"
"""Where a run keeps the events that it has shown, or is about to show."""


class ActionProgress(NamedTuple):
    """Events of an action that have ended well, and those that begin: (name, host)."""

    ended: tuple[str, ...] = ()
    begun: tuple[tuple[str, str | None], ...] = ()

    def note(self, run: AboutRun) -> None:
        """Take its times now: the next commit that shows progress, or the end of the action, shows them."""
        shown = run.cache.get(SHOWN)
        if shown is not None:
            run.cache[SHOWN] = self._after(shown, now_us())

    def write(self, tx: Tx, run: AboutRun) -> None:
        """Show it at the action."""
        shown, now = shown_events(tx, run), now_us()
        if shown:
            run.cache[SHOWN] = self._after(shown, now)
            actions.show(tx, run.input.server.id, request_of(run), run.cache[SHOWN], now)

    def _after(self, shown: Sequence[ActionEvent], now: int) -> tuple[ActionEvent, ...]:
        begun = tuple(ActionEvent(name, now, host=host) for name, host in self.begun)
        return actions.advanced(shown, now, ended=self.ended, begun=begun)


def shown_events(tx: Tx, run: AboutRun) -> Sequence[ActionEvent]:
    """The events that this operation has shown; an executor that did not begin its action reads them."""
    shown: Sequence[ActionEvent] | None = run.cache.get(SHOWN)
    if shown is None:
        known = actions.get(tx, run.input.server.id, request_of(run))
        return () if known is None else known.events
    return shown


def action_of(run: DoingRun, word: str, *events: str) -> Action:
    """The action while it is under way, with the events that begin with it."""
    now = now_us()
    return Action(
        server=run.input.server.id,
        action=word,
        request_id=request_of(run),
        user=run.input.user,
        project=run.input.server.project,
        started_at=now,
        updated_at=now,
        events=tuple(ActionEvent(each, now, host=run.input.server.host) for each in events),
    )


def ended_event(name: str, now: int, host: str | None) -> ActionEvent:
    """An event that ended successfully."""
    return ActionEvent(name, now, now, "Success", host)


def begin(tx: Tx, run: DoingRun, word: str, *events: str) -> None:
    """Show the action with its first events."""
    action = action_of(run, word, *events)
    actions.write(tx, action)
    run.cache[SHOWN] = action.events


async def begun(run: DoingRun, word: str, *events: str) -> LocatedServer:
    """Read the record, now that no other operation holds the server, and show the action with its first events. Raises
    NotFound when it is on no host, Doubtful when its record may not be acted on.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None or located.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    await run.context.cells[located.cell].write(lambda tx: begin(tx, run, word, *events))
    return located


def finish(
    tx: Tx, run: AboutRun, events: Sequence[ActionEvent], now: int, message: Literal["Error"] | None = None
) -> None:
    """Finish the action with these events. One that was shown before keeps the times that it has."""
    events = actions.with_times(events, shown_events(tx, run))
    actions.finish(tx, run.input.server.id, request_of(run), events, now, message)


async def failed(run: DoingRun, event: str, changed: Changed | None = None) -> None:
    """End the action with Error; `changed` returns the record to write, which is otherwise unchanged."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is None or located.server is None:
        return
    now = now_us()
    events = (failed_event(event, now, located.server.host, run.turned),)

    def ended(tx: Tx) -> None:
        finish(tx, run, events, now, "Error")

    if changed is None:
        await run.context.cells[located.cell].write(ended)
    else:
        await records.change(
            run.context, located.cell, located.server.id, records.fence(run), changed, ended, last=True
        )


async def done(run: DoingRun, located: LocatedServer, event: str, changed: Changed) -> None:
    """Write the record and the end of the action together."""
    assert located.cell is not None
    now = now_us()
    host = None if located.server is None else located.server.host
    events = (ActionEvent(event, now, now, "Success", host),)
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        changed,
        lambda tx: finish(tx, run, events, now),
        last=True,
    )


def host_of(located: LocatedServer) -> HostAddress:
    """The host of its guest."""
    assert located.server is not None
    assert located.server.cell is not None
    assert located.server.host is not None
    return HostAddress(located.server.cell, located.server.host)
