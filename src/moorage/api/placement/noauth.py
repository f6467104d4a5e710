"""`auth_strategy = noauth2`: whoever can reach the port is believed. For development alone; off unless asked for.

The token is `user[:project]`; `X-Roles`, where sent, gives the roles, else the user `admin` has the roles admin, and others none.
"""

import logging
from collections.abc import Mapping

from moorage.model.errors import Unauthenticated
from moorage.model.principal import Principal

log = logging.getLogger(__name__)

WARNING = "noauth2 is on: every client of this port is accepted with the identity that it claims"


async def believe(headers: Mapping[str, str]) -> Principal:
    """Headers → who asks; raises Unauthenticated without a token."""
    token = headers.get("x-auth-token")
    if token is None:
        raise Unauthenticated("Authentication required")
    user, _, project = token.partition(":")
    project = headers.get("x-project-id") or project or user
    given = headers.get("x-roles")
    roles = (
        tuple(role.strip().lower() for role in given.split(","))
        if given is not None
        else ("admin",)
        if user == "admin"
        else ()
    )
    system = bool(headers.get("openstack-system-scope"))
    return Principal(user=user, project=project, roles=tuple(role for role in roles if role), system=system)


def warn() -> None:
    """Loudly, once, when the service starts."""
    log.warning(WARNING)
