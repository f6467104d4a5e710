"""`moorage up` with three cells is killed with -9 while servers move between them and while a cell is emptied: each ends in one cell, once."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.test_cross_cell_restored import SETTINGS
from tests.chaos.test_moves_killed import Moves, audited
from typing_extensions import override

from moorage_testing.api_user import Person
from moorage_testing.leak_audit import guests_on_disk, nothing_leaked
from moorage_testing.up_process import UpProcess
from moorage_testing.waiting import PATIENCE_S

HOSTS = ("host1", "host2", "host3")
"""One in each cell."""
KILLS = 3
DRAINED = 3
SLOW_S = 2.0


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    policy = tmp_path / "policy.yaml"
    policy.write_text('"compute:servers:resize:cross_cell": "role:admin"\n')
    cloud = UpProcess(tmp_path, SETTINGS.format(policy=policy))
    cloud.start()
    yield cloud
    if cloud.process is not None:
        cloud.end(signal.SIGKILL)


class Crossings(Moves):
    """Every move goes to another cell."""

    @override
    async def _order(self, admin: Person, server: str) -> None:
        seen = await admin.server(server)
        assert seen is not None
        if seen["status"] == "VERIFY_RESIZE":
            action: dict[str, Any] = {self.dice.choice(("confirmResize", "revertResize")): None}
        else:
            others = [each for each in HOSTS if each != seen["OS-EXT-SRV-ATTR:host"]]
            action = {"migrate": {"host": self.dice.choice(others)}}
        reply = await admin.compute("POST", f"/servers/{server}/action", action)
        assert reply.status_code in {202, 204, 409}, reply.text
        self.accepted += reply.status_code < 300


async def test_killed_while_servers_move_between_cells(up: UpProcess) -> None:
    """Each runs on one host at most all the while, waits or is done in the end, and nothing is left over in any cell."""
    moves = Crossings(up, seed=23)
    await moves.play(KILLS)
    assert moves.accepted > 0


async def until(admin: Person, id: str, done: int) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer: dict[str, Any] = (await admin.compute("GET", f"/ext/cell-drains/{id}")).json()["cell_drain"]
        if answer["ended_at"] is not None or (answer["counts"]["moving"] and answer["counts"]["done"] >= done):
            return answer
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)


async def test_killed_while_a_cell_is_emptied(up: UpProcess) -> None:
    """The next start goes on, and moves each server once."""
    async with Person(up.config) as admin:
        servers = [(await admin.active(f"d{n}", availability_zone="nova:host1"))["id"] for n in range(DRAINED)]
        dials = up.config.data / "hosts" / "host1" / "dials.json"
        dials.write_text(json.dumps({"verbs": {name: {"delay_s": SLOW_S} for name in ("take_snapshot", "power_off")}}))
        asked = {"cell": "cell1", "hosts": 1, "concurrency": 1}
        reply = await admin.compute("POST", "/ext/cell-drains", {"cell_drain": asked})
        assert reply.status_code == 202, reply.text
        id = str(reply.json()["cell_drain"]["id"])
    for done in (0, 1):
        async with Person(up.config) as admin:
            assert (await until(admin, id, done))["ended_at"] is None
        up.end(signal.SIGKILL)
        up.start()
    dials.unlink()
    async with Person(up.config) as admin:
        told = await until(admin, id, DRAINED + 1)
        assert (told["status"], told["counts"]["done"], told["counts"]["left"]) == ("done", DRAINED, 0), told
        moves = (await admin.compute("GET", "/os-migrations")).json()["migrations"]
        assert sorted(each["instance_uuid"] for each in moves) == sorted(servers)
        assert {each["status"] for each in moves} == {"confirmed"}
        guests = guests_on_disk(up.config.data)
        assert all(len(guests[each]) == 1 and "host1" not in guests[each] for each in servers)
        assert await audited(admin) == []
        await nothing_leaked(up.config, admin)
