"""A guest that is kept still while its volumes are copied: asked for with a request, and let go by the operation.

The request's process makes the snapshots, with the user's token, before anything is accepted; so it is that process which makes the guest
still.  It may die then, as any conductor may: the guest's host lets it go by itself when `STILL_FOR_S` are over.  That is why
neither half carries a turn: a late word makes a guest still for a moment, and for one key only, and a late thaw ends nothing else.
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
"""Who writes to a guest's disk waits so long at most."""
ANSWER_PATIENCE_S = 20.0
NEVER_STILL = frozenset(
    {NOT_SUPPORTED, "guest_not_running", "guest_not_found", "no_guest_agent", "already_frozen", "not_frozen"}
)
"""Codes of hosts that say for certain that they did not make it still."""

logger = logging.getLogger(__name__)


async def freeze(context: SagaContext, server: Server, why: str) -> None:
    """Raises HostFailed, or another Problem when the host cannot be asked."""
    input = FreezeGuest(why, STILL_FOR_S)
    await context.hosts.ask(_host_of(server), server.id, Verb.FREEZE_GUEST, input, GuestNow, ANSWER_PATIENCE_S)


async def thaw(context: SagaContext, server: Server, why: str) -> None:
    """Raises HostFailed (`not_frozen`) where it was not still until now, or another Problem when the host cannot be asked."""
    await context.hosts.ask(_host_of(server), server.id, Verb.THAW_GUEST, ThawGuest(why), GuestNow, ANSWER_PATIENCE_S)


async def thaw_if_possible(context: SagaContext, server: Server, why: str) -> None:
    """Thaw it where it is by now, if that can be done; if not, it thaws by itself."""
    try:
        found = await records.find(context, server.id)
        await thaw(context, found.server or server, why)
    except Problem as failed:
        logger.info("%s was not thawed by us: %s", server.id, failed.private or failed.public)


def _host_of(server: Server) -> HostAddress:
    if server.host is None or server.cell is None:
        raise HostFailed("the server is on no host", code="guest_not_found")
    return HostAddress(server.cell, server.host)
