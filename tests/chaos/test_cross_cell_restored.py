"""Servers that moved to another cell in a cloud of real processes, of which one database is then restored to before or after the move."""

import asyncio
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.chaos.test_moves_killed import audited
from tests.chaos.test_restored_databases import adopted, marks_move

from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.model.guest import PowerState
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import guests_on_disk, nothing_leaked
from moorage_testing.up_process import UpProcess
from moorage_testing.waiting import PATIENCE_S

DATABASES = ("region", "cell1", "cell2")
SETTINGS = """
[[cells]]
name = "cell1"

[[cells]]
name = "cell2"

[[cells]]
name = "cell3"

[hosts]
count = 3

[api]
policy_file = "{policy}"
"""
HERE, THERE = "host1", "host2"
WAITS, CONFIRMED, REVERTED = NAMES = ("waits", "confirmed", "reverted")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    policy = tmp_path / "policy.yaml"
    policy.write_text('"compute:servers:resize:cross_cell": "role:admin"\n')
    cloud = UpProcess(tmp_path, SETTINGS.format(policy=policy))
    yield cloud
    if cloud.process is not None:
        cloud.end(signal.SIGKILL)


def running_on(up: UpProcess) -> dict[str, list[str]]:
    """Server → hosts whose guest of it runs."""
    found: dict[str, list[str]] = {}
    for server, hosts in guests_on_disk(up.config.data).items():
        for host in hosts:
            file = up.config.data / "hosts" / host / "guests" / f"{server}.json"
            if msgspec.json.decode(file.read_bytes(), type=SimulatedGuest).power is PowerState.RUNNING:
                found.setdefault(server, []).append(host)
    return found


def backed_up(up: UpProcess, moment: str) -> None:
    for name in DATABASES:
        kept = up.directory / f"{name}.{moment}"
        with closing(sqlite3.connect(up.config.data / f"{name}.db")) as running, closing(sqlite3.connect(kept)) as copy:
            running.backup(copy)


def put_back(up: UpProcess, name: str, moment: str) -> None:
    """All is as when the cloud was stopped, but for that database."""
    shutil.rmtree(up.config.data)
    shutil.copytree(up.directory / "stopped", up.config.data)
    for each in up.config.data.glob(f"{name}.db*"):
        each.unlink()
    shutil.copy(up.directory / f"{name}.{moment}", up.config.data / f"{name}.db")


async def act(admin: Person, server: str, action: dict[str, Any], status: str) -> dict[str, Any]:
    reply = await admin.compute("POST", f"/servers/{server}/action", action)
    assert reply.status_code in {202, 204}, reply.text
    return await settles(admin, server, status)


async def settles(admin: Person, server: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await admin.settled(server)
            open_ones = [each for each in await admin.operations_of(server) if each["ended_at"] is None]
            if not open_ones:
                break
            await asyncio.sleep(0.1)
    assert found["status"] == status, (found["status"], found.get("fault"))
    return found


async def moved(up: UpProcess) -> dict[str, str]:
    """Name → server: one waits in the other cell, one stays there, one came back; with a backup of before and one of when all of them waited."""
    async with Person(up.config) as admin:
        servers = {each: (await admin.active(each, availability_zone=f"nova:{HERE}"))["id"] for each in NAMES}
        backed_up(up, "before")
        for each in servers.values():
            await act(admin, each, {"migrate": {"host": THERE}}, "VERIFY_RESIZE")
        backed_up(up, "after")
        await act(admin, servers[CONFIRMED], {"confirmResize": None}, "ACTIVE")
        await act(admin, servers[REVERTED], {"revertResize": None}, "ACTIVE")
    await marks_move(up)
    up.end(signal.SIGKILL)
    shutil.copytree(up.config.data, up.directory / "stopped")
    return servers


LOST = {("cell2", "before"): {WAITS, CONFIRMED}}
"""Missing: the cell that shows them was put back to before it had their records."""
DOUBTFUL = {("cell1", "before"): {REVERTED}, ("cell1", "after"): {REVERTED}, ("cell2", "after"): {CONFIRMED}}
"""Their records may be older than the region knows: an administrator lets an audit settle them by the claim and the guest."""
TAKEN_BACK = {("region", "before"), ("cell1", "before"), ("cell2", "after")}
"""Where the one that waits is reverted; it is confirmed after the others."""


def expected(case: tuple[str, str], name: str) -> str:
    if name in LOST.get(case, ()):
        return "UNKNOWN"
    if name == WAITS:
        return "VERIFY_RESIZE"
    return "ACTIVE"


async def test_each_database_is_put_back_to_before_and_after_the_flip(up: UpProcess) -> None:
    """Every server is shown once and runs where it ran, who waits can be confirmed and reverted, and nothing is left over."""
    up.start()
    servers = await moved(up)
    runs = {servers[WAITS]: [THERE], servers[CONFIRMED]: [THERE], servers[REVERTED]: [HERE]}
    assert running_on(up) == runs
    for case in ((database, moment) for database in DATABASES for moment in ("before", "after")):
        put_back(up, *case)
        adopted(up)
        up.start()
        async with Person(up.config) as admin:
            doubtful = {each["server"] for each in await audited(admin) if each["kind"] == "server_doubtful"}
            assert doubtful <= {servers[each] for each in DOUBTFUL.get(case, ())}, case
            if doubtful:
                await repaired(admin)
                await repaired(admin)  # what a doubtful record says besides is judged when it is none any more
            assert running_on(up) == runs, case
            await shown(admin, case, servers)
            await ended(admin, case, servers)
            left = [(each["kind"], each["server"]) for each in await audited(admin)]
            assert sorted(left) == sorted(("record_missing", servers[each]) for each in LOST.get(case, ())), case
            if case not in LOST:  # who is missing keeps all that it has
                await nothing_leaked(up.config, admin)
                for each in servers.values():
                    await admin.gone(each)
                await nothing_leaked(up.config, admin)
        up.end(signal.SIGKILL)


async def repaired(admin: Person) -> None:
    reply = await admin.compute("POST", "/ext/audits", {"audit": {"repair": True}})
    assert reply.status_code == 202, reply.text
    path = f"/ext/audits/{reply.json()['audit']['id']}"
    async with asyncio.timeout(PATIENCE_S):
        while (await admin.compute("GET", path)).json()["audit"]["ended_at"] is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def shown(admin: Person, case: tuple[str, str], servers: dict[str, str]) -> None:
    lost = LOST.get(case, set())
    for path in ("/servers", "/servers/detail"):
        listed = [each["id"] for each in (await admin.compute("GET", path)).json()["servers"]]
        assert sorted(listed) == sorted(servers[each] for each in NAMES if each not in lost), (case, path)
    for name, each in servers.items():
        found = (await admin.compute("GET", f"/servers/{each}")).json()["server"]
        assert found["status"] == expected(case, name), (case, name)


async def ended(admin: Person, case: tuple[str, str], servers: dict[str, str]) -> None:
    """Whoever waits is confirmed, or goes back."""
    for name, each in servers.items():
        if expected(case, name) == "VERIFY_RESIZE":
            back = name == WAITS and case in TAKEN_BACK
            found = await act(admin, each, {"revertResize" if back else "confirmResize": None}, "ACTIVE")
            assert found["OS-EXT-SRV-ATTR:host"] == (HERE if back else THERE), (case, name)
