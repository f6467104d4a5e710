"""The requesting user, as Glance's default policies see it: a role in the caller's own project, or admin; a service reads all.

In addition there are hosts. A host with a ticket (`moorage.model.image_ticket`) uses one image, in one direction. The role
`image_data` is for hosts of an earlier release, which have an account: it reads every image, and of those that wait for their data it
sets the formats and uploads the data.
"""

from typing import Self

from moorage.model.image_ticket import Granted
from moorage.model.principal import Principal

IMAGE_DATA = "image_data"
FORMATS = frozenset({"disk_format", "container_format"})
"""What a host sets of an image that it fills."""


class ImageCaller:
    """An caller's answers, worked out once a request."""

    __slots__ = ("admin", "everywhere", "fills", "member", "only", "project", "reader", "user")

    def __init__(self, principal: Principal) -> None:
        roles = () if principal.beyond_projects else principal.roles  # Glance's policies are for project scope
        self.fills = IMAGE_DATA in roles
        self.only: str | None = None
        """The one image that a ticket is for; None: the caller has a token."""
        service = "service" in roles or self.fills
        self.project = principal.project
        self.user = principal.user
        self.admin = "admin" in roles
        self.everywhere = self.admin or service
        self.member = self.admin or "member" in roles or "manager" in roles
        self.reader = self.member or service or "reader" in roles

    @classmethod
    def of_ticket(cls, granted: Granted) -> Self:
        """The host that a ticket was made for."""
        caller = cls(Principal(user=f"host {granted.host}", roles=(IMAGE_DATA,)))
        caller.only, caller.fills = granted.image, granted.direction == "fill"
        return caller

    def owns(self, owner: str | None) -> bool:
        return owner is not None and owner == self.project

    def changes(self, owner: str | None) -> bool:
        """May change an image of `owner`."""
        return self.admin or (self.member and self.owns(owner))
