"""The work that records ask for: filling new volumes, growing, copying, uploading, removing, and informing compute.

Each kind of work may run twice.  It ends by writing the record, while that still asks for this very work.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from moorage.model.errors import Invalid
from moorage.model.ids import new_uuid
from moorage.model.image_inspection import Unsafe, check_use
from moorage_embedded.volume import group_work, messages, qcow2
from moorage_embedded.volume.files import GIB, VolumeTooLong
from moorage_embedded.volume.jobs import Later
from moorage_embedded.volume.matching import unmet
from moorage_embedded.volume.request import VolumeContext, stamp, touched
from moorage_embedded.volume.service_clients import NotifyCompute
from moorage_embedded.volume.service_info import capabilities_of
from moorage_embedded.volume.store import Doc, VolumeStore

log = logging.getLogger(__name__)

PASSING = ("creating", "downloading")
PLAIN_FORMATS = ("raw", "ami", "aki", "ari", "iso")


class Broken(Exception):
    """It cannot be done, now or later: the sentence is for the log, the action and the detail for the owner's message."""

    def __init__(self, why: str, action: str | None = None, detail: str = "unknown") -> None:
        super().__init__(why)
        self.action = action
        self.detail = detail


Changes: TypeAlias = Doc | None
"""What becomes of the record; None: it is gone."""
Work: TypeAlias = Callable[["Worker", Doc, Doc], Awaitable[Changes]]


class Worker:
    """Does what one record asks for; given to `Jobs`."""

    def __init__(self, context: VolumeContext, notify: NotifyCompute | None) -> None:
        self.context = context
        self.notify = notify

    async def run(self, noun: str, id: str) -> None:
        """Raises errors that may pass with time."""
        doc = await self.context.read_inline(lambda store: store.get(noun, id))
        if doc is None or not doc.get("work"):
            return
        work = doc["work"]
        if (pause := self.context.settings.job_pause_s) > 0 and noun != "event":
            await asyncio.sleep(pause)
        try:
            changes = await KINDS[noun, work["kind"]](self, doc, work)
        except (Broken, OSError, VolumeTooLong) as why:
            log.warning("%s %s: %s failed: %r", noun, id, work["kind"], why)
            changes = _broken(noun, work)
            action = getattr(why, "action", None) or _action(noun, work)
            if action is not None:
                changes["message"] = (action, getattr(why, "detail", "unknown"))
        follow = await self.context.write(lambda store: _end(store, noun, id, work, changes))
        for each in follow:
            self.context.jobs.begin(*each)

    async def in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.to_thread(work)


def _broken(noun: str, work: Doc) -> Doc:
    kind = work["kind"]
    if kind == "delete":
        return {"status": "error_deleting"}
    if kind == "extend":
        return {"status": "error_extending"}
    if kind == "upload":
        return {"status": work["to"]}
    return {"status": "error"}


def _action(noun: str, work: Doc) -> str | None:
    """The action that a user message names; None for actions without messages."""
    kind = work["kind"]
    if noun == "snapshot":
        return "snapshot" if kind == "create" else None
    return kind if noun == "volume" and kind in messages.ACTIONS else None


def _end(store: VolumeStore, noun: str, id: str, work: Doc, changes: Changes) -> list[tuple[str, str]]:
    """Write what came of it; the answer is what is to be done next."""
    doc = store.get(noun, id, hold=True)
    if doc is None or doc.get("work") != work:
        return []
    if changes is None:
        store.remove(noun, id)
        return []
    told = changes.pop("tell", [])
    if (failed := changes.pop("message", None)) is not None:
        messages.leave(store, noun, doc, work, *failed)
    status = changes.pop("status", None)
    doc |= changes | {"work": None}
    if status is not None and (doc["status"] == work.get("while", doc["status"]) or doc["status"] in PASSING):
        doc["status"] = status
    store.put(noun, touched(doc))
    return [("event", queue_event(store, event)) for event in told]


def queue_event(store: VolumeStore, event: Doc) -> str:
    """Keep an event for compute until it was sent."""
    doc = {"id": new_uuid(), "event": event, "created_at": stamp(), "work": {"kind": "tell"}}
    store.add("event", doc)
    return str(doc["id"])


# ---------------------------------------------------------------------------------------------------- volumes


async def _create(worker: Worker, doc: Doc, work: Doc) -> Changes:
    files, id, size = worker.context.files, doc["id"], doc["size"]
    await _check_type(worker, doc)
    done: Doc = {"status": "available", "launched_at": stamp()}
    match work["from"]:
        case "blank":
            files.make(files.volume(id), size)
        case "image":
            await worker.context.write(lambda store: _downloads(store, id, work))
            await _download(worker, doc, work["id"], work["disk_format"])
            done |= {"bootable": True, "image_metadata": work["image_metadata"]}
        case "snapshot":
            await worker.in_thread(lambda: files.copy(files.snapshot(work["id"]), files.volume(id), size))
        case _:
            await worker.in_thread(lambda: files.copy(files.volume(work["id"]), files.volume(id), size))
    return done


async def _check_type(worker: Worker, doc: Doc) -> None:
    """Raises Broken when the volume's type asks for what the back end does not have."""
    type = await worker.context.read_inline(lambda store: store.get("type", doc["volume_type_id"]))
    specs = {} if type is None else type["extra_specs"]
    if not specs:
        return
    missing = unmet(specs, await capabilities_of(worker.context))
    if missing is not None:
        raise Broken(f"no back end has what the volume type asks for: {missing}", "schedule", "no backend")


def _downloads(store: VolumeStore, id: str, work: Doc) -> None:
    doc = store.get("volume", id, hold=True)
    if doc is not None and doc.get("work") == work and doc["status"] == "creating":
        doc["status"] = "downloading"
        store.put("volume", touched(doc))


async def _download(worker: Worker, doc: Doc, image: str, format: str) -> None:
    """Raw images are written as they are, QCOW2 is read; nothing else is converted."""
    images, files, size = worker.context.images, worker.context.files, doc["size"]
    if images is None:
        raise Broken("there is no image service")
    if format not in PLAIN_FORMATS and format != "qcow2":
        raise Broken(f"images of format {format} are not converted")
    path = files.volume(doc["id"])
    try:
        if format != "qcow2":
            await files.fill(path, size, images.read(image))
            return
        packed = files.partial_path(path)
        await files.fill(packed, size + 1, images.read(image))  # tables come on top
        files.make(path, size)
        await worker.in_thread(lambda: _unpack(packed, path, size * GIB))
        files.forget(packed)
    except VolumeTooLong:
        raise Broken(f"image {image} does not fit into {size} GiB", "download", "no space") from None
    except qcow2.Unreadable as why:
        raise Broken(f"image {image} cannot be read: {why}", "download") from None


def _unpack(packed: Path, path: Path, limit: int) -> None:
    """Raises Unreadable also for what the image service should not have taken."""
    try:
        check_use(packed, "qcow2")
    except Unsafe as why:
        raise qcow2.Unreadable(str(why)) from None
    qcow2.write_raw(packed, path, limit)


async def _delete(worker: Worker, doc: Doc, work: Doc) -> Changes:
    await _not_copied(worker, doc["id"])
    worker.context.files.forget(worker.context.files.volume(doc["id"]))
    await worker.context.write(lambda store: _forget(store, doc["id"]))
    return None


async def _not_copied(worker: Worker, id: str) -> None:
    """Raises Later while something is made of it."""

    def work(store: VolumeStore) -> bool:
        wanted = (store.busy("volume"), store.busy("snapshot"))
        return any(_source(each) == id for docs in wanted for each in docs)

    if await worker.context.read(work):
        raise Later


def _source(doc: Doc) -> str | None:
    """What a busy record copies from."""
    work = doc["work"]
    if doc.get("volume_id") and work["kind"] == "create":
        return str(doc["volume_id"])
    return work.get("snapshot") or (work.get("id") if work["kind"] == "create" else None)


def _forget(store: VolumeStore, id: str) -> None:
    """Remove what belonged only to the volume."""
    for noun in ("attachment", "transfer"):
        for each in store.children(noun, id):
            store.remove(noun, each["id"])


async def _extend(worker: Worker, doc: Doc, work: Doc) -> Changes:
    """Extend the volume; the servers that use it get an event, and their hosts read the size again."""
    worker.context.files.grow(worker.context.files.volume(doc["id"]), work["size"])
    used = await worker.context.read(lambda store: store.children("attachment", doc["id"]))
    servers = [each["instance"] for each in used if each["instance"]]
    return {
        "size": work["size"],
        "status": work["to"],
        "tell": [_event("volume-extended", server, doc["id"]) for server in servers if work["to"] == "in-use"],
    }


async def _retype(worker: Worker, doc: Doc, work: Doc) -> Changes:
    return {"volume_type_id": work["type"], "multiattach": work["multiattach"], "status": work["to"]}


async def _upload(worker: Worker, doc: Doc, work: Doc) -> Changes:
    """Its bytes become an image's; one that was filled already was filled by us, before we were killed."""
    images, files = worker.context.images, worker.context.files
    if images is None:
        raise Broken("there is no image service")
    try:
        await images.fill(work["image"], files.read(files.volume(doc["id"])))
    except Invalid as refused:
        log.warning("image %s takes no data of volume %s: %s", work["image"], doc["id"], refused.public)
    return {"status": work["to"], "previous_status": None}


async def _reimage(worker: Worker, doc: Doc, work: Doc) -> Changes:
    """Another image in place of what there was; compute waits for it where it rebuilds the server."""
    files, id = worker.context.files, doc["id"]
    if work["snapshot"] is not None:
        await worker.in_thread(lambda: files.copy(files.snapshot(work["snapshot"]), files.volume(id), doc["size"]))
    else:
        await _download(worker, doc, work["image"], work["disk_format"])
    used = await worker.context.read(lambda store: store.children("attachment", id))
    servers = [each["instance"] for each in used if each["instance"]] if work["to"] == "reserved" else []
    return {
        "status": work["to"],
        "image_metadata": work["image_metadata"],
        "previous_status": None,
        "tell": [_event("volume-reimaged", server, id) for server in servers],
    }


async def _revert(worker: Worker, doc: Doc, work: Doc) -> Changes:
    files, snapshot = worker.context.files, work["snapshot"]
    await worker.in_thread(lambda: files.copy(files.snapshot(snapshot), files.volume(doc["id"]), doc["size"]))

    def settle(store: VolumeStore) -> None:
        held = store.get("snapshot", snapshot, hold=True)
        if held is not None and held["status"] == "restoring":
            held["status"] = "available"
            store.put("snapshot", touched(held))

    await worker.context.write(settle)
    return {"status": work["to"]}


def _event(name: str, server: str, volume: str) -> Doc:
    return {"name": name, "server_uuid": server, "tag": volume, "status": "completed"}


async def _notify(worker: Worker, doc: Doc, work: Doc) -> Changes:
    if worker.notify is not None:
        await worker.notify([doc["event"]])
    return None


# ---------------------------------------------------------------------------------------------------- snapshots


async def _snapshot(worker: Worker, doc: Doc, work: Doc) -> Changes:
    """Copy the volume. Raises Later while it is being made, which only a snapshot of a whole group may wait for."""
    files = worker.context.files
    volume = await worker.context.read_inline(lambda store: store.get("volume", doc["volume_id"]))
    if volume is not None and volume["work"] and volume["work"]["kind"] == "create":
        raise Later
    await worker.in_thread(lambda: files.copy(files.volume(doc["volume_id"]), files.snapshot(doc["id"]), doc["size"]))
    return {"status": "available", "progress": "100%"}


async def _delete_snapshot(worker: Worker, doc: Doc, work: Doc) -> Changes:
    await _not_copied(worker, doc["id"])
    worker.context.files.forget(worker.context.files.snapshot(doc["id"]))
    return None


# ---------------------------------------------------------------------------------------------------- groups


def _of_group(follow: Callable[[VolumeContext, Doc], Awaitable[Changes]]) -> Work:
    async def work(worker: Worker, doc: Doc, work: Doc) -> Changes:
        return await follow(worker.context, doc)

    return work


KINDS: dict[tuple[str, str], Work] = {
    ("volume", "create"): _create,
    ("volume", "delete"): _delete,
    ("volume", "extend"): _extend,
    ("volume", "retype"): _retype,
    ("volume", "upload"): _upload,
    ("volume", "reimage"): _reimage,
    ("volume", "revert"): _revert,
    ("snapshot", "create"): _snapshot,
    ("snapshot", "delete"): _delete_snapshot,
    ("group", "create"): _of_group(group_work.create_group),
    ("group", "delete"): _of_group(group_work.delete_group),
    ("group_snapshot", "create"): _of_group(group_work.create_group_snapshot),
    ("group_snapshot", "delete"): _of_group(group_work.delete_group_snapshot),
    ("event", "tell"): _notify,
}
