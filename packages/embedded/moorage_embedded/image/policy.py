"""The requesting user, as Glance's default policies see it: a role in the caller's own project, or admin; a service reads all.

In addition there is the role `image_data`, for hosts: it reads every image and fills those that wait, and may do nothing else.
"""

from moorage.model.principal import Principal

IMAGE_DATA = "image_data"
FILLING = frozenset({"modify_image", "upload_image"})


class ImageCaller:
    """An caller's answers, worked out once a request."""

    __slots__ = ("admin", "everywhere", "fills", "member", "project", "reader", "user")

    def __init__(self, principal: Principal) -> None:
        roles = () if principal.beyond_projects else principal.roles  # Glance's policies are for project scope
        self.fills = IMAGE_DATA in roles
        service = "service" in roles or self.fills
        self.project = principal.project
        self.user = principal.user
        self.admin = "admin" in roles
        self.everywhere = self.admin or service
        self.member = self.admin or "member" in roles or "manager" in roles
        self.reader = self.member or service or "reader" in roles

    def owns(self, owner: str | None) -> bool:
        return owner is not None and owner == self.project

    def changes(self, owner: str | None, action: str = "") -> bool:
        """May change an image of `owner`, in this way."""
        return self.admin or (self.member and self.owns(owner)) or (self.fills and action in FILLING)
