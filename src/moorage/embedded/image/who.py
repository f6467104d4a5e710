"""Who asks, as Glance's default policies judge it: a role in the asker's own project, or admin; a service reads all."""

from moorage.model.asker import Asker


class Who:
    """An asker's answers, worked out once a request."""

    __slots__ = ("admin", "everywhere", "member", "project", "reader", "user")

    def __init__(self, asker: Asker) -> None:
        roles = () if asker.beyond_projects else asker.roles  # Glance's policies are for project scope
        service = "service" in roles
        self.project = asker.project
        self.user = asker.user
        self.admin = "admin" in roles
        self.everywhere = self.admin or service
        self.member = self.admin or "member" in roles or "manager" in roles
        self.reader = self.member or service or "reader" in roles

    def owns(self, owner: str | None) -> bool:
        return owner is not None and owner == self.project

    def changes(self, owner: str | None) -> bool:
        """May change an image of `owner`."""
        return self.admin or (self.member and self.owns(owner))
