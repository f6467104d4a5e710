"""Databases of a whole cloud are lost and restored, step by step as docs/operating/restore.md describes it."""

import asyncio
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from moorage_testing.api_user import Person
from moorage_testing.leak_audit import guests_on_disk, nothing_leaked
from moorage_testing.up_process import UpProcess
from moorage_testing.waiting import until

START_S = 300.0


def files(up: UpProcess, name: str) -> list[Path]:
    return sorted(up.config.data.glob(f"{name}.db*"))


def copied(up: UpProcess, name: str) -> Callable[[], None]:
    """Step 1 of every procedure: with the cloud stopped, copy the files. What comes back puts them there again."""
    kept = up.directory / "backup"
    kept.mkdir(exist_ok=True)
    for each in files(up, name):
        shutil.copy(each, kept / each.name)

    def restore() -> None:
        for each in files(up, name):
            each.unlink()
        for each in sorted(kept.glob(f"{name}.db*")):
            shutil.copy(each, up.config.data / each.name)

    return restore


def refused(up: UpProcess) -> str:
    """What `moorage up` says when it does not start."""
    words = [sys.executable, "-m", "moorage", "up", "--config", str(up.path)]
    done = subprocess.run(words, cwd=up.directory, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def adopted(up: UpProcess) -> str:
    words = [sys.executable, "-m", "moorage", "db", "adopt", "--config", str(up.path)]
    done = subprocess.run(words, cwd=up.directory, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def asked(up: UpProcess, name: str, question: str) -> list[str]:
    """Rows of one column, read beside a running or a stopped cloud."""
    with closing(sqlite3.connect(f"file:{up.config.data / name}.db?mode=ro", uri=True)) as database:
        return [row[0] for row in database.execute(question)]


def in_cell(up: UpProcess, cell: str) -> set[str]:
    return set(asked(up, "region", f"SELECT id FROM servers WHERE cell = '{cell}' AND deleted_at IS NULL"))


async def marks_move(up: UpProcess) -> None:
    """The databases have told one another twice how far they are."""

    def mark() -> int:
        return int(asked(up, "region", "SELECT mark FROM store_identity")[0])

    before = mark()
    await until(lambda: mark() >= before + 2, look_every_s=0.2)


async def statuses(up: UpProcess, servers: Iterable[str]) -> set[str]:
    async with Person(up.config) as admin:
        return {(await admin.server(each) or {}).get("status", "none") for each in servers}


async def ports_of(up: UpProcess, servers: Collection[str]) -> int:
    async with Person(up.config) as admin:
        ports = (await admin.network("GET", "/ports")).json()["ports"]
        return sum(port["device_id"] in servers for port in ports)


async def boots(up: UpProcess, *names: str) -> set[str]:
    async with Person(up.config) as admin:
        return {(await admin.active(each))["id"] for each in names}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    cloud = UpProcess(tmp_path, "[hosts]\ncount = 4\n")
    yield cloud
    if cloud.process is not None:
        cloud.end(signal.SIGKILL)


async def test_one_cell_is_restored(up: UpProcess) -> None:
    """A lost file is refused and costs nothing; an older one is adopted, and what it does not know stays, as missing."""
    up.start()
    old = await boots(up, "old-1", "old-2", "old-3")
    up.end(signal.SIGINT)
    restore = copied(up, "cell1")
    up.start()
    new = await boots(up, "new-1", "new-2", "new-3", "new-4")
    await marks_move(up)
    up.end(signal.SIGINT)
    lost, kept = new & in_cell(up, "cell1"), old & in_cell(up, "cell1")
    assert lost
    guests = guests_on_disk(up.config.data)
    away = [(each, each.with_name(f"was-{each.name}")) for each in files(up, "cell1")]
    for file, other in away:
        file.rename(other)
    assert "the database of cell1 is empty" in refused(up)
    assert guests_on_disk(up.config.data) == guests
    restore()
    assert "the database of cell1 is older than the region remembers it" in refused(up)
    said = adopted(up)
    assert f"cell1: {len(lost)} servers of the region are missing" in said
    up.start()
    await marks_move(up)
    assert await statuses(up, lost) == {"UNKNOWN"}
    assert await statuses(up, (old | new) - lost) == {"ACTIVE"}
    assert kept <= old
    assert guests_on_disk(up.config.data) == guests
    assert await ports_of(up, lost) == len(lost)
    up.end(signal.SIGINT)
    assert guests_on_disk(up.config.data) == guests


async def test_the_region_is_restored(up: UpProcess) -> None:
    """Servers that it does not know any more are listed again, as their cells have them."""
    up.start()
    old = await boots(up, "old-1")
    up.end(signal.SIGINT)
    restore = copied(up, "region")
    up.start()
    new = await boots(up, "new-1", "new-2")
    await marks_move(up)
    up.end(signal.SIGINT)
    guests = guests_on_disk(up.config.data)
    restore()
    assert "the region database is older than cell1 remembers it" in refused(up)
    said = adopted(up)
    assert "were accepted after the region's backup, and are listed again" in said
    assert "were made again, as the cell has them" in said
    up.start()
    assert await statuses(up, old | new) == {"ACTIVE"}
    async with Person(up.config) as admin:
        await admin.delete(min(new))
        await admin.gone(min(new))
        await nothing_leaked(up.config, admin)
    left = guests_on_disk(up.config.data)
    assert left.keys() == guests.keys() - {min(new)}
    up.end(signal.SIGINT)


def backed_up(up: UpProcess, name: str) -> Callable[[], None]:
    """The same while the cloud runs: `sqlite3 region.db ".backup copy.db"`."""
    kept = up.directory / f"{name}.backup"
    with closing(sqlite3.connect(up.config.data / f"{name}.db")) as running, closing(sqlite3.connect(kept)) as copy:
        running.backup(copy)

    def restore() -> None:
        for each in files(up, name):
            each.unlink()
        shutil.copy(kept, up.config.data / f"{name}.db")

    return restore


def dial_all(up: UpProcess, **delays_s: float) -> None:
    """How long verbs take on every host."""
    for host in up.config.data.glob("hosts/host*"):
        (host / "dials.json").write_text(json.dumps({"verbs": {each: {"delay_s": s} for each, s in delays_s.items()}}))


async def test_open_operations_and_claims_at_the_regions_backup(up: UpProcess) -> None:
    """Operations that ended since are ended, and take nothing back; one that was really under way goes on. Claims are as cells say."""
    up.start()
    stopped, carded, deleted = sorted(await boots(up, "a", "b", "c"))
    async with Person(up.config) as admin:
        dial_all(up, start_guest=12.0, attach_interface=12.0, power_off=600.0)
        private = await admin.id_of("network", "private")
        body = {"interfaceAttachment": {"net_id": private}}
        attach = asyncio.create_task(admin.compute("POST", f"/servers/{carded}/os-interface", body))
        open_boot = await admin.boot("open")
        assert (await admin.compute("POST", f"/servers/{stopped}/action", {"os-stop": None})).status_code == 202
        await until(lambda: len(asked(up, "region", "SELECT id FROM operations WHERE ended_at IS NULL")) == 3)
        restore = backed_up(up, "region")
        assert (await attach).status_code == 200
        assert (await admin.settled(open_boot))["status"] == "ACTIVE"
        dial_all(up, power_off=600.0)
        later = (await admin.active("later", flavor="m1.tiny", networks="routed"))["id"]
        await admin.gone(deleted)
        ports = await ports_of(up, {carded})
        claims = {each: await allocations_of(admin, each) for each in (stopped, carded, open_boot, later)}
    await marks_move(up)
    up.end(signal.SIGKILL)
    guests = guests_on_disk(up.config.data)
    restore()
    said = adopted(up)
    assert "1 operations were open at the region's backup, and go on" in said, said
    assert said.count("was ended: ") == 2, said
    dial_all(up)
    up.start()
    async with Person(up.config) as admin:
        assert {each: await allocations_of(admin, each) for each in claims} == claims
        assert (await admin.settled(stopped))["status"] == "SHUTOFF"
        assert await statuses(up, [carded, open_boot, later]) == {"ACTIVE"}
        assert await statuses(up, [deleted]) == {"none"}
        assert await ports_of(up, {carded}) == ports == 2
        assert guests_on_disk(up.config.data) == guests
    up.end(signal.SIGINT)
    up.start()  # quota is counted anew when nothing is under way: at the latest in five minutes, or now
    async with Person(up.config) as admin:
        await nothing_leaked(up.config, admin)
        for each in claims:
            await admin.gone(each)
        await nothing_leaked(up.config, admin)
    up.end(signal.SIGINT)


async def allocations_of(admin: Person, server: str) -> dict[str, dict[str, int]]:
    url = f"{admin.config.api.placement.url}/placement/allocations/{server}"
    return {provider: row["resources"] for provider, row in (await admin.http.get(url)).json()["allocations"].items()}


async def test_all_databases_are_restored_to_one_time(up: UpProcess) -> None:
    """Copies of one stopped cloud agree: it starts, and guests that no database knows any more are left alone."""
    up.start()
    old = await boots(up, "old-1")
    up.end(signal.SIGINT)
    restores = [copied(up, name) for name in ("region", "cell1", "cell2")]
    up.start()
    new = await boots(up, "new-1")
    await marks_move(up)
    up.end(signal.SIGINT)
    guests = guests_on_disk(up.config.data)
    for restore in restores:
        restore()
    adopted(up)
    up.start()
    assert await statuses(up, old) == {"ACTIVE"}
    assert await statuses(up, new) == {"none"}
    await marks_move(up)
    assert guests_on_disk(up.config.data) == guests
    up.end(signal.SIGINT)
