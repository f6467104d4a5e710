"""Commands to the host of a server: their fencing tokens, and what to do when the host is silent."""

import logging
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.guest_payloads import DestroyGuest
from moorage.model.errors import HostFailed, HostUnanswered, Problem
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, HostId, ServerId
from moorage.model.server import Server
from moorage.model.world import World
from moorage.operations.context import SagaContext
from moorage.operations.steps.servers import AboutServer
from moorage.saga import Run

logger = logging.getLogger(__name__)

HOST_SILENT = "host_silent"
"""The host was silent before anything was sent to it."""
HOST_UNANSWERED = HostUnanswered.code
"""It was sent the command, or may have been, and is silent: it may have done it."""
SILENT = frozenset({HOST_SILENT, HOST_UNANSWERED})
"""For an undo the two are one: what is to be undone may be there, and nobody can undo it now."""
COMMAND_ENDS = (HostFailed, HostUnanswered)
"""The errors with which a command to one host ends; others concern the bus, or leave the outcome open."""
NO_GUEST = "guest_not_found"


def command_context(run: Run[AboutServer, SagaContext], step: str) -> CommandContext:
    """The context of one command of this saga, with the fencing token of RULES §10: operation, attempt, do or undo."""
    turn = FencingToken(run.input.seq, run.attempt)
    return CommandContext(
        operation=run.operation,
        turn=turn.undo() if run.phase == "undo" else turn,
        step=step,
        patience_s=run.context.settings.host_deadline_s,
        request_id=run.input.request_id,
        until_done=run.past,
        unsure=run.unsure and run.phase == "do",
    )


def source_command_context(run: Run[AboutServer, SagaContext], step: str) -> CommandContext:
    """The context of a command to the host that a move leaves. It is commanded in every attempt, so the undo of an
    early attempt must be newer than the commands of the last one.

    A saga that tries no hosts has no attempts: a token with an attempt would be newer than all its later commands.
    """
    mine = command_context(run, step)
    if run.phase != "undo" or not (run.attempt or run.tried):
        return mine
    return msgspec.structs.replace(mine, turn=FencingToken(run.input.seq, max(run.attempt, len(run.tried) + 1)).undo())


def unique_command(step: str) -> str:
    """A name for one of several commands of a step: with the same name the host would answer with the result that it
    stored for the first one.

    A command that is sent again because no answer came keeps its name.
    """
    return f"{step}/{uuid.uuid4().hex}"


async def destroy_or_leave(
    run: Run[AboutServer, SagaContext],
    step: str,
    cell: CellId,
    host: str,
    server: ServerId,
    release: DestroyGuest | None = None,
) -> bool:
    """Destroy a guest; return False when the host is silent.

    A silent host is not waited for: when it returns, its cell sends it the list of its servers, and it destroys the
    others before it does anything else (RULES §10).
    """
    try:
        await run.context.hosts.destroy_guest(HostAddress(cell, host), command_context(run, step), server, release)
    except COMMAND_ENDS as failed:
        if failed.code not in SILENT:
            raise
        logger.warning(
            "%s: host %s is silent; it destroys its guest of %s when it returns", run.operation, host, server
        )
        return False
    return True


async def unplug_or_leave(run: Run[AboutServer, SagaContext], step: str, server: Server, port: str) -> bool:
    """Unplug an interface; no guest counts as success. Returns False when the host is silent."""
    if server.cell is None or server.host is None:
        return True
    try:
        await run.context.hosts.detach_interface(
            HostAddress(server.cell, server.host), command_context(run, step), server.id, port
        )
    except COMMAND_ENDS as failed:
        if failed.code == NO_GUEST:
            return True
        if failed.code not in SILENT:
            raise
        return False
    return True


def was_never_sent(run: Run[AboutServer, SagaContext], step: str) -> bool:
    """For an undo: whether the saga unwinds because the host was silent before this step's command was sent.

    Then nothing of it is at the host. An executor that adopts the saga reads the same from the journal.
    """
    return run.turned is not None and run.turned.step == step and run.turned.code == HOST_SILENT


def is_given_up(run: Run[AboutServer, SagaContext], host: HostAddress, ended: Problem) -> bool:
    """Whether a command has no known outcome and its host was forced down: nobody waits for its answer any more."""
    return ended.code == HOST_UNANSWERED and host.host in run.context.placement.forced_down(host.cell)


@contextmanager
def until_given_up(run: Run[AboutServer, SagaContext], host: HostAddress) -> Iterator[None]:
    """A context manager for a command at a point of no return: a host without an answer is waited for until it is
    forced down. Then it raises HostFailed with the code HOST_UNANSWERED: the saga unwinds, and its undos know that the
    host may have done it.
    """
    try:
        yield
    except HostUnanswered as unanswered:
        if not is_given_up(run, host, unanswered):
            raise
        raise HostFailed(unanswered.public, private=unanswered.private, code=unanswered.code) from unanswered


def may_have_been_done(run: Run[AboutServer, SagaContext]) -> bool:
    """For an undo: whether the saga unwinds though its point of no return may lie behind, because its host was given up
    or the server is to be deleted.
    """
    return run.turned is not None and run.turned.code == HOST_UNANSWERED


def names_of(world: World, hosts: Iterable[str]) -> tuple[str, ...]:
    """Names of the hosts with these ids; a host that was deleted is left out."""
    slots = (world.slots.get(HostId(host)) for host in hosts)
    return tuple(world.names[slot] for slot in slots if slot is not None)
