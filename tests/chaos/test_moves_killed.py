"""`moorage up` with its agents is killed with -9 repeatedly while servers are moved, cold and live: each ends on one host or waits between two, and nothing leaks."""

import asyncio
import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.drivers.simulated_guest import SimulatedGuest
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import guests_on_disk, nothing_leaked
from moorage_testing.up_process import UpProcess
from moorage_testing.waiting import PATIENCE_S

SERVERS = 4
WITHIN_S = (0.0, 0.1, 0.3, 0.7, 1.5)
"""How long after its orders the cloud is killed: a move takes about as long as the last of these on an idle machine."""
LOOK_S = 0.2
LIVE_MIB_PER_S = 1500.0
"""So that a live migration takes about as long as a cold one: a host's agent is killed before, in and after its transfer."""
LIVE = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
RESTING = {"ACTIVE", "VERIFY_RESIZE"}


class Moves:
    """Servers that are moved, in rounds."""

    def __init__(self, upped: UpProcess, seed: int) -> None:
        self.upped = upped
        self.dice = random.Random(seed)
        self.flavors: list[str] = []
        self.accepted = 0

    async def play(self, kills: int) -> None:
        async with Person(self.upped.config) as admin:
            names = [f"moved-{number}" for number in range(SERVERS)]
            servers = [each["id"] for each in await asyncio.gather(*(admin.active(name) for name in names))]
            self.flavors = [await admin.id_of("flavor", each) for each in ("m1.micro", "m1.tiny")]
        for host in (self.upped.config.data / "hosts").glob("host?"):
            (host / "dials.json").write_text(json.dumps({"live_mib_per_s": LIVE_MIB_PER_S}))
        for _ in range(kills):
            async with Person(self.upped.config) as admin:
                orders = [asyncio.create_task(self._order(admin, each)) for each in servers]
                await asyncio.wait(orders, timeout=self.dice.choice(WITHIN_S))
                self.upped.end(signal.SIGKILL)
                await asyncio.gather(*orders, return_exceptions=True)
            self.upped.start()
            async with Person(self.upped.config) as admin:
                await self._rests(admin, servers)
        async with Person(self.upped.config) as admin:
            assert await audited(admin) == []
            await self._ended(admin, servers)
            seen = await nothing_leaked(self.upped.config, admin)
            assert {each: seen.servers[each].status for each in servers} == dict.fromkeys(servers, "ACTIVE")
            assert await audited(admin) == []

    async def _order(self, admin: Person, server: str) -> None:
        """One that fits: a move, or how it is to end."""
        seen = await admin.server(server)
        assert seen is not None
        if seen["status"] == "VERIFY_RESIZE":
            action: dict[str, Any] = {self.dice.choice(("confirmResize", "revertResize")): None}
        else:
            other = [each for each in self.flavors if each != seen["flavor"].get("id")]
            action = self.dice.choice(
                ({"migrate": None}, {"resize": {"flavorRef": self.dice.choice(other)}}, LIVE, LIVE)
            )
        reply = await admin.compute("POST", f"/servers/{server}/action", action)
        assert reply.status_code in {202, 204, 400, 409}, reply.text  # 400: it has that flavor already
        self.accepted += reply.status_code < 300

    async def _rests(self, admin: Person, servers: list[str]) -> None:
        """Nothing is under way, every server is in a state that lasts, and at most one guest of each runs all the while."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self._running_twice() == {}
            shown = (await admin.compute("GET", "/ext/operations", all_projects="1")).json()["operations"]
            under_way = [(each["name"], each["status"]) for each in shown if each["ended_at"] is None]
            if not under_way:
                break
            assert time.monotonic() < deadline, under_way
            await asyncio.sleep(LOOK_S)
        found = [await admin.settled(each) for each in servers]
        assert {each["status"] for each in found} <= RESTING, [(each["status"], each.get("fault")) for each in found]

    def _running_twice(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for server, hosts in guests_on_disk(self.upped.config.data).items():
            for host in hosts:
                file = self.upped.config.data / "hosts" / host / "guests" / f"{server}.json"
                try:
                    guest = msgspec.json.decode(file.read_bytes(), type=SimulatedGuest)
                except FileNotFoundError:
                    continue  # it went meanwhile
                if guest.power.name == "RUNNING":
                    found.setdefault(server, []).append(host)
        return {server: hosts for server, hosts in found.items() if len(hosts) > 1}

    async def _ended(self, admin: Person, servers: list[str]) -> None:
        """Half of those that wait are confirmed, the others go back."""
        for number, each in enumerate(servers):
            if (await admin.settled(each))["status"] == "VERIFY_RESIZE":
                action = ("confirmResize", "revertResize")[number % 2]
                reply = await admin.compute("POST", f"/servers/{each}/action", {action: None})
                assert reply.status_code in {202, 204}, reply.text
        await self._rests(admin, servers)


async def audited(admin: Person) -> list[Any]:
    """What an audit of everything finds."""
    reply = await admin.compute("POST", "/ext/audits", {"audit": {}})
    assert reply.status_code == 202, reply.text
    id, deadline = reply.json()["audit"]["id"], time.monotonic() + PATIENCE_S
    while True:
        answer = (await admin.compute("GET", f"/ext/audits/{id}")).json()["audit"]
        if answer["ended_at"] is not None:
            return list(answer["findings"])
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(LOOK_S)


@pytest.mark.slow
async def test_a_few_kills_during_moves(tmp_path: Path) -> None:
    await killed(tmp_path, 17, kills=4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
async def test_many_kills_during_moves(tmp_path: Path, seed: int) -> None:
    await killed(tmp_path, seed, kills=25)


async def killed(directory: Path, seed: int, kills: int) -> None:
    upped = UpProcess(directory)
    upped.start()
    try:
        moves = Moves(upped, seed)
        await moves.play(kills)
        assert moves.accepted > 0
    finally:
        if upped.process is not None:
            upped.end(signal.SIGKILL)
