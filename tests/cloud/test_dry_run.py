"""Dry runs in a whole cloud: they predict what happens, write nothing and call nothing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.cloud.conftest import Running, Shared
from tests.helpers.resized_cloud import asked, host_of

from moorage.cli import dry_run
from moorage.clients.http import ServiceClient
from moorage.main.config import Hosts
from moorage.main.seed_data import ROUTED
from moorage.main.service_clients import admin_password
from moorage.operations.dry_run.planned_calls import CALLS
from moorage.operations.registry import SAGAS
from moorage.sql import Tx
from moorage.store.cell.tables import cell_metadata
from moorage.store.region.tables import region_metadata

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore"),  # openstacksdk warns of its own next releases
]
CLOUD = {"hosts": Hosts(count=6)}
READS = {"GET", "HEAD"}
STORIES = ("servers", "operations", "allocations", "usages", "migrations", "actions", "inbox", "volume_intents")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        for name, value in {
            "OS_AUTH_URL": f"{found.config.api.identity.url}/v3",
            "OS_USERNAME": "admin",
            "OS_PASSWORD": admin_password(found.config),
            "OS_PROJECT_NAME": "admin",
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("OS_CLOUD", raising=False)
        yield found


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods and paths of every call to a service that is no reading."""
    found: list[str] = []
    real = ServiceClient._call

    async def spied(self: ServiceClient, request: Any, *more: Any) -> Any:
        if request.method not in READS:
            found.append(f"{request.method} {request.path}")
        return await real(self, request, *more)

    monkeypatch.setattr(ServiceClient, "_call", spied)
    return found


def _rows(tx: Tx, everything: Any) -> list[str]:
    return sorted(map(repr, tx.rows(everything)))


async def rows_at_rest(running: Running) -> dict[str, list[str]]:
    """The same, when what came before has ended: a server is shown ACTIVE before its boot ends and its ports are told of."""
    await running.idle()
    deadline, found = time.monotonic() + 180.0, await rows(running)
    while True:
        await asyncio.sleep(0.3)
        now = await rows(running)
        if now == found:
            return found
        assert time.monotonic() < deadline
        found = now


async def rows(running: Running) -> dict[str, list[str]]:
    """All that is stored of servers, claims and quota, everywhere."""
    databases = running.cloud.region.databases
    found: dict[str, list[str]] = {}
    for metadata, name, database in (
        (region_metadata, "region", databases.region),
        *((cell_metadata, str(cell), database) for cell, database in databases.cells.items()),
    ):
        for table in metadata.sorted_tables:
            if any(word in table.name for word in STORIES):
                everything = sa.select(table)
                read = await database.read(partial(_rows, everything=everything))
                found[f"{name}.{table.name}"] = read
    return found


async def tried(running: Running, path: str, body: Any, status: int = 200) -> dict[str, Any]:
    reply = await running.admin.compute("POST", f"/ext/dry-run{path}", body)
    assert reply.status_code == status, reply.text
    return dict(reply.json()["dry_run"]["servers"][0]) if status == 200 else dict(reply.json())


def test_every_step_of_a_dry_run_names_its_calls() -> None:
    for saga, calls in CALLS.items():
        assert set(calls) == set(SAGAS[saga].at), saga


async def test_moves_go_where_the_dry_run_predicted_and_it_wrote_nothing(running: Running, called: list[str]) -> None:
    admin = running.admin
    server = await admin.active("a")
    id, before = server["id"], await rows_at_rest(running)
    assert any(before.values())
    called.clear()
    running.told.clear()

    told = await tried(running, f"/servers/{id}/action", {"migrate": None})
    body = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    live = await tried(running, f"/servers/{id}/action", body)
    assert (live["operation"], live["hosts"]) == ("live_migrate", told["hosts"])
    bigger = await admin.id_of("flavor", "m1.tiny")
    resize = await tried(running, f"/servers/{id}/action", {"resize": {"flavorRef": bigger}})
    none = await tried(running, f"/servers/{id}/action", {"migrate": {"host": host_of(server)}}, 400)
    assert none["badRequest"]["message"] == "Cannot migrate to the host where the server exists."
    await tried(running, f"/servers/{id}/action", {"unshelve": None}, 409)
    assert (called, running.told, await rows(running)) == ([], [], before)

    assert (told["operation"], told["would_succeed"]) == ("resize", True)
    assert told["willing"] == len(told["hosts"]) == 2, "the other hosts of its cell"
    assert host_of(server) not in {each["host"] for each in told["hosts"]}
    assert {"service": "network", "call": "POST /v2.0/ports/{port}/bindings", "times": 1} in [
        call for step in told["steps"] for call in step["calls"]
    ]
    assert resize["hosts"][0]["host"] == told["hosts"][0]["host"]
    there = await asked(running, id, {"migrate": None}, "VERIFY_RESIZE")
    assert host_of(there) == told["hosts"][0]["host"]
    await asked(running, id, {"confirmResize": None}, "ACTIVE", 204)

    await asked(running, id, {"shelve": None}, "SHELVED_OFFLOADED")
    told = await tried(running, f"/servers/{id}/action", {"unshelve": None})
    back = await asked(running, id, {"unshelve": None}, "ACTIVE")
    assert host_of(back) == told["hosts"][0]["host"]


async def test_a_boot_is_placed_on_the_first_host_of_the_dry_run(running: Running, called: list[str]) -> None:
    admin = running.admin
    body: dict[str, dict[str, Any]] = {
        "server": {
            "name": "b",
            "imageRef": await admin.id_of("image", "tiny"),
            "flavorRef": await admin.id_of("flavor", "m1.nano"),
            "networks": [{"uuid": await admin.id_of("network", ROUTED)}],
        }
    }
    taken = [await admin.active(f"t{n}", networks=ROUTED) for n in range(5)]
    before = await rows_at_rest(running)
    called.clear()
    told = await tried(running, "/servers", body)
    assert (called, await rows(running)) == ([], before)
    assert told["would_succeed"]
    emptiest = {each["host"] for each in told["hosts"]} - {host_of(each) for each in taken}
    assert told["hosts"][0]["host"] in emptiest
    assert len(emptiest) == 1, "one host has no server, so no dice are thrown"
    assert told["hosts"][0]["segments"]
    real = await admin.active("b", networks=ROUTED)
    assert host_of(real) == told["hosts"][0]["host"]

    body["server"] |= {"min_count": 4, "max_count": 4}
    reply = await admin.compute("POST", "/ext/dry-run/servers", body)
    servers = reply.json()["dry_run"]["servers"]
    assert [each["would_succeed"] for each in servers] == [False] * 4, "two addresses are left, and none for all four"
    assert "no free address" in servers[0]["fault"]


async def test_owners_see_no_host_names_and_need_the_same_permissions(running: Running) -> None:
    async with running.person("demo", "demo") as demo:
        server = await demo.active("c")
        reply = await demo.compute("POST", f"/ext/dry-run/servers/{server['id']}/action", {"migrate": None})
        assert reply.status_code == 403
        flavor = await demo.id_of("flavor", "m1.micro")
        reply = await demo.compute(
            "POST", f"/ext/dry-run/servers/{server['id']}/action", {"resize": {"flavorRef": flavor}}
        )
        assert reply.status_code == 200
        (told,) = reply.json()["dry_run"]["servers"]
        assert (told["would_succeed"], told["causes"]) == (True, [])
        assert not told.keys() & {"willing", "considered", "refused", "hosts"}
        assert all(f"host{number}" not in reply.text for number in range(1, 7))


async def test_owners_see_yes_or_no_and_no_counts(running: Running) -> None:
    """A dry run costs nothing: with counts, or with causes of one host, it would show what others do there."""
    async with running.person("demo", "demo") as demo:
        own = await demo.active("mine", networks="none")
        huge = {"name": "huge", "vcpus": 200, "ram": 1, "disk": 1}
        made = await running.admin.compute("POST", "/flavors", {"flavor": huge})
        body: dict[str, Any] = {"name": "x", "flavorRef": made.json()["flavor"]["id"], "networks": "none"}
        body["imageRef"] = own["image"]["id"]
        told = []
        for hints in ({}, {"same_host": own["id"]}, {"different_host": [own["id"]]}):
            wanted = {"server": body, "os:scheduler_hints": hints}
            reply = await demo.compute("POST", "/ext/dry-run/servers", wanted)
            assert reply.status_code == 200, reply.text
            (each,) = reply.json()["dry_run"]["servers"]
            assert not each["would_succeed"]
            assert not any(letter.isdigit() for letter in each["fault"] + "".join(each["causes"]))
            told.append((each["fault"], each["causes"]))
        assert told[0][1], "with causes"
        assert told[0][0] == "No valid host was found. " + "; ".join(told[0][1])
        assert told[1] == told[2] == ("No valid host was found.", []), "one word of hosts that its servers choose"
        whole = (await running.admin.compute("POST", "/ext/dry-run/servers", {"server": body})).json()["dry_run"]
        assert whole["servers"][0]["considered"] > 0
        await demo.gone(own["id"])


async def test_dry_runs_of_a_project_are_counted(running: Running) -> None:
    async with running.person("demo", "demo") as demo:
        body = {"server": {"name": "x", "flavorRef": "none", "imageRef": "none", "networks": "none"}}
        answers = [(await demo.compute("POST", "/ext/dry-run/servers", body)) for _ in range(70)]
        refused = [each for each in answers if each.status_code == 429]
        assert refused
        assert answers[0].status_code == 400
        assert int(refused[0].headers["retry-after"]) >= 1
        assert "too often" in refused[0].text
    answers = [(await running.admin.compute("POST", "/ext/dry-run/servers", body)) for _ in range(70)]
    assert not [each for each in answers if each.status_code == 429], "an administrator sees all of it elsewhere"


async def test_an_evacuation_is_tried_when_its_host_is_fenced(running: Running, called: list[str]) -> None:
    server = await running.admin.active("e")
    body = {"evacuate": {}}
    await tried(running, f"/servers/{server['id']}/action", body, 400)
    services = (await running.admin.compute("GET", "/os-services", host=host_of(server))).json()["services"]
    path = f"/os-services/{services[0]['id']}"
    assert (await running.admin.compute("PUT", path, {"forced_down": True})).status_code == 200
    before = await rows_at_rest(running)
    called.clear()
    told = await tried(running, f"/servers/{server['id']}/action", body)
    assert (called, await rows(running)) == ([], before)
    assert (told["operation"], told["would_succeed"]) == ("evacuate", True)
    assert host_of(server) not in {each["host"] for each in told["hosts"]}
    assert (await running.admin.compute("PUT", path, {"forced_down": False})).status_code == 200


async def test_the_command(running: Running, capsys: pytest.CaptureFixture[str]) -> None:

    server = (await running.admin.active("d"))["id"]
    assert await asyncio.to_thread(dry_run.main, ["migrate", "d", "--calls"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("migrate of d would be done\n")
    assert "send_guest" in out
    boot = ["boot", "--flavor", "m1.nano", "--image", "tiny", "--network", "private", "--json"]
    assert await asyncio.to_thread(dry_run.main, boot) == 0
    assert json.loads(capsys.readouterr().out)["servers"][0]["operation"] == "boot"
    assert await asyncio.to_thread(dry_run.main, ["unshelve", server]) == 2
    assert await asyncio.to_thread(dry_run.main, ["resize", server, "--flavor", "m1.xlarge"]) in {0, 1}
    capsys.readouterr()
