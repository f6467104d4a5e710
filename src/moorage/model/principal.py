"""The principal of a request: the facts of a validated token.  Policy decides on these; nothing else of a token is kept."""

import msgspec

from moorage.model.access_rules import AccessRule, permits
from moorage.model.errors import Unauthenticated


class Principal(msgspec.Struct, frozen=True):
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
    access_rules: tuple[AccessRule, ...] | None = None
    """Access rules of the application credential behind the token; None: no restriction besides the roles."""
    service_roles: tuple[str, ...] = ()
    """Roles of a service token sent beside the user's, if any."""

    @property
    def beyond_projects(self) -> bool:
        """Whether the token is scoped to the system or to a domain; oslo.policy treats every other token as a project's."""
        return self.system or self.domain is not None

    def require_call(self, service: str, method: str, *paths: str) -> None:
        """Check the token's access rules. Raises Unauthenticated when they allow this call by none of its paths.

        A service that passes a user's token on, beside its own token, is not restricted, as in Keystone's middleware.
        """
        if self.access_rules is None or "service" in self.service_roles:
            return
        if not any(permits(self.access_rules, service, method, path) for path in paths):
            raise Unauthenticated("The request you have made requires authentication.")
