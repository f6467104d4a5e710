"""The embedded volume service, joined: `make_volume` gives the ASGI app."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp

from moorage.sql import Database
from moorage.sql.migrate import migrate
from moorage_embedded.http_kit.endpoint import ValidateToken
from moorage_embedded.volume.background_work import KINDS, Worker
from moorage_embedded.volume.files import VolumeFiles
from moorage_embedded.volume.group_types import RESERVED, reserved_group_type
from moorage_embedded.volume.http import VolumeEndpoint
from moorage_embedded.volume.jobs import Jobs
from moorage_embedded.volume.request import VolumeContext, VolumeSettings
from moorage_embedded.volume.service_clients import NotifyCompute, ServerVolumes, VolumeImages
from moorage_embedded.volume.store import TABLES, VolumeStore
from moorage_embedded.volume.types import new_type

__all__ = [
    "EmbeddedVolume",
    "NotifyCompute",
    "OtherServices",
    "ServerVolumes",
    "VolumeImages",
    "VolumeSettings",
    "make_volume",
]


@dataclass(frozen=True)
class OtherServices:
    """How the volume service reaches the services that it works with; without one, what needs it is refused."""

    images: VolumeImages | None = None
    notify_compute: NotifyCompute | None = None
    server_volumes: ServerVolumes | None = None


class EmbeddedVolume:
    """One embedded volume service; `start` before the first request, `stop` after the last."""

    app: ASGIApp

    def __init__(self, context: VolumeContext, worker: Worker, validate_token: ValidateToken) -> None:
        self._context = context
        self._worker = worker
        self.app = VolumeEndpoint(context, validate_token)

    async def start(self) -> None:
        """Make the tables and the default types where they are missing, and go on with what the last process left."""
        context = self._context
        await migrate(context.database, TABLES)
        busy, keep = await context.write(lambda store: _begin(store, context.settings))
        await asyncio.to_thread(context.files.sweep, keep)
        context.jobs.start(self._worker.run)
        for noun, id in busy:
            context.jobs.begin(noun, id)

    async def stop(self) -> None:
        await self._context.jobs.stop()


def _begin(store: VolumeStore, settings: VolumeSettings) -> tuple[list[tuple[str, str]], set[str]]:
    """What is to be done, and the files that belong to something."""
    if not store.many("type", where={"key": settings.default_type}, limit=1):
        store.add("type", new_type(settings.default_type, description="Default Volume Type"))
    if not store.many("group_type", where={"key": RESERVED}, limit=1):
        store.add("group_type", reserved_group_type())
    nouns = dict.fromkeys(noun for noun, _ in KINDS)
    busy = [(noun, doc["id"]) for noun in nouns for doc in store.busy(noun)]
    keep = {f"volume-{id}" for id in store.ids("volume")} | {f"snapshot-{id}" for id in store.ids("snapshot")}
    return busy, keep


def make_volume(
    database: Database,
    *,
    files: Path,
    validate_token: ValidateToken,
    public_url: str,
    others: OtherServices = OtherServices(),
    settings: VolumeSettings | None = None,
) -> EmbeddedVolume:
    """Build the service over a database and a directory of its own; nothing is touched before `start`."""
    said = settings or VolumeSettings()
    jobs = Jobs(said.jobs_max)
    context = VolumeContext(
        database, VolumeFiles(files), jobs, said, public_url.rstrip("/"), others.images, others.server_volumes
    )
    return EmbeddedVolume(context, Worker(context, others.notify_compute), validate_token)
