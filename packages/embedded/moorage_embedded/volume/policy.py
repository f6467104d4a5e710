"""Who asks, as Cinder's default policies judge it: a role in the caller's own project, or admin.

Cinder's policies know no scopes, so that there the administrator of one domain is everybody's; here roles count in tokens of
projects only, as in the other services.
"""

from moorage.model.principal import Principal


class VolumeCaller:
    """An caller's answers, worked out once a request."""

    __slots__ = ("admin", "member", "project", "reader", "sees_hosts", "service_request", "user")

    def __init__(self, principal: Principal) -> None:
        roles = () if principal.beyond_projects else principal.roles
        self.project = principal.project or ""
        self.user = principal.user
        self.admin = "admin" in roles
        self.member = self.admin or "member" in roles or "manager" in roles
        self.reader = self.member or "reader" in roles
        self.sees_hosts = self.admin or "service" in roles
        self.service_request = "service" in principal.service_roles
        """The request came with another service's own token beside the user's."""

    def owns(self, project: str) -> bool:
        return bool(project) and project == self.project

    def reads(self, project: str) -> bool:
        return self.admin or (self.reader and self.owns(project))

    def writes(self, project: str) -> bool:
        """May change what belongs to `project`."""
        return self.admin or (self.member and self.owns(project))
