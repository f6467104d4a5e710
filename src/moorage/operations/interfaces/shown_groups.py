"""The security groups that a server shows: those of its ports."""

import logging

from moorage.model.errors import Unavailable
from moorage.model.ids import ServerId
from moorage.operations.context import SagaContext

logger = logging.getLogger(__name__)


async def groups_now(context: SagaContext, server: ServerId) -> tuple[str, ...] | None:
    """The names of the security groups of the server's ports, after an attach or a detach.

    None: there are none to name, or the network service does not answer now; the next comparison corrects the record.
    """
    try:
        ports = await context.network.ports_of(server)
        ids = dict.fromkeys(group for port in ports for group in port.security_groups)
        return await context.network.group_names(tuple(ids))
    except Unavailable as out:
        logger.info("server %s: its security groups are compared later: %s", server, out)
        return None
