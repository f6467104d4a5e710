"""How many bytes of images there is room for: in one image, and in all that a project owns together."""

from dataclasses import dataclass

from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.image.faults import too_large
from moorage_embedded.image.request import ImageContext
from moorage_embedded.image.store import Doc, ImageTables


@dataclass(frozen=True)
class Room:
    """What one upload may have."""

    bytes: int
    of_project: int | None = None
    """The limit for all images of its project together; None: there is no limit, or the image has no project."""
    short: bool = False
    """That is what leaves no more bytes."""

    def too_long(self) -> HttpFault:
        """More came than there was room for."""
        return (
            over(self.bytes) if self.of_project is None or not self.short else _over_quota(self.of_project, self.bytes)
        )

    def check(self, store: ImageTables, doc: Doc, size: int) -> None:
        """Raises 413 when other uploads took the room meanwhile."""
        if self.of_project is None:
            return
        left = max(self.of_project - store.bytes_of(doc["owner"], but=doc["id"]), 0)
        if size > left:
            raise _over_quota(self.of_project, left)


def over(limit: int) -> HttpFault:
    return too_large(f"The incoming image is too large: it may have {limit} bytes.")


async def room_of(context: ImageContext, doc: Doc, said: int | None) -> Room:
    """Raises 413 when its declared size is larger."""
    owner, most = doc["owner"], context.settings.image_max_bytes
    if not owner:
        return Room(most)
    limits = [context.settings.project_max_bytes or None, await context.allowed(owner)]
    allowed = min((each for each in limits if each is not None), default=None)
    if allowed is None:
        return Room(most)
    left = max(allowed - await context.read(lambda store: store.bytes_of(owner, but=doc["id"])), 0)
    if said is not None and said > left:
        raise _over_quota(allowed, left)
    return Room(min(left, most), allowed, short=left < most)


def _over_quota(allowed: int, left: int) -> HttpFault:
    return too_large(
        f"Image exceeds the storage quota: the images of a project may have {allowed} bytes together, and {left} are left."
    )
