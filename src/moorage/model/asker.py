"""Who asks: what a validated token says.  Policy is judged on this, and nothing else of a token is ever kept."""

import msgspec


class Asker(msgspec.Struct, frozen=True):
    """The facts of one validated token (Keystone v3 `GET /auth/tokens`)."""

    user: str
    user_name: str = ""
    user_domain: str = "default"
    project: str | None = None
    project_name: str = ""
    project_domain: str = "default"
    domain: str | None = None
    """The domain of a domain-scoped token."""
    system: bool = False
    """True for a token scoped to the system (`all`)."""
    roles: tuple[str, ...] = ()
    """Names, implied ones included, lower case."""
    is_admin_project: bool = True
    expires_at: str = ""
    """ISO 8601, UTC."""
    service_roles: tuple[str, ...] = ()
    """Roles of a service token sent beside the user's, if any."""
