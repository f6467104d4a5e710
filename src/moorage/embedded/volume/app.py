"""The embedded volume service, joined: `make_volume` gives the ASGI app."""

import asyncio
from pathlib import Path

from starlette.types import ASGIApp

from moorage.embedded.volume.call import Desk, Settings
from moorage.embedded.volume.files import Files
from moorage.embedded.volume.jobs import Jobs
from moorage.embedded.volume.neighbours import Images, NotifyCompute, ServerVolumes
from moorage.embedded.volume.store import TABLES, Store
from moorage.embedded.volume.types import new_type
from moorage.embedded.volume.wire import ValidateToken, Wire
from moorage.embedded.volume.work import KINDS, Worker
from moorage.sql import Database
from moorage.sql.migrate import bring_forward

__all__ = ["Images", "NotifyCompute", "ServerVolumes", "Settings", "VolumeService", "make_volume"]


class VolumeService:
    """One embedded volume service; `start` before the first request, `stop` after the last."""

    app: ASGIApp

    def __init__(self, desk: Desk, worker: Worker, validate_token: ValidateToken) -> None:
        self._desk = desk
        self._worker = worker
        self.app = Wire(desk, validate_token)

    async def start(self) -> None:
        """Make the tables and the default type where they are missing, and go on with what the last process left."""
        desk = self._desk
        await bring_forward(desk.database, TABLES)
        busy, keep = await desk.write(lambda store: _begin(store, desk.settings))
        await asyncio.to_thread(desk.files.sweep, keep)
        desk.jobs.start(self._worker.run)
        for noun, id in busy:
            desk.jobs.begin(noun, id)

    async def stop(self) -> None:
        await self._desk.jobs.stop()


def _begin(store: Store, settings: Settings) -> tuple[list[tuple[str, str]], set[str]]:
    """What is to be done, and the files that belong to something."""
    if not store.many("type", where={"key": settings.default_type}, limit=1):
        store.add("type", new_type(settings.default_type, description="Default Volume Type"))
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
    images: Images | None = None,
    notify_compute: NotifyCompute | None = None,
    server_volumes: ServerVolumes | None = None,
    settings: Settings | None = None,
) -> VolumeService:
    """Build the service over a database and a directory of its own; nothing is touched before `start`."""
    said = settings or Settings()
    jobs = Jobs(said.jobs_max)
    desk = Desk(database, Files(files), jobs, said, public_url.rstrip("/"), images, server_volumes)
    return VolumeService(desk, Worker(desk, notify_compute), validate_token)
