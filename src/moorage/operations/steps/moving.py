"""What the operations of a move share: its record, its two hosts, and the bindings of the server's ports and volumes.

The host that a server leaves keeps its guest (off), its claim (held by the move) and inactive bindings of its ports,
until the move is confirmed or reverted.
"""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.agent_rpc import NOT_SUPPORTED
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.move_payloads import OfMove
from moorage.bus.verbs import Verb
from moorage.model.debt import DebtKind
from moorage.model.errors import BusOut, Doubtful, HostFailed, NotFound, Problem, Unavailable
from moorage.model.guest import MoveTarget, PowerState
from moorage.model.ids import CellId, ServerId
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.model.server import FlavorCopy, Moved, Server, TaskState
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.debts import debt_of, owe
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, SILENT, command_context, destroy_or_leave
from moorage.operations.steps.servers import AboutServer, LocatedServer
from moorage.saga import Run
from moorage.sql import Tx
from moorage.store.cell import migrations

ON_REQUEST = "on request"
"""The cancel reason when a user or administrator cancels a move: the server stays where it was."""
DELETED = "deleted"
"""The cancel reason of a delete without restore."""
TASKS = {
    MigrationType.LIVE_MIGRATION: TaskState.MIGRATING,
    MigrationType.EVACUATION: TaskState.REBUILDING,
    MigrationType.MIGRATION: TaskState.RESIZE_PREP,
    MigrationType.RESIZE: TaskState.RESIZE_PREP,
}
"""What the record shows from the first write of a move to its last: one that shows it is from the middle (`store/doubts.py`)."""


class HostOfCell(Protocol):
    """A host of a cell."""

    @property
    def cell(self) -> CellId: ...
    @property
    def name(self) -> str: ...


class End(msgspec.Struct, frozen=True):
    """One of the two hosts of a move."""

    cell: CellId
    name: str
    availability_zone: str = ""

    @property
    def address(self) -> HostAddress:
        return HostAddress(self.cell, self.name)


class Moving(server_action.UserInput, Protocol):
    """The input of a move that begins."""

    @property
    def migration(self) -> str:
        """The UUID of the move."""
        ...

    @property
    def by_project(self) -> str:
        """The project of the caller."""
        ...


MoveRun = Run[AboutServer, SagaContext]
"""The run of an operation that is part of a move: its beginning, its confirm, its revert."""
MovingRun = Run[Moving, SagaContext]


def moved_of(server: Server) -> Moved:
    """Raises NotFound when the server was not moved, or the move is over."""
    if server.moved is None:
        raise NotFound("Instance has not been resized.")
    return server.moved


def source_of(server: Server) -> End:
    """The host that a server in VERIFY_RESIZE has left."""
    moved = moved_of(server)
    cell = moved.cell or server.cell
    assert cell is not None
    return End(cell, moved.host, moved.availability_zone or "")


def cell_left(server: Server) -> CellId | None:
    """The other cell from which it was moved, and to which it may go back; None when it was moved within its cell, or
    the move is over.
    """
    cell = None if server.moved is None else server.moved.cell
    return None if cell == server.cell else cell


def current_end(server: Server) -> End:
    """The host where the server is."""
    assert server.cell is not None
    assert server.host is not None
    return End(server.cell, server.host, server.availability_zone or "")


def on_one_host(server: Server) -> bool:
    """Whether it was resized on its own host."""
    return server.moved is not None and server.moved.host == server.host


# -------------------------------------------------------------------------------------------------------- the record


def with_status(
    tx: Tx, move: str, status: MigrationStatus, *, unless: frozenset[MigrationStatus] = frozenset(), **changes: Any
) -> None:
    """Write the status into the move's record, except when it has the status `unless`; a move without a record stays
    without one.
    """
    recorded = migrations.get(tx, move)
    if recorded is not None and recorded.status not in unless:
        migrations.put(
            tx, msgspec.structs.replace(recorded, status=status, updated_at=server_action.now_us(), **changes)
        )


async def begun(
    run: MovingRun, word: str, kind: MigrationType, status: MigrationStatus, event: str, new: FlavorCopy | None = None
) -> LocatedServer:
    """Show the action `word`, its first event, the task and the move's record from here on; `new` is the new flavor. Raises NotFound
    when the server is on no host, Stale when the executor was overtaken.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None or located.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    server, input, now = located.server, run.input, server_action.now_us()
    migration = Migration(
        uuid=input.migration,
        server=server.id,
        type=kind,
        status=status,
        user=input.user,
        project=input.by_project,
        created_at=now,
        updated_at=now,
        source_host=located.server.host,
        source_node=server.node or "",
        source_provider=server.provider,
        old_flavor=server.flavor,
        new_flavor=new or server.flavor,
        request_id=input.request_id,
    )

    def also(tx: Tx) -> None:
        migrations.put(tx, migration)
        server_action.begin(tx, run, word, event)

    busy = lambda server: msgspec.structs.replace(server, task_state=TASKS[kind])  # noqa: E731
    written = await records.begun(run, located, busy, also)
    assert written.server is not None
    return LocatedServer(msgspec.structs.replace(written.server, task_state=None), written.cell)


async def show(
    run: MoveRun,
    cell: CellId,
    move: str,
    status: MigrationStatus,
    task: TaskState | None = None,
    action_progress: server_action.ActionProgress | None = None,
    **changes: Any,
) -> None:
    """Write the status into the move's record, the `task` into the server's, and `action_progress` into the
    action. Raises Stale.
    """

    def also(tx: Tx) -> None:
        with_status(tx, move, status, **changes)
        if action_progress is not None:
            action_progress.write(tx, run)

    await records.change(run.context, cell, run.input.server.id, records.fence(run), records.in_task(task), also)


async def begun_after(
    run: Run[server_action.UserInput, SagaContext], word: str, status: MigrationStatus, event: str
) -> LocatedServer:
    """Show the action `word` of a confirm or revert, and the move's status, from here on. Raises NotFound when the
    server is on no host, Stale.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None or located.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    move = moved_of(located.server).migration

    def also(tx: Tx) -> None:
        with_status(tx, move, status)
        server_action.begin(tx, run, word, event)

    return await records.begun(run, located, records.as_it_is, also)


async def show_moved(run: MoveRun, located: LocatedServer, status: MigrationStatus) -> None:
    """Write the status into the record of the move that waits for confirm or revert. Raises Stale."""
    assert located.server is not None
    assert located.cell is not None
    await show(run, located.cell, moved_of(located.server).migration, status)


# --------------------------------------------------------------------------------------------------------- the hosts


async def target_at(run: MoveRun, to: HostOfCell) -> MoveTarget:
    """Read where that host takes guests. Raises HostFailed when it is silent, or its agent or driver does not support
    moves.
    """
    address = HostAddress(to.cell, to.name)
    return await run.context.hosts.ask(address, run.input.server.id, Verb.MOVE_TARGET, None, MoveTarget)


async def has_guest(context: SagaContext, at: End, server: ServerId) -> bool:
    """Whether that host reports a guest of the server. Raises Unavailable with the host's code when it cannot tell."""
    try:
        await context.hosts.ask(at.address, server, Verb.GUEST_POWER, None, GuestNow)
    except HostFailed as failed:
        if failed.code == NO_GUEST:
            return False
        why = f"the host does not say how the guest is: {failed.public}"
        raise Unavailable(why, private=failed.private, code=failed.code) from failed
    return True


async def is_lost(context: SagaContext, server: Server, *, sure: bool = False) -> bool:
    """Whether the server's host has no guest of it. When the host does not answer, the record decides. Raises BusOut.

    A silent host is taken to have the guest, unless it reported before that it has not, or had lost it at the end of
    its live migration: then only what the old host kept is known. `sure`: raises Unavailable unless the host answers,
    or is too old to be asked.
    """
    try:
        return not await has_guest(context, current_end(server), server.id)
    except BusOut:
        raise
    except Unavailable as out:
        if sure and out.code != NOT_SUPPORTED:
            raise
        observed = server.power_state == PowerState.NOSTATE
        return observed or (server.moved is not None and server.moved.live)


async def refuse_if_only_guest(run: MoveRun, source: End) -> None:
    """Before what came to another host is destroyed: raises Doubtful when the source answers and has no guest.

    Then the move went further than this journal says (RULES §26), and the guest at the destination may be the only one.
    A source that does not answer is believed to have it, as the journal says.
    """
    try:
        kept = await has_guest(run.context, source, run.input.server.id)
    except BusOut:
        raise
    except Unavailable:
        return
    if not kept and not await for_delete(run):
        raise Doubtful(
            f"The old host of instance {run.input.server.id} has no guest of it, so the one on its new host is kept."
        )


async def take_back_guest(
    run: MoveRun, step: str, to: HostOfCell, move: str, *, same_host: bool, source: End | None = None
) -> bool:
    """Remove everything of the move at its destination; on the same host, restore the guest as it was before, switched
    off.

    `source`: the host that must have the guest before the other one is destroyed. Returns False when the host is silent;
    it does so when it returns. Raises Unavailable when the host fails, and Doubtful.
    """
    server = run.input.server.id
    if not same_host:
        if source is not None:
            await refuse_if_only_guest(run, source)
        return await _destroyed(run, step, to)
    try:
        await run.context.hosts.change_guest(
            HostAddress(to.cell, to.name), command_context(run, step), server, Verb.RETURN_GUEST, OfMove(move)
        )
    except COMMAND_ENDS as failed:
        if failed.code in SILENT and await for_delete(run):
            return False  # the waiting delete destroys it, or leaves that to the returning host
        if failed.code != NO_GUEST:
            raise Unavailable(f"the guest is not as it was before: {failed.public}", private=failed.private) from failed
    return True


async def _destroyed(run: MoveRun, step: str, to: HostOfCell) -> bool:
    """Returns False when the host is silent. A destroy that failed half-way is repeated, because the other host's guest
    may be the only one left.
    """
    try:
        return await destroy_or_leave(run, step, to.cell, to.name, run.input.server.id)
    except HostFailed as failed:
        raise Unavailable(f"the host could not destroy the guest: {failed.public}", private=failed.private) from failed


async def for_delete(run: MoveRun) -> bool:
    """Whether the server is to be deleted, from the start of the unwinding or since: then no step waits until a guest
    runs again.
    """
    return run.cancelled == DELETED or await records.is_deleting(run.context, run.input.server.id)


@contextmanager
def elsewhere_only(*codes: str, but: tuple[str, ...] = ()) -> Iterator[None]:
    """A context manager: failures in it are tried at another host only where that may help: when a host failed, with
    one of `codes` if given.

    Outages of services that all hosts share, refusals of other services, and failures of the server itself (`but`)
    unwind the saga.
    """
    try:
        yield
    except Problem as problem:
        helps = isinstance(problem, COMMAND_ENDS) and (not codes or problem.code in codes) and problem.code not in but
        problem.final = not helps
        raise


@contextmanager
def nowhere_else() -> Iterator[None]:
    """A context manager: failures in it concern the host that is left, or services that all hosts share. They unwind
    the saga, because no other host would help.
    """
    try:
        yield
    except Problem as problem:
        problem.final = True
        raise


async def switch_on_again(run: MoveRun, mine: CommandContext) -> None:
    """Switch on a guest again that this saga switched off on its own host.

    A silent host may have received the command to switch it off, and only this operation switches it on again: so the
    host is waited for, unless the server is to be deleted. A host that is forced down owes it. Raises Unavailable
    meanwhile.
    """
    old = current_end(run.input.server)
    try:
        await run.context.hosts.power_on(old.address, mine, run.input.server.id)
    except COMMAND_ENDS as failed:
        if failed.code not in {*SILENT, NO_GUEST}:
            raise
        if failed.code not in SILENT or await for_delete(run):
            return
        forced = old.name in run.context.placement.forced_down(old.cell)
        if forced:
            await owe(run, debt_of(run, DebtKind.SWITCH_ON, old.cell, old.name))
        else:
            problem = Unavailable("the server's host is silent and has switched the guest off; it is waited for")
            named = f"host {old.name} is silent and has switched the guest off; it is waited for, or force it down"
            raise problem.naming(named) from failed


async def if_there(call: Awaitable[object]) -> None:
    """Skip a silent host, or one without the guest: when it returns, its cell tells it what is to run."""
    try:
        await call
    except COMMAND_ENDS as failed:
        if failed.code not in {*SILENT, NO_GUEST}:
            raise
