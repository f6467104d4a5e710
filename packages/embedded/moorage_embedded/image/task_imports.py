"""Does what tasks ask for, after the answer: a few at once, and none beyond the life of this process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from moorage.model.errors import Problem
from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.image import attributes, data, task_store, tasks
from moorage_embedded.image.faults import too_large
from moorage_embedded.image.policy import ImageCaller
from moorage_embedded.image.request import ImageContext
from moorage_embedded.image.store import Doc, ImageTables

AT_ONCE = 2
IMPORT_MAX_S = 24 * 3600.0
log = logging.getLogger(__name__)
Fetch: TypeAlias = Callable[[str], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""Address → the pieces of what is there. Raises OSError when it cannot be had."""


class TaskFailed(Exception):
    """The sentence is the task's message."""


class TaskImports:
    """`hosts`: from where may be imported; `fetch`: how it is read. Belongs to one event loop."""

    def __init__(self, hosts: tuple[str, ...] = (), fetch: Fetch | None = None) -> None:
        self.hosts = hosts if fetch is not None else ()
        self._fetch = fetch
        self._places = asyncio.Semaphore(AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, context: ImageContext, who: ImageCaller, task: Doc) -> None:
        running = asyncio.create_task(self._run(context, who, task), name=f"image-task-{task['id']}")
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """What is not finished fails at the next start (`recover`)."""
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(self, context: ImageContext, who: ImageCaller, task: Doc) -> None:
        async with self._places:
            task = task | {"status": "processing"}
            try:
                await context.write(lambda store: task_store.put(store.tx, task))
                missing = next((name for name in tasks.NEEDED[task["type"]] if name not in task["input"]), None)
                if missing is not None:
                    raise TaskFailed(f"Input does not contain '{missing}' field")
                if task["type"] != "import":
                    raise TaskFailed("Only an import of the image itself makes such a task.")
                image = await self._import(context, who, task)
                done = tasks.ended(task | {"image_id": image}, "success", result={"image_id": image})
            except TimeoutError:
                done = tasks.ended(task, "failure", message="Error: it took too long.")
            except (TaskFailed, HttpFault, Problem, OSError) as why:
                done = tasks.ended(task, "failure", message=f"Error: {why}")
            except Exception:
                log.exception("the task %s failed", task["id"])
                done = tasks.ended(task, "failure", message="Error: an unexpected error, which is in the log.")
            await context.write(lambda store: task_store.put(store.tx, done))

    async def _import(self, context: ImageContext, who: ImageCaller, task: Doc) -> str:
        """The id of the new image. Raises HttpFault, OSError and TimeoutError, and leaves no image behind then."""
        assert self._fetch is not None, "without it no address is allowed"
        said = task["input"]["image_properties"] or {"disk_format": "qcow2", "container_format": "bare"}
        doc, born = attributes.new_image(who, said, context.settings)
        await context.write(lambda store: _add(store, doc, born, context.settings.images_max, task))
        try:
            async with asyncio.timeout(IMPORT_MAX_S), self._fetch(task["input"]["import_from"]) as pieces:
                await data.take(context, who, doc["id"], pieces, None)
        except Exception:
            await context.write(lambda store: _forget(store, doc["id"]))
            await context.files.forget(doc["id"])
            raise
        return str(doc["id"])


def _add(store: ImageTables, doc: Doc, born: str, images_max: int, task: Doc) -> None:
    if doc["owner"] is not None and store.count(doc["owner"]) >= images_max:
        raise too_large(f"The project owns {images_max} images, which is the limit.")
    if not store.add(doc, born):
        raise TaskFailed(f"Image ID {doc['id']} already exists!")
    task_store.put(store.tx, task | {"image_id": doc["id"]})


def _forget(store: ImageTables, image: str) -> None:
    if store.show(image, hold=True) is not None:
        store.remove(image)


def recover(store: ImageTables) -> None:
    """At start: tasks of the last process have failed, and the images that they began are gone."""
    for task in task_store.waiting(store.tx):
        if task["type"] == "import" and "image_id" in task:
            found = store.show(task["image_id"], hold=True)
            if found is not None and found.doc["status"] == "queued":
                store.remove(task["image_id"])
        task_store.put(store.tx, tasks.ended(task, "failure", message="Error: the service was started again."))
