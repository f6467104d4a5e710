"""Talking to the host a server is on: errands with their turn, and what a silent host means."""

import logging
import uuid
from collections.abc import Iterable

import msgspec

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.guest_payloads import DestroyGuest
from moorage.model.errors import HostFailed
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, HostId, ServerId
from moorage.model.server import Server
from moorage.model.world import World
from moorage.operations.context import SagaContext
from moorage.operations.steps.servers import AboutServer
from moorage.saga import Run

logger = logging.getLogger(__name__)

HOST_SILENT = "host_silent"
NO_GUEST = "guest_not_found"


def command_context(run: Run[AboutServer, SagaContext], step: str) -> CommandContext:
    """One command of this saga, with the turn of RULES §10: operation, attempt, do or undo."""
    turn = FencingToken(run.input.seq, run.attempt)
    return CommandContext(
        operation=run.operation,
        turn=turn.undo() if run.phase == "undo" else turn,
        step=step,
        patience_s=run.context.settings.host_deadline_s,
        request_id=run.input.request_id,
        until_done=run.past,
    )


def source_command_context(run: Run[AboutServer, SagaContext], step: str) -> CommandContext:
    """To the host that a move leaves: it is commanded in every attempt, so what takes back an early one's is newer than the last one's.

    A saga that tries no hosts has no attempts: a turn of one would be newer than all that it says next.
    """
    mine = command_context(run, step)
    if run.phase != "undo" or not (run.attempt or run.tried):
        return mine
    return msgspec.structs.replace(mine, turn=FencingToken(run.input.seq, max(run.attempt, len(run.tried) + 1)).undo())


def unique_command(step: str) -> str:
    """A name for one order among several of a step: else the host's journal answers it with what it said of the first one.

    What is sent again for want of an answer is the same order, and keeps its name.
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
    """Destroy a guest; False when the host is silent.

    A silent host cannot be asked, and nobody should wait for it: when it is heard again its cell tells it which servers
    are its own, and it destroys the rest before it does anything else (RULES §10).
    """
    try:
        await run.context.hosts.destroy_guest(HostAddress(cell, host), command_context(run, step), server, release)
    except HostFailed as failed:
        if failed.code != HOST_SILENT:
            raise
        logger.warning("%s: host %s is silent; its guest of %s goes when it returns", run.operation, host, server)
        return False
    return True


async def unplug_or_leave(run: Run[AboutServer, SagaContext], step: str, server: Server, port: str) -> bool:
    """Unplug an interface; no guest is success, and False means that the host is silent.

    The port itself is let go all the same, so what a silent host's guest still has leads nowhere.
    """
    if server.cell is None or server.host is None:
        return True
    try:
        await run.context.hosts.detach_interface(
            HostAddress(server.cell, server.host), command_context(run, step), server.id, port
        )
    except HostFailed as failed:
        if failed.code == NO_GUEST:
            return True
        if failed.code != HOST_SILENT:
            raise
        logger.warning(
            "%s: host %s is silent; the guest of %s keeps a dead card", run.operation, server.host, server.id
        )
        return False
    return True


def names_of(world: World, hosts: Iterable[str]) -> tuple[str, ...]:
    """Names of the hosts with these ids; one that is no more has none."""
    slots = (world.slots.get(HostId(host)) for host in hosts)
    return tuple(world.names[slot] for slot in slots if slot is not None)
