"""A database that is some seconds or a day older than the others destroys, releases and deletes nothing (RULES §26)."""

import asyncio
import json
import signal
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.chaos.test_restored_databases import adopted, copied, marks_move, refused

from moorage.main.local_cluster.ports import free_ports
from moorage_testing.api_user import Person
from moorage_testing.up_process import UpProcess
from moorage_testing.waiting import until

CONFIG = '[hosts]\ncount = 4\nphysical_networks = [["physnet1"]]\n[[cells]]\nname = "cell1"\n'
NEWEST = "compute 2.96"
LIVE = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
SLOW = ("send_guest", "take_guest", "prepare_live", "land_live", "live_transfer", "upload_snapshot", "destroy_guest")
SLOW_S = 0.7
RELEASING = ("stray_ports", "stray_attachments", "stray_claims", "host_debts")
"""Reconcilers that release, at the latest a minute later, what nobody seems to use."""

pytestmark = pytest.mark.slow


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    up = UpProcess(tmp_path, f"{CONFIG}[metrics]\nport = {free_ports(1)[0]}\n")
    up.start()
    yield up
    if up.process is not None:
        up.end(signal.SIGKILL)


def guests(up: UpProcess) -> dict[str, list[str]]:
    """Server → the hosts with a guest of it."""
    found: dict[str, list[str]] = {}
    for file in sorted((up.config.data / "hosts").glob("*/guests/*.json")):
        found.setdefault(file.stem, []).append(file.parent.parent.name)
    return found


def copy_of(up: UpProcess, name: str, to: Path) -> None:
    """A copy of a database in use, as a replica has it."""
    with (
        closing(sqlite3.connect(up.config.data / f"{name}.db", timeout=30)) as source,
        closing(sqlite3.connect(to)) as copy,
    ):
        source.backup(copy)


def fail_over(up: UpProcess, name: str, copy: Path) -> None:
    """The copy stands in for the database; that it has an older mark is not seen, as within the seconds between two marks."""
    with closing(sqlite3.connect(up.config.data / f"{name}.db")) as newest:
        marks = newest.execute("SELECT mark FROM store_identity").fetchone()
    with closing(sqlite3.connect(copy)) as replica:
        replica.execute("UPDATE store_identity SET mark = ?", marks)
        replica.commit()
    for file in up.config.data.glob(f"{name}.db*"):
        file.unlink()
    (up.config.data / f"{name}.db").write_bytes(copy.read_bytes())


async def act(person: Person, server: str, body: dict[str, Any], state: str) -> dict[str, Any]:
    person.http.headers["OpenStack-API-Version"] = NEWEST
    answer = await person.compute("POST", f"/servers/{server}/action", body)
    assert answer.status_code < 300, answer.text
    for _ in range(600):
        shown = await person.server(server)
        if shown["status"] == state and not shown["OS-EXT-STS:task_state"]:
            break
        await asyncio.sleep(0.2)
    await ended(person, server)
    return await person.server(server)


async def ended(person: Person, *servers: str) -> None:
    for server in servers:
        for _ in range(1_200):
            if all(each["status"] in ("done", "undone") for each in await person.operations_of(server)):
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError(await person.operations_of(server))


async def volume_of(person: Person, server: str) -> str:
    """A new volume, attached to it."""
    made = (await person.volume("POST", "/volumes", {"volume": {"size": 1}})).json()["volume"]["id"]
    await volume_is(person, made, "available")
    body = {"volumeAttachment": {"volumeId": made}}
    answer = await person.compute("POST", f"/servers/{server}/os-volume_attachments", body)
    assert answer.status_code < 300, answer.text
    await volume_is(person, made, "in-use")
    await ended(person, server)
    return str(made)


async def volume_is(person: Person, volume: str, status: str) -> None:
    for _ in range(150):
        if (await volume_now(person, volume))["status"] == status:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(await volume_now(person, volume))


async def volume_now(person: Person, volume: str) -> dict[str, Any]:
    shown: dict[str, Any] = (await person.volume("GET", f"/volumes/{volume}")).json()["volume"]
    return shown


async def doubtful(person: Person) -> set[str]:
    answer = await person.compute("GET", "/ext/databases")
    return {one["server"] for each in answer.json()["databases"] for one in each["doubtful_servers"]}


async def audited(person: Person, **asked: Any) -> dict[str, Any]:
    """The report of one audit."""
    answer = await person.compute("POST", "/ext/audits", {"audit": asked})
    assert answer.status_code < 300, answer.text
    id = answer.json()["audit"]["id"]
    while True:
        audit: dict[str, Any] = (await person.compute("GET", f"/ext/audits/{id}")).json()["audit"]
        if audit["status"] in ("done", "failed"):
            return audit
        await asyncio.sleep(0.5)


async def looked(up: UpProcess, names: Collection[str] = RELEASING) -> None:
    """Each of these reconcilers has begun a round since now."""
    url, began = f"http://127.0.0.1:{up.config.metrics.port}/metrics", time.time()
    async with httpx.AsyncClient(timeout=30) as http, asyncio.timeout(300):
        while True:
            families = text_string_to_metric_families((await http.get(url)).text)
            rounds = next(each for each in families if each.name == "moorage_round_age_seconds")
            begun = {next(iter(each.labels.values())): time.time() - each.value for each in rounds.samples}
            if all(begun[name] > began for name in names):
                return
            await asyncio.sleep(0.5)


async def test_a_cell_fails_over_after_a_live_migration(up: UpProcess, tmp_path: Path) -> None:
    """Its copy is from seconds before; nobody says so, and nobody adopts it."""
    async with Person(up.config) as admin:
        server = (await admin.active("one"))["id"]
        volume = await volume_of(admin, server)
        await marks_move(up)
        copy_of(up, "cell1", tmp_path / "replica.db")
        host = (await act(admin, server, LIVE, "ACTIVE"))["OS-EXT-SRV-ATTR:host"]
    up.end(signal.SIGKILL)
    fail_over(up, "cell1", tmp_path / "replica.db")
    up.start()
    await marks_move(up)
    await looked(up, {"host_debts"})  # all others had a round when it started
    assert guests(up) == {server: [host]}, "the only guest is kept"
    async with Person(up.config) as admin:
        assert await doubtful(admin) == {server}
        assert (await volume_now(admin, volume))["status"] == "in-use"
        refusal = await admin.compute("POST", f"/servers/{server}/action", {"os-stop": None})
        assert refusal.status_code == 409, refusal.text
        assert "left alone until an administrator has decided" in refusal.text
        found = await audited(admin)
        assert [each["kind"] for each in found["findings"] if each["repairable"]] == ["server_doubtful"]
        done = await audited(admin, kinds=["server_doubtful"], repair=True)
        assert done["repaired"] == {"server_doubtful": 1}
        assert await doubtful(admin) == set()
        shown = await admin.server(server)
        assert (shown["status"], shown["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", host)
        await act(admin, server, {"os-stop": None}, "SHUTOFF")
    assert guests(up) == {server: [host]}


async def test_a_cell_is_restored_to_before_moves_and_a_shelve(up: UpProcess) -> None:
    names = ("migrated", "live", "late", "first", "second", "resized", "shelved")
    async with Person(up.config) as admin:
        servers = {name: (await admin.active(name))["id"] for name in names}
        volumes = {name: await volume_of(admin, servers[name]) for name in ("migrated", "live", "first", "resized")}
    up.end(signal.SIGINT)
    restore = copied(up, "cell1")
    up.start()
    async with Person(up.config) as admin:
        await act(admin, servers["migrated"], {"migrate": None}, "VERIFY_RESIZE")
        await act(admin, servers["migrated"], {"confirmResize": None}, "ACTIVE")
        await act(admin, servers["live"], LIVE, "ACTIVE")
        volumes["late"] = await volume_of(admin, servers["late"])
        await admin.compute("DELETE", f"/servers/{servers['first']}/os-volume_attachments/{volumes['first']}")
        await volume_is(admin, volumes["first"], "available")
        await ended(admin, servers["first"])
        body = {"volumeAttachment": {"volumeId": volumes["first"]}}
        await admin.compute("POST", f"/servers/{servers['second']}/os-volume_attachments", body)
        await volume_is(admin, volumes["first"], "in-use")
        await act(admin, servers["resized"], {"migrate": None}, "VERIFY_RESIZE")
        await act(admin, servers["shelved"], {"shelve": None}, "SHELVED_OFFLOADED")
        before = {name: await volume_now(admin, each) for name, each in volumes.items()}
    was = guests(up)
    await marks_move(up)
    up.end(signal.SIGINT)
    restore()
    assert "older than" in refused(up)
    said = adopted(up)
    assert "7 servers are doubtful" in said, said
    up.start()
    await looked(up)
    assert guests(up) == was
    async with Person(up.config) as admin:
        assert await doubtful(admin) == set(servers.values())
        now = {name: await volume_now(admin, each) for name, each in volumes.items()}
        for name, volume in before.items():
            assert (now[name]["status"], now[name]["attachments"]) == (volume["status"], volume["attachments"])
        done = await audited(admin, kinds=["server_doubtful"], repair=True)
        assert done["repaired"]["server_doubtful"] >= 2, "those whose claim and guest are on one host"
        for name in ("migrated", "live"):
            assert [(await admin.server(servers[name]))["OS-EXT-SRV-ATTR:host"]] == was[servers[name]]
    await looked(up)
    assert guests(up) == was


@pytest.mark.parametrize("stores", [("region",), ("region", "cell1")], ids=["the region", "both"])
async def test_the_region_fails_over_in_moves_and_a_shelve(
    up: UpProcess, tmp_path: Path, stores: tuple[str, ...]
) -> None:
    """One PostgreSQL cluster may have both databases: then only hosts know better."""
    async with Person(up.config) as admin:
        admin.http.headers["OpenStack-API-Version"] = NEWEST
        servers = {name: (await admin.active(name))["id"] for name in ("live", "cold", "shelf")}
        volume = await volume_of(admin, servers["live"])
        for host in (up.config.data / "hosts").glob("host*"):
            (host / "dials.json").write_text(json.dumps({"verbs": {verb: {"delay_s": SLOW_S} for verb in SLOW}}))
        await marks_move(up)
        for name, body in (("live", LIVE), ("cold", {"migrate": None}), ("shelf", {"shelve": None})):
            answer = await admin.compute("POST", f"/servers/{servers[name]}/action", body)
            assert answer.status_code < 300, answer.text
        await until(lambda: any(len(hosts) > 1 for hosts in guests(up).values()))  # in the middle of moves
        for each in stores:
            copy_of(up, each, tmp_path / f"{each}.replica")
        await ended(admin, *servers.values())
    was = guests(up)
    assert len(was[servers["live"]]) == 1
    up.end(signal.SIGKILL)
    for each in stores:
        fail_over(up, each, tmp_path / f"{each}.replica")
    for host in (up.config.data / "hosts").glob("host*"):
        (host / "dials.json").unlink()
    up.start()
    await looked(up)
    assert guests(up)[servers["live"]] == was[servers["live"]]
    async with Person(up.config) as admin:
        assert (await volume_now(admin, volume))["status"] == "in-use"
        images = (await admin.http.get(f"{up.config.api.image.url}/v2/images")).json()["images"]
        assert ("shelf-shelved", "active") in {(each["name"], each["status"]) for each in images}
        operations = {name: await admin.operations_of(id) for name, id in servers.items()}
        states = {name: [each["status"] for each in those] for name, those in operations.items()}
        assert not any({"cleaning", "stuck"} & set(each) for each in states.values()), operations
        assert (await admin.server(servers["shelf"]))["status"] == "SHELVED_OFFLOADED", operations
        assert (await admin.server(servers["live"]))["OS-EXT-SRV-ATTR:host"] == was[servers["live"]][0]
