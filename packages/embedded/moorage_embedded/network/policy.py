"""Who asks, as Neutron's default policies judge it: admin, service, or a role in the caller's own project."""

from moorage.model.principal import Principal


class NetworkCaller:
    """An caller's answers, worked out once a request."""

    __slots__ = ("admin", "member", "principal", "project", "reader", "service", "service_token")

    def __init__(self, principal: Principal) -> None:
        roles = () if principal.beyond_projects else principal.roles  # every policy of Neutron is for project scope
        self.principal = principal
        self.project = principal.project
        self.admin = "admin" in roles
        self.service = "service" in roles
        self.service_token = "service" in principal.service_roles
        self.member = self.admin or "member" in roles or "manager" in roles
        self.reader = self.member or "reader" in roles

    @property
    def everywhere(self) -> bool:
        """Sees every project's things."""
        return self.admin or self.service

    def owns(self, project: str | None) -> bool:
        return bool(project) and project == self.project

    def writes(self, project: str | None) -> bool:
        """May change what belongs to `project`."""
        return self.admin or (self.member and self.owns(project))

    def reads(self, project: str | None) -> bool:
        return self.everywhere or (self.reader and self.owns(project))
