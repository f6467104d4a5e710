"""A call: the caller, the request, and the context with database and files."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage.model.image_ticket import TicketSecret
from moorage.sql import Database
from moorage_embedded.http_kit.bodies import JsonBody
from moorage_embedded.image.faults import no_image, not_allowed
from moorage_embedded.image.files import ImageDirectory
from moorage_embedded.image.metadef_records import MetadefNamespace
from moorage_embedded.image.policy import ImageCaller
from moorage_embedded.image.store import Doc, FoundImage, ImageTables

T = TypeVar("T")
BytesAllowed: TypeAlias = Callable[[str], Awaitable[int | None]]
"""Project → bytes of all its images together; None: no limit."""
BODY = JsonBody(
    too_large="Request is too large: the limit is {limit} bytes.",
    malformed="Malformed JSON in request body.",
    empty="Body expected in request.",
)


@dataclass(frozen=True)
class ImageSettings:
    """Knobs of one service; the defaults are Glance's, but for the body's and the store's bounds."""

    image_max_bytes: int = 2**40
    properties_max: int = 128
    tags_max: int = 128
    members_max: int = 128
    project_max_bytes: int = 0
    """Of all images of one project; 0: no limit."""
    images_max: int = 10_000
    """Images that one project may own."""
    page_default: int = 25
    page_max: int = 1000
    body_max_bytes: int = 1024 * 1024
    query_max_bytes: int = 64 * 1024
    store: str = "files"
    metadefs: Path | None = None
    """Directory of the operator's metadata definitions."""
    tickets: TicketSecret | None = None
    """Checks hosts' tickets; None: hosts have an account."""
    identity_url: str = ""
    """Where a token can be had, as a refusal for want of one says."""


class RunsTasks(Protocol):
    """Does what tasks ask for, after the answer."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """From where an import may read."""
        ...

    def begin(self, context: "ImageContext", who: ImageCaller, task: Doc) -> None: ...


@dataclass(frozen=True)
class ImageContext:
    """What all calls share."""

    database: Database
    files: ImageDirectory
    settings: ImageSettings
    public_url: str
    allowed: BytesAllowed
    """What the identity service says that the images of a project may have."""
    imports: RunsTasks
    metadefs: dict[str, MetadefNamespace] = field(default_factory=dict)
    """Namespaces of metadata definitions that are files of the operator, by name."""

    async def write(self, work: Callable[[ImageTables], T]) -> T:
        return await self.database.write(lambda tx: work(ImageTables(tx)))

    async def read(self, work: Callable[[ImageTables], T]) -> T:
        return await self.database.read(lambda tx: work(ImageTables(tx)))

    async def read_inline(self, work: Callable[[ImageTables], T]) -> T:
        """A read of one image by its id."""
        return await self.database.read_inline(lambda tx: work(ImageTables(tx)))


@dataclass(frozen=True)
class ImageCall:
    """What a verb is given."""

    context: ImageContext
    who: ImageCaller
    request: Request
    pairs: list[tuple[str, str]]

    def path(self, name: str) -> str:
        """A part that the route names."""
        return str(self.request.path_params[name])

    async def body(self) -> Any:
        """The JSON that was sent, within the limit."""
        return await BODY.read(self.request, self.context.settings.body_max_bytes)


def request_id(request: Request) -> str:
    """The id that the answer to this request has."""
    if not hasattr(request.state, "id"):
        request.state.id = f"req-{new_uuid()}"
    return str(request.state.id)


def now() -> datetime:
    return datetime.now(UTC)


def second(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def fine(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def touch(doc: Doc) -> str:
    """Set the date of a changed document; returns the time for its column."""
    moment = now()
    doc["updated_at"] = second(moment)
    return fine(moment)


def sees(store: ImageTables, who: ImageCaller, id: str, found: FoundImage) -> bool:
    if who.everywhere or found.visibility in {"public", "community"} or who.owns(found.owner):
        return True
    return found.visibility == "shared" and store.is_member(id, who.project)


def visible_image(store: ImageTables, who: ImageCaller, id: str, *, hold: bool = False) -> FoundImage:
    """The image, or 404 when there is none or none for this caller."""
    found = store.show(id, hold=hold)
    if found is None or not who.reader or not sees(store, who, id, found):
        raise no_image(id)
    return found


def changeable_image(store: ImageTables, who: ImageCaller, id: str, action: str) -> Doc:
    """The image, held, when the caller may change it; 403 names the action."""
    found = visible_image(store, who, id, hold=True)
    if not who.changes(found.owner or None):
        raise not_allowed(action)
    return found.doc


def fillable_image(store: ImageTables, who: ImageCaller, id: str, action: str) -> Doc:
    """The same for a change that belongs to an upload: a host may make it, too, while the image waits for its data."""
    found = visible_image(store, who, id, hold=True)
    if not who.changes(found.owner or None) and not (who.fills and found.doc["status"] == "queued"):
        raise not_allowed(action)
    return found.doc


def json_text(text: str) -> Response:
    return Response(text, 200, None, "application/json")
