"""Where the guest of a live migration is, in the words of its two hosts.

"None" from one host proves nothing about the other (RULES §26): a source forgets the move together with the guest that has left.
"""

import logging
from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.agent_rpc import NOT_SUPPORTED
from moorage.bus.move_payloads import OfMove
from moorage.bus.verbs import Verb
from moorage.model.errors import BusOut, Unavailable
from moorage.model.guest import MoveTarget, PowerState
from moorage.model.live_migration import OVER_AT_SOURCE, LiveNow, LiveState
from moorage.operations.steps import moving
from moorage.operations.steps.hosts import COMMAND_ENDS, SILENT, command_context, unique_command
from moorage.operations.steps.moving import MoveRun

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

HAS_ARRIVED = "guest_has_arrived"


class LiveMovePath(msgspec.Struct, frozen=True):
    """Source, destination and move."""

    source: HostAddress
    to: HostAddress
    move: str
    target: MoveTarget = MoveTarget()
    attempt: int = 0
    """The attempt that chose the destination."""


def command_after(run: MoveRun, step: str, attempt: int) -> CommandContext:
    """A command that is not older than the commands of the attempt that chose the destination (RULES §10)."""
    mine = command_context(run, step)
    return msgspec.structs.replace(mine, turn=msgspec.structs.replace(mine.turn, attempt=max(attempt, run.attempt)))


async def now_at(run: MoveRun, host: HostAddress, move: str) -> LiveNow | None:
    """The state of the migration at one host; None when the host is silent. Raises Unavailable when the host cannot
    tell.
    """
    call = run.context.hosts.ask(host, run.input.server.id, Verb.LIVE_STATUS, OfMove(move), LiveNow)
    return await unless(call, *SILENT)


async def unless(call: Awaitable[AnswerT], *codes: str | None) -> AnswerT | None:
    """The answer; None when it failed with one of these codes. Raises Unavailable for other failures, because they do
    not tell where the guest is.
    """
    try:
        return await call
    except COMMAND_ENDS as failed:
        if failed.code not in codes:
            raise Unavailable(f"the host failed: {failed.public}", private=failed.private) from failed
        return None


async def switched(run: MoveRun, way: LiveMovePath, at_source: LiveNow | None) -> bool:
    """When the source does not answer, or does not know the move, the destination tells whether the guest is there."""
    if at_source is not None and at_source.state is not LiveState.NONE:
        return at_source.state is LiveState.SWITCHED
    at_target = await now_at(run, way.to, way.move)
    return at_target is not None and at_target.state is LiveState.ARRIVED


async def stays_for_certain(run: MoveRun, way: LiveMovePath, now: LiveNow) -> bool:
    """Whether it is certain that the guest will not run at the destination.

    That the source does not know the move proves nothing: it forgets the move with the guest that has left (RULES §26).
    So it must say that it has the guest, or the destination that nothing runs there.
    """
    if now.state is not LiveState.NONE:
        return now.state in OVER_AT_SOURCE
    if await _has_guest(run, way.source):
        return True
    at_target = await now_at(run, way.to, way.move)
    if at_target is None or at_target.state not in {LiveState.NONE, LiveState.WAITING}:
        return False
    return at_target.state is LiveState.WAITING or await _has_guest(run, way.to) is False


async def _has_guest(run: MoveRun, at: HostAddress) -> bool | None:
    """None: the host cannot tell now."""
    try:
        return await moving.has_guest(run.context, moving.End(at.cell, at.host), run.input.server.id)
    except BusOut:
        raise
    except Unavailable as out:
        logger.info("%s: whether %s has the guest is not known: %s", run.operation, at.host, out.public)
        return None


async def may_run_at_destination(run: MoveRun, way: LiveMovePath, step: str) -> bool:
    """Before the place at the destination is destroyed: whether the only guest may run there.

    The source must have the guest, or the destination must answer that nothing has arrived, and remove the place. Raises
    Unavailable when the destination fails.
    """
    if await _has_guest(run, way.source):
        return False
    mine, move = command_after(run, unique_command(step), way.attempt), OfMove(way.move)
    call = run.context.hosts.change_guest(way.to, mine, run.input.server.id, Verb.DROP_LIVE, move)
    try:
        return await call is not PowerState.NOSTATE
    except COMMAND_ENDS as failed:
        if failed.code in {*SILENT, NOT_SUPPORTED}:  # a silent host destroys nothing now
            return False
        if failed.code == HAS_ARRIVED:
            return True
        raise Unavailable(f"the host failed: {failed.public}", private=failed.private) from failed


async def is_lost(run: MoveRun, way: LiveMovePath) -> bool:
    """Whether the destination, which has said that it has no such guest, does not know the move either: then nothing
    will arrive.
    """
    at_target = await now_at(run, way.to, way.move)
    return at_target is not None and at_target.state is LiveState.NONE


async def closed(run: MoveRun, way: LiveMovePath, step: str) -> bool:
    """Remove the place at the destination, so that nothing arrives. Returns False when the guest is there, or the host
    is silent.
    """
    mine, move = command_after(run, unique_command(step), way.attempt), OfMove(way.move)
    call = run.context.hosts.change_guest(way.to, mine, run.input.server.id, Verb.DROP_LIVE, move)
    return await unless(call, *SILENT, HAS_ARRIVED) is PowerState.NOSTATE
