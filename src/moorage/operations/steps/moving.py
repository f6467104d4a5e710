"""What the operations of a move share: the record of it, its two hosts, and where the server's ports and volumes are bound.

The host that a server leaves keeps its guest (off), its claim (held by the move) and inactive bindings of its ports, until the move is
confirmed or reverted.
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
from moorage.model.errors import BusOut, HostFailed, NotFound, Problem, Unavailable
from moorage.model.guest import MoveTarget, PowerState
from moorage.model.ids import CellId, ServerId
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.model.server import FlavorCopy, Moved, Server, TaskState
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import HOST_SILENT, NO_GUEST, command_context, destroy_or_leave
from moorage.operations.steps.servers import AboutServer, LocatedServer
from moorage.saga import Run
from moorage.sql import Tx
from moorage.store.cell import actions, migrations
from moorage.store.region import servers as region_servers

ON_REQUEST = "on request"
"""The cancel word of a move that somebody wants no more: its server goes on where it was."""
DELETED = "deleted"
"""The cancel word of a delete that is for good."""


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
    """What is asked of a move that begins."""

    @property
    def migration(self) -> str:
        """The UUID of the move."""
        ...

    @property
    def by_project(self) -> str:
        """The project of who asks."""
        ...


MoveRun = Run[AboutServer, SagaContext]
"""Of what a move is part of: its beginning, its confirmation, its revert."""
MovingRun = Run[Moving, SagaContext]


def moved_of(server: Server) -> Moved:
    """Raises NotFound: it was not moved, or that is over."""
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
    """The other cell that it was moved from, and may go back to; None: it was moved within its cell, or that is over."""
    cell = None if server.moved is None else server.moved.cell
    return None if cell == server.cell else cell


def here(server: Server) -> End:
    """The host that it is on."""
    assert server.cell is not None
    assert server.host is not None
    return End(server.cell, server.host, server.availability_zone or "")


def on_one_host(server: Server) -> bool:
    """It was resized where it is."""
    return server.moved is not None and server.moved.host == server.host


# -------------------------------------------------------------------------------------------------------- the record


def with_status(
    tx: Tx, move: str, status: MigrationStatus, *, unless: frozenset[MigrationStatus] = frozenset(), **changes: Any
) -> None:
    """The move's record says how far it is, `unless` it is there already; one without a record stays without."""
    found = migrations.get(tx, move)
    if found is not None and found.status not in unless:
        migrations.put(tx, msgspec.structs.replace(found, status=status, updated_at=server_action.now_us(), **changes))


def put(tx: Tx, migration: Migration) -> None:
    """The record of a move that begins; when it was begun stays."""
    found = migrations.get(tx, migration.uuid)
    if found is not None:
        migration = msgspec.structs.replace(migration, created_at=found.created_at)
    migrations.put(tx, migration)


async def begun(
    run: MovingRun, word: str, kind: MigrationType, status: MigrationStatus, new: FlavorCopy | None = None
) -> LocatedServer:
    """The action `word` and the move's record show from here on; `new`: the flavor that it is to have. Raises NotFound, Stale."""
    found = await records.find(run.context, run.input.server.id)
    if found.server is None or found.cell is None or found.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    server, input, now = found.server, run.input, server_action.now_us()
    migration = Migration(
        uuid=input.migration,
        server=server.id,
        type=kind,
        status=status,
        user=input.user,
        project=input.by_project,
        created_at=now,
        updated_at=now,
        source_host=found.server.host,
        source_node=server.node or "",
        source_provider=server.provider,
        old_flavor=server.flavor,
        new_flavor=new or server.flavor,
        request_id=input.request_id,
    )

    def also(tx: Tx) -> None:
        put(tx, migration)
        actions.write(tx, server_action.action_of(run, word))

    written = await records.change(run.context, found.cell, server.id, records.fence(run), as_it_is, also)
    return LocatedServer(written, found.cell)


async def show(
    run: MoveRun, cell: CellId, move: str, status: MigrationStatus, task: TaskState | None = None, **changes: Any
) -> None:
    """The move's record says that, and the server's what is being done (`task`). Raises Stale."""
    also = lambda tx: with_status(tx, move, status, **changes)  # noqa: E731
    changed = as_it_is if task is None else lambda server: msgspec.structs.replace(server, task_state=task)
    await records.change(run.context, cell, run.input.server.id, records.fence(run), changed, also)


async def begun_after(
    run: Run[server_action.UserInput, SagaContext], word: str, status: MigrationStatus
) -> LocatedServer:
    """The action `word` of what comes after a move, and how far that move is, show from here on. Raises NotFound, Stale."""
    found = await records.find(run.context, run.input.server.id)
    if found.server is None or found.cell is None or found.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    move = moved_of(found.server).migration

    def also(tx: Tx) -> None:
        with_status(tx, move, status)
        actions.write(tx, server_action.action_of(run, word))

    written = await records.change(run.context, found.cell, found.server.id, records.fence(run), as_it_is, also)
    return LocatedServer(written, found.cell)


async def show_moved(run: MoveRun, found: LocatedServer, status: MigrationStatus) -> None:
    """The record of the move that the server waits in says that. Raises Stale."""
    assert found.server is not None
    assert found.cell is not None
    await show(run, found.cell, moved_of(found.server).migration, status)


def as_it_is(server: Server) -> Server:
    """Only the fence is asked."""
    return server


async def not_overtaken(run: MoveRun, cell: CellId) -> None:
    """Ask the fence before anything is done at the network or the volume service. Raises Stale."""
    await records.change(run.context, cell, run.input.server.id, records.fence(run), as_it_is)


# --------------------------------------------------------------------------------------------------------- the hosts


async def target_at(run: MoveRun, to: HostOfCell) -> MoveTarget:
    """Where that host takes guests. Raises HostFailed: it is silent, or its agent or driver knows no moves."""
    address = HostAddress(to.cell, to.name)
    return await run.context.hosts.ask(address, run.input.server.id, Verb.MOVE_TARGET, None, MoveTarget)


async def has_guest(context: SagaContext, at: End, server: ServerId) -> bool:
    """Whether that host says that it has a guest of it. Raises Unavailable: it does not say, and its code is the host's."""
    try:
        await context.hosts.ask(at.address, server, Verb.GUEST_POWER, None, GuestNow)
    except HostFailed as failed:
        if failed.code == NO_GUEST:
            return False
        why = f"the host does not say how the guest is: {failed.public}"
        raise Unavailable(why, private=failed.private, code=failed.code) from failed
    return True


async def is_lost(context: SagaContext, server: Server, *, sure: bool = False) -> bool:
    """Whether the host that it is on has no guest of it; of one that does not say the record says what was observed. Raises BusOut.

    A silent host is believed to have it, unless it had said that it has it no more, or had lost it when its live migration ended: then what
    the old host kept is all that is known of.  `sure`: raises Unavailable, unless the host says it or is too old to be asked.
    """
    try:
        return not await has_guest(context, here(server), server.id)
    except BusOut:
        raise
    except Unavailable as out:
        if sure and out.code != NOT_SUPPORTED:
            raise
        observed = server.power_state == PowerState.NOSTATE
        return observed or (server.moved is not None and server.moved.live)


async def take_back_guest(run: MoveRun, step: str, to: HostOfCell, move: str, *, same_host: bool) -> bool:
    """Nothing of the move is at its destination any more; where that is the same host, the guest is as it was before, off.

    False: the host is silent, and does so when it returns.
    """
    server = run.input.server.id
    if not same_host:
        return await _destroyed(run, step, to)
    try:
        await run.context.hosts.change_guest(
            HostAddress(to.cell, to.name), command_context(run, step), server, Verb.RETURN_GUEST, OfMove(move)
        )
    except HostFailed as failed:
        if failed.code == HOST_SILENT and await for_delete(run):
            return False  # the delete that waits destroys it, or leaves it to the host's return
        if failed.code != NO_GUEST:
            raise Unavailable(f"the guest is not as it was before: {failed.public}", private=failed.private) from failed
    return True


async def _destroyed(run: MoveRun, step: str, to: HostOfCell) -> bool:
    """False: the host is silent.  A destroy that failed half-way is asked again: the other host's guest may be all there is."""
    try:
        return await destroy_or_leave(run, step, to.cell, to.name, run.input.server.id)
    except HostFailed as failed:
        raise Unavailable(f"the host could not destroy the guest: {failed.public}", private=failed.private) from failed


async def for_delete(run: MoveRun) -> bool:
    """Its server is to go, be that why it is taken back or said since: nobody waits for a guest to run again.

    One that is soft deleted may be restored, and runs again then.
    """
    if run.cancelled == DELETED:
        return True
    where = await run.context.region.read(lambda tx: region_servers.find(tx, run.input.server.id))
    return where is not None and where.task is TaskState.DELETING


@contextmanager
def elsewhere_only(*codes: str, but: tuple[str, ...] = ()) -> Iterator[None]:
    """What fails in it is tried at another host only where that may help: a host failed, with one of these codes if any are given.

    Outages of what all hosts share, refusals of other services, and what is the server's own (`but`) turn the saga.
    """
    try:
        yield
    except Problem as problem:
        helps = isinstance(problem, HostFailed) and (not codes or problem.code in codes) and problem.code not in but
        problem.final = not helps
        raise


@contextmanager
def nowhere_else() -> Iterator[None]:
    """What fails in it is of the host that is left, or of what all hosts share: it turns the saga, for no other host would help."""
    try:
        yield
    except Problem as problem:
        problem.final = True
        raise


async def switch_on_again(run: MoveRun, mine: CommandContext) -> None:
    """What was switched off on its own host by this saga runs there again.

    A silent host may have been told to switch it off, and then nobody else tells it to run: it is waited for, unless it is said to be fenced
    or the server is to go.  Raises Unavailable.
    """
    old = here(run.input.server)
    try:
        await run.context.hosts.power_on(old.address, mine, run.input.server.id)
    except HostFailed as failed:
        if failed.code not in {HOST_SILENT, NO_GUEST}:
            raise
        forced = old.name in run.context.placement.forced_down(old.cell)
        if failed.code == HOST_SILENT and not forced and not await for_delete(run):
            problem = Unavailable("the server's host is silent and has switched the guest off; it is waited for")
            named = f"host {old.name} is silent and has switched the guest off; it is waited for, or force it down"
            raise problem.naming(named) from failed


async def if_there(telling: Awaitable[object]) -> None:
    """What a silent host, or one without the guest, need not be told: its cell says what is to run when it returns."""
    try:
        await telling
    except HostFailed as failed:
        if failed.code not in {HOST_SILENT, NO_GUEST}:
            raise
