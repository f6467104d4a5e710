"""A call: the caller, the microversion, the body, and what all calls share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from starlette.requests import Request

from moorage.model.principal import Principal
from moorage.sql import Database
from moorage_embedded.http_kit.bodies import JsonBody
from moorage_embedded.http_kit.routing import no_such_path
from moorage_embedded.volume.faults import forbidden
from moorage_embedded.volume.files import VolumeFiles
from moorage_embedded.volume.jobs import Jobs
from moorage_embedded.volume.policy import VolumeCaller
from moorage_embedded.volume.service_clients import ServerVolumes, VolumeImages
from moorage_embedded.volume.store import Doc, VolumeStore

T = TypeVar("T")
BODY = JsonBody(
    too_large="Request is too large.",
    malformed="Malformed request body",
    empty="Malformed request body: it is empty.",
    nul="Malformed request body: it holds the character NUL.",
    not_an_object="Malformed request body",
    too_large_headers=(("Retry-After", "0"),),
)


@dataclass(frozen=True)
class VolumeSettings:
    """Knobs of one service; the defaults are Cinder's, but for the bounds that Cinder does not have."""

    quotas: Mapping[str, int] = field(
        default_factory=lambda: {
            "volumes": 10,
            "snapshots": 10,
            "gigabytes": 1000,
            "backups": 10,
            "backup_gigabytes": 1000,
            "groups": 10,
            "per_volume_gigabytes": -1,
        }
    )
    default_type: str = "__DEFAULT__"
    availability_zone: str = "nova"
    host: str = "moorage@files#files"
    """What volumes say of where they are: service, backend, pool."""
    page_max: int = 1000
    """Records of one answer."""
    body_max_bytes: int = 114_688
    query_max_bytes: int = 64 * 1024
    size_max_gib: int = 2**31 - 1
    volumes_max: int = 100_000
    """Of the whole service."""
    attachments_max: int = 1_000
    """Of one volume."""
    metadata_max: int = 128
    """Items of one volume or snapshot."""
    jobs_max: int = 8
    """Volumes that are filled, copied or removed at once; the others wait in line."""
    job_pause_s: float = 0.0
    """How long a volume stays in a state of passage (creating, deleting, extending) at least."""


@dataclass(frozen=True)
class VolumeContext:
    """What all calls share."""

    database: Database
    files: VolumeFiles
    jobs: Jobs
    settings: VolumeSettings
    public_url: str
    images: VolumeImages | None
    """None: there is no image service that volumes could be made from."""
    server_volumes: ServerVolumes | None
    """How compute is asked which volumes a server has; None: it is not asked, and counts as using them."""

    async def write(self, work: Callable[[VolumeStore], T]) -> T:
        return await self.database.write(lambda tx: work(VolumeStore(tx)))

    async def read(self, work: Callable[[VolumeStore], T]) -> T:
        return await self.database.read(lambda tx: work(VolumeStore(tx)))

    async def read_inline(self, work: Callable[[VolumeStore], T]) -> T:
        """A read of one or two records by their ids."""
        return await self.database.read_inline(lambda tx: work(VolumeStore(tx)))


@dataclass(frozen=True)
class VolumeCall:
    """What a verb is given."""

    context: VolumeContext
    who: VolumeCaller
    principal: Principal
    request: Request
    parts: tuple[str, ...]
    """Of the path, behind the version and the project."""
    prefix: str
    """The path up to them, as it was asked: `/v3` or `/v3/{project}`."""
    pairs: list[tuple[str, str]]
    version: int
    """The minor number of the microversion."""
    request_id: str

    def since(self, version: int) -> None:
        """404, as for a path that does not exist, in an older microversion."""
        if self.version < version:
            raise no_such_path()

    def require(self, allowed: bool, rule: str) -> None:
        """Raises HttpFault (403) with the rule that does not allow it."""
        if not allowed:
            raise forbidden(rule)

    @property
    def url(self) -> str:
        """What links begin with."""
        return f"{self.context.public_url}{self.prefix}"

    def path(self, name: str) -> str:
        """A part that the route names."""
        return str(self.request.path_params[name])

    async def body(self) -> Any:
        """The JSON object that was sent, within the limit."""
        return await BODY.read(self.request, self.context.settings.body_max_bytes)


def stamp() -> str:
    """Now, as Cinder writes it: UTC, microseconds, no zone."""
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


def touched(doc: Doc) -> Doc:
    doc["updated_at"] = stamp()
    return doc
