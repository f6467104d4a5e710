"""Image data in a directory that all agents of a machine share without knowing one another."""

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moorage.clients import image_data
from moorage.clients.http import ServiceClient
from moorage.clients.image_data import DATA_DEADLINE_S, LOCK, USED_LATELY_S, ImageData
from moorage.model.ids import ImageId

IMAGE = ImageId("2f0a2f9e-0000-4000-8000-000000000001")
DATA = [b"one ", b"image"]


class Served:
    """The image service, whose data comes when the test lets it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = asyncio.Event()
        self.reads = 0

    async def call(self, method: str, path: str, **_: Any) -> Any:
        body = {"id": IMAGE, "status": "active", "size": len(b"".join(DATA)), "disk_format": "raw"}
        digest = hashlib.sha512(b"".join(DATA)).hexdigest()
        return SimpleNamespace(body=body | {"os_hash_algo": "sha512", "os_hash_value": digest})

    async def read_data(self, path: str, **_: Any) -> AsyncIterator[bytes]:
        self.reads += 1
        for piece in DATA:
            yield piece
            self.begun.set()
            await self.go_on.wait()


def kept(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir()} - {LOCK}


async def test_two_agents_read_the_same_image_at_the_same_time(tmp_path: Path) -> None:
    first, second = Served(), Served()
    reads = []
    for served in (first, second):
        reads.append(asyncio.create_task(ImageData(cast("ServiceClient", served), tmp_path).fetch(IMAGE)))
        await served.begun.wait()
    for served, read in zip((first, second), reads, strict=True):
        served.go_on.set()
        assert (await read).path.read_bytes() == b"".join(DATA)
    assert kept(tmp_path) == {IMAGE}


async def test_files_of_a_dead_agent_are_removed_and_open_ones_kept(tmp_path: Path) -> None:
    old, young = tmp_path / "a.1.new", tmp_path / "a.2.new"
    for each, age_s in ((old, DATA_DEADLINE_S + 60), (young, 60)):
        each.write_bytes(b"half")
        os.utime(each, (time.time() - age_s, time.time() - age_s))
    served = Served()
    served.go_on.set()
    await ImageData(cast("ServiceClient", served), tmp_path).fetch(IMAGE)
    assert kept(tmp_path) == {IMAGE, young.name}


async def test_a_reader_after_a_cancelled_one_waits_for_the_next(tmp_path: Path) -> None:
    """Else each command whose time is over would let one more read the whole image beside the others."""
    served = Served()
    data = ImageData(cast("ServiceClient", served), tmp_path)
    first, second = (asyncio.create_task(data.fetch(IMAGE)) for _ in range(2))
    await served.begun.wait()
    served.begun.clear()
    first.cancel()
    await asyncio.wait([first])
    third = asyncio.create_task(data.fetch(IMAGE))
    await served.begun.wait()
    served.go_on.set()
    await asyncio.gather(second, third)
    assert served.reads == 2


async def test_least_recently_used_images_are_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that was restarted, and the other agents of its machine, go by the same files."""

    def was_used(name: str, ago_s: float) -> None:
        os.utime(tmp_path / name, (time.time() - ago_s, time.time() - ago_s))

    monkeypatch.setattr(image_data, "KEPT_MAX", 3)
    served = Served()
    served.go_on.set()
    mine, other = (ImageData(cast("ServiceClient", served), tmp_path) for _ in range(2))
    for at, name in enumerate(("before-1", "before-2", "before-3")):  # by the life before
        (tmp_path / name).write_bytes(b"old")
        was_used(name, USED_LATELY_S * (20 - at))
    await other.fetch(ImageId("others"))
    was_used("others", USED_LATELY_S * 30)  # longest ago, were it not for its next use
    await other.fetch(ImageId("others"))
    assert kept(tmp_path) == {"before-2", "before-3", "others"}
    await mine.fetch(IMAGE)
    assert kept(tmp_path) == {"before-3", "others", IMAGE}
    for name in ("one", "two", "three"):
        await mine.fetch(ImageId(name))
    lately = {"others", IMAGE, "one", "two", "three"}
    assert kept(tmp_path) == lately, "somebody may be about to link them"
    for at, name in enumerate(sorted(lately)):
        was_used(name, USED_LATELY_S * (10 - at))
    again = ImageData(cast("ServiceClient", served), tmp_path)
    assert (await again.fetch(ImageId("four"))).path.read_bytes() == b"".join(DATA)
    assert kept(tmp_path) == {"four", *sorted(lately)[-2:]}


async def test_a_host_sends_heartbeats_while_it_hashes_a_large_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, threads = hashlib.file_digest, list[threading.Thread]()

    def noted(*asked: Any) -> Any:
        threads.append(threading.current_thread())
        return digest(*asked)

    monkeypatch.setattr(hashlib, "file_digest", noted)
    served = Served()
    served.go_on.set()
    await ImageData(cast("ServiceClient", served), tmp_path).fetch(IMAGE)
    assert threads
    assert threading.current_thread() not in threads
