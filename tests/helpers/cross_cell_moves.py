"""What tests of moves between cells share: a cloud of three cells with two hosts each, and a watcher of the lists."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from moorage.main.config import Cell, Compute, Hosts
from moorage.model.ids import CellId, ServerId
from moorage.store.cell import record_transfer
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage_testing.waiting import until
from tests.cloud.conftest import Running
from tests.helpers.resized_cloud import asked, host_of

PERMITTED = "compute:servers:resize:cross_cell"
CELLS = ("cell1", "cell2", "cell3")
CLOUD = {
    "hosts": Hosts(count=6, physical_networks=(("physnet1",),)),
    "cells": tuple(Cell(name) for name in CELLS),
    "compute": Compute(cell_links=(("cell1", "cell2"),)),
    "policy": {PERMITTED: "role:admin"},
}


def cell_of(running: Running, server: dict[str, Any]) -> str:
    return next(str(plan.cell) for plan in running.cloud.plans if plan.host == host_of(server))


def hosts_of(running: Running, cell: str) -> list[str]:
    return sorted(plan.host for plan in running.cloud.plans if plan.cell == cell)


async def boot_in(running: Running, cell: str, **more: Any) -> dict[str, Any]:
    return dict(
        await running.admin.active(
            "a", availability_zone=f"nova:{hosts_of(running, cell)[0]}", networks="private", **more
        )
    )


async def moved_to(running: Running, server: str, cell: str) -> dict[str, Any]:
    host = hosts_of(running, cell)[0]
    there = await asked(running, server, {"migrate": {"host": host}}, "VERIFY_RESIZE")
    assert cell_of(running, there) == cell
    return there


async def records(running: Running, server: str) -> tuple[str | None, list[str], list[str]]:
    """Which cell's record is shown, which have one, and where one is hidden."""
    region = running.cloud.region.databases
    where = await region.region.read(lambda tx: region_servers.find(tx, server))
    hidden = await region.region.read(lambda tx: hidden_records.open_of(tx, [ServerId(server)]))
    there = [
        cell
        for cell in CELLS
        if await region.cells[CellId(cell)].read(partial(record_transfer.has_rows, server=ServerId(server)))
    ]
    return None if where is None else where.recorded_in, there, sorted(hidden.get(ServerId(server), ()))


async def confirmed(running: Running, server: str, status: str = "ACTIVE") -> dict[str, Any]:
    return await asked(running, server, {"confirmResize": None}, status, 204)


LISTS = ("/servers/detail", "/servers", "/servers/detail?changes-since=2020-01-01T00:00:00Z")
MOVES = "/os-migrations"
QUOTA = "/limits"
AT_ONCE = 2
SLOW_S = 0.1
"""Before and after each call of a slow database."""
LOOKS_PER_CPU_S = 150.0
"""Of the processor's time of this process, which is the cloud and the watcher: 220 to 280 on a machine that was busy with other things."""


class Watcher:
    """Somebody who looks all the time at what is shown of a server, in every list, by itself, and as its project's use."""

    def __init__(self, running: Running, server: str) -> None:
        self.running, self.server = running, server
        self.amiss: list[str] = []
        self.looks = self.begun = self.ended = 0
        self.used: set[tuple[int, ...]] = set()
        self.over = asyncio.Event()
        self.alone = tuple(f"/servers/{server}{what}" for what in ("", "/tags", "/metadata", "/os-instance-actions"))
        self.tags: set[tuple[str, ...]] = set()

    async def watch(self) -> None:
        """On one connection; a client with all its comforts takes more of the processor than the cloud does."""
        admin = self.running.admin
        at = urlsplit(admin.urls[0])
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        more = "".join(f"{name}: {admin.http.headers[name]}\r\n" for name in ("X-Auth-Token", "OpenStack-API-Version"))
        while not self.over.is_set():
            self.begun += 1
            number = self.begun
            for path in (*LISTS, MOVES, QUOTA, *self.alone):
                writer.write(f"GET {at.path}{path} HTTP/1.1\r\nHost: {at.netloc}\r\n{more}\r\n".encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                body = await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
                self.looks += 1
                if not head.startswith("http/1.1 200"):
                    self.amiss.append(f"{path}: {body!r}")
                    continue
                self._judge(path, msgspec.json.decode(body))
            self.ended = max(self.ended, number)
        writer.close()

    def slow_down(self, patch: pytest.MonkeyPatch) -> None:
        """No write of a cell or of the region is begun before somebody has looked everywhere since the one before it."""
        databases = self.running.cloud.region.databases
        for each in (databases.region, *(each.inner for each in databases.cells.values())):  # type: ignore[attr-defined]

            async def write(work: Any, _real: Any = each.write) -> Any:
                begun = self.begun
                await until(lambda: self.ended > begun or self.over.is_set())
                return await _real(work)

            patch.setattr(each, "write", write)

    def _judge(self, path: str, shown: dict[str, Any]) -> None:
        if path in LISTS:
            found = [each["id"] for each in shown["servers"]]
            if found.count(self.server) != 1:
                self.amiss.append(f"{path}: {found}")
        elif path == MOVES:
            moves = [each["uuid"] for each in shown["migrations"]]
            if len(moves) != len(set(moves)):
                self.amiss.append(f"{path}: {moves}")
        elif path.endswith("/tags"):
            self.tags.add(tuple(shown["tags"]))
        elif path == QUOTA:
            used = shown["limits"]["absolute"]
            self.used.add(tuple(used[f"total{each}Used"] for each in ("Instances", "Cores", "RAM")))


@asynccontextmanager
async def watched(running: Running, server: str, *, sizes: int = 1) -> AsyncIterator[Watcher]:
    """Whoever looks meanwhile, wherever, between any two writes of any database, sees it once in each answer, and its project charged for it
    once: neither two nor none.  `sizes`: of those it has meanwhile; it is charged for the larger one.
    """
    watcher, began = Watcher(running, server), time.process_time()
    watching = [asyncio.create_task(watcher.watch()) for _ in range(AT_ONCE)]
    try:
        with pytest.MonkeyPatch.context() as patch:
            watcher.slow_down(patch)
            yield watcher
    finally:
        watcher.over.set()
        await asyncio.gather(*watching)
    rate = watcher.looks / (time.process_time() - began)
    assert watcher.amiss == []
    assert {instances for instances, *_ in watcher.used} == {1}
    assert (len(watcher.used), len(watcher.tags)) == (sizes, 1), (watcher.used, watcher.tags)
    assert rate >= LOOKS_PER_CPU_S, f"{watcher.looks} looks"
