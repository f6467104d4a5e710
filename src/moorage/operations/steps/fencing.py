"""Proof that the host which a server leaves no longer runs it (RULES §11), and the refusals without such proof.

Silence is no proof: a silent host may run its guests while its agent, its network or its bus is down.
"""

import asyncio
import logging
from collections.abc import Awaitable

from moorage.model.errors import Conflict, Invalid, Unavailable
from moorage.model.fence_proof import FencedBy, FenceProof
from moorage.model.host import Host
from moorage.model.ids import CellId
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, SILENT, command_context, unique_command
from moorage.operations.steps.moving import MoveRun, current_end
from moorage.operations.steps.server_action import now_us
from moorage.store.cell import hosts as cell_hosts

NOT_FENCED = "host_not_fenced"
PLUGIN_WITHIN_S = 10.0
HEARD_LATE_S = 5.0
"""How much later than the operator's word the last heartbeat may have arrived: earlier ones may still be on their way;
hosts write one every other second. A machine that was switched off cannot be back so soon; a later heartbeat is from a
host that is on.
"""

logger = logging.getLogger(__name__)


async def refuse_unfenced(context: SagaContext, server: Server) -> FenceProof | None:
    """The proof that exists when an evacuation is accepted. Raises Invalid while the host is up, Conflict when nothing
    proves that it is off.

    None: nothing is proved yet, but the machine can be switched off, and the operation does that.

    A host that is forced down and still answers is asked itself before anything is changed (`prove`): then its answer
    counts, not the operator's word.
    """
    host = current_end(server)
    row = await _row(context, server)
    if row is not None and not context.hosts.is_silent(host.name):
        if not row.forced_down:
            raise Invalid(f"Compute service of {host.name} is still in use.")
        return FenceProof(host.name, FencedBy.OPERATOR, row.forced_down_at or now_us(), row.forced_down_by or "")
    return await _known(context, server, row)


async def prove(run: MoveRun, step: str, server: Server) -> FenceProof:
    """Return a proof of this moment. A host that answers switches the guest off, whatever else is known; for a silent
    one other evidence is needed.

    Each command has a new name, because an answer that the host stored earlier proves nothing now. Raises Conflict when
    there is no proof any more, Unavailable while a host that answers does not switch the guest off.
    """
    source = current_end(server)
    if not run.context.hosts.is_silent(source.name):
        try:
            await run.context.hosts.power_off(
                source.address, command_context(run, unique_command(step)), server.id, 0.0
            )
            return FenceProof(source.name, FencedBy.HOST, now_us())
        except COMMAND_ENDS as failed:
            if failed.code == NO_GUEST:
                return FenceProof(source.name, FencedBy.HOST, now_us())
            if failed.code not in SILENT:
                why = f"the host that the server leaves is heard, and does not switch the guest off: {failed.public}"
                raise Unavailable(why, private=failed.private) from failed
    proof = await _known(run.context, server, await _row(run.context, server), begun=True)
    assert proof is not None, "what could be switched off was, or is no proof"
    return proof


async def _row(context: SagaContext, server: Server) -> Host | None:
    host = current_end(server)
    return await context.cells[host.cell].read(lambda tx: cell_hosts.named(tx, host.name))


async def _known(context: SagaContext, server: Server, row: Host | None, *, begun: bool = False) -> FenceProof | None:
    """The proof for a silent host. The plug-in is asked first: it observes the machine, while the operator only states
    it. Raises Conflict when there is no proof.

    `begun`: the plug-in may switch the machine off; before that it is enough that it could, and None says so. A host
    that answers again meanwhile stays on: raises Unavailable, and the host is asked itself.

    The operator's word is about one outage: a host that answered after it has been on since. So the time of the word
    must be known.
    """
    host = current_end(server).name
    fence = context.fence
    if fence is not None and await _confirmed(context, fence.is_off(host), PLUGIN_WITHIN_S, host):
        return FenceProof(host, FencedBy.PLUGIN, now_us(), fence.name)
    if fence is not None and fence.can_switch_off(host):
        if not begun:  # without `begun`, also in a dry run, nothing is switched off
            return None
        if not context.hosts.is_silent(host):
            raise Unavailable("The host reports again, and is asked itself.").naming(f"Host {host} reports again.")
        if await _confirmed(context, fence.switch_off(host), fence.off_within_s + PLUGIN_WITHIN_S, host):
            return FenceProof(host, FencedBy.PLUGIN, now_us(), fence.name)
    if row is None or not row.forced_down:
        raise _unproved(host)
    asserted = _operators_assertion(context, row)
    if asserted is None:
        raise _came_back(host)
    return asserted


def _operators_assertion(context: SagaContext, row: Host) -> FenceProof | None:
    """What an operator said of this outage of the host."""
    down_at = row.forced_down_at
    if not row.forced_down or down_at is None:
        return None
    if row.seen_at > down_at + int(min(HEARD_LATE_S, context.settings.host_silence_s) * 1e6):
        return None
    return FenceProof(row.host, FencedBy.OPERATOR, down_at, row.forced_down_by or "")


async def declared_down(context: SagaContext, cell: CellId, host: str) -> FenceProof | None:
    """The operator's word that a silent host is off: it was forced down, or its service was deleted. Raises Unavailable
    while its cell does not answer.
    """
    if cell in context.cells.ids:
        row = await context.cells[cell].read(lambda tx: cell_hosts.named(tx, host))
        if row is not None:
            return _operators_assertion(context, row)
    if context.placement.host_named(host) is not None:
        return None
    return FenceProof(host, FencedBy.OPERATOR, now_us(), "")


async def known_off(context: SagaContext, cell: CellId, host: str) -> FenceProof | None:
    """The proof that exists for a silent host; nothing is switched off for it. Raises Unavailable."""
    fence = context.fence
    if fence is not None and await _confirmed(context, fence.is_off(host), PLUGIN_WITHIN_S, host):
        return FenceProof(host, FencedBy.PLUGIN, now_us(), fence.name)
    return await declared_down(context, cell, host)


async def _confirmed(context: SagaContext, input: Awaitable[bool], within_s: float, host: str) -> bool:
    assert context.fence is not None
    try:
        async with asyncio.timeout(within_s):
            return await input
    except Exception as failure:  # noqa: BLE001 - a plug-in's: whatever it is, nothing is confirmed
        logger.warning("fence plug-in %s could not tell whether %s is off: %r", context.fence.name, host, failure)
        return False


def _unproved(host: str) -> Conflict:
    return Conflict(
        "The server's host is not heard, but nothing proves that its guests are off. Switch the machine off, and say so: "
        "'openstack compute service set --down HOST nova-compute'; then evacuate again.",
        code=NOT_FENCED,
    ).naming(f"Host {host} is not heard, but nothing proves that its guests are off.")


def _came_back(host: str) -> Conflict:
    return Conflict(
        "The server's host was heard after it was said to be down, so nothing proves that its guests are off. Switch the machine "
        "off, and say so again: 'openstack compute service set --down HOST nova-compute'; then evacuate again.",
        code=NOT_FENCED,
    ).naming(f"Host {host} was heard after it was said to be down, so nothing proves that its guests are off.")
