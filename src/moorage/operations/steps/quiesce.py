"""Quiesces a guest while its volumes are copied: the request freezes it, the operation thaws it.

The process that answers the request makes the snapshots, with the user's token, before anything is accepted; so that
process freezes the guest. It may die then: the guest's host thaws it by itself after `STILL_FOR_S`. So neither command
needs a fencing token: a late freeze stops a guest for a short time only, and a late thaw ends only the freeze of its
own key.
"""

import logging

from moorage.bus.agent_calls import HostAddress
from moorage.bus.agent_rpc import NOT_SUPPORTED
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.quiesce_messages import FreezeGuest, ThawGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed, Problem
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.steps import servers as records

STILL_FOR_S = 60.0
"""The longest time for which writes to a guest's disk wait."""
ANSWER_PATIENCE_S = 20.0
NEVER_STILL = frozenset(
    {NOT_SUPPORTED, "guest_not_running", "guest_not_found", "no_guest_agent", "already_frozen", "not_frozen"}
)
"""Codes with which a host says for certain that it did not quiesce the guest."""

logger = logging.getLogger(__name__)


async def freeze(context: SagaContext, server: Server, why: str) -> None:
    """Freeze the guest's file systems; `why` is the key. Raises HostFailed, or another Problem when the host cannot be
    reached.
    """
    input = FreezeGuest(why, STILL_FOR_S)
    await context.hosts.ask(_host_of(server), server.id, Verb.FREEZE_GUEST, input, GuestNow, ANSWER_PATIENCE_S)


async def thaw(context: SagaContext, server: Server, why: str) -> None:
    """Thaw it. Raises HostFailed (`not_frozen`) when it was not frozen until now, or another Problem when the host
    cannot be reached.
    """
    await context.hosts.ask(_host_of(server), server.id, Verb.THAW_GUEST, ThawGuest(why), GuestNow, ANSWER_PATIENCE_S)


async def thaw_if_possible(context: SagaContext, server: Server, why: str) -> None:
    """Thaw it on its current host if that is possible; otherwise it thaws by itself."""
    try:
        located = await records.find(context, server.id)
        await thaw(context, located.server or server, why)
    except Problem as failed:
        logger.info("server %s could not be thawed: %s", server.id, failed.private or failed.public)


def _host_of(server: Server) -> HostAddress:
    if server.host is None or server.cell is None:
        raise HostFailed("the server is on no host", code="guest_not_found")
    return HostAddress(server.cell, server.host)
