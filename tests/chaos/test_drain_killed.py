"""`moorage up` is killed with -9 during a drain: the next start continues it, and each server is moved once."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage_testing.api_user import Person
from moorage_testing.leak_audit import guests_on_disk, nothing_leaked
from moorage_testing.up_process import UpProcess

pytestmark = pytest.mark.slow
HOST = "host1"
PATIENCE_S = 180.0
MOVED = (0, 1)
"""How many were done when it was killed."""


@pytest.fixture
def upped(tmp_path: Path) -> Iterator[UpProcess]:
    up = UpProcess(tmp_path)
    up.start()
    yield up
    if up.process is not None:
        up.end(signal.SIGKILL)


async def until(admin: Person, id: str, done: int) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        now: dict[str, Any] = (await admin.compute("GET", f"/ext/drains/{id}")).json()["drain"]
        if now["ended_at"] is not None or (now["counts"]["moving"] and now["counts"]["done"] >= done):
            return now
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("live", [True, False], ids=["live", "cold"])
async def test_killed_in_the_middle_of_a_drain(upped: UpProcess, live: bool) -> None:
    async with Person(upped.config) as admin:
        servers = [(await admin.active(f"d{n}", availability_zone=f"nova:{HOST}"))["id"] for n in range(4)]
        dials = upped.config.data / "hosts" / HOST / "dials.json"
        dials.write_text(json.dumps({"verbs": {name: {"delay_s": 3.0} for name in ("send_guest", "send_live")}}))
        reply = await admin.compute("POST", "/ext/drains", {"drain": {"host": HOST, "concurrency": 2, "live": live}})
        id = str(reply.json()["drain"]["id"])
    for done in MOVED:
        async with Person(upped.config) as admin:
            assert (await until(admin, id, done))["ended_at"] is None
        upped.end(signal.SIGKILL)
        upped.start()
    dials.unlink()
    async with Person(upped.config) as admin:
        told = await until(admin, id, len(servers) + 1)
        assert (told["status"], told["counts"]["done"]) == ("done", len(servers)), told
        ended = "completed" if live else "confirmed"
        moves = (await admin.compute("GET", "/os-migrations")).json()["migrations"]
        assert sorted(each["instance_uuid"] for each in moves if each["status"] == ended) == sorted(servers)
        guests = guests_on_disk(upped.config.data)
        assert all(len(guests[each]) == 1 and HOST not in guests[each] for each in servers)
        seen = await nothing_leaked(upped.config, admin)
        assert {server.status for server in seen.servers.values()} == {"ACTIVE"}
