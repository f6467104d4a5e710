"""A host is drained in a whole cloud: the plan, the moves, the servers that stay, and the command."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_shelve import guests
from tests.helpers.guaranteed_ports import KBPS, network_on, policy_of
from tests.helpers.resized_cloud import asked, host_of

from moorage.cli import host as host_command
from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.main.service_clients import admin_password

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore"),  # openstacksdk warns of its own next releases
]
CLOUD = {"hosts": Hosts(count=6, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS)}
PATIENCE_S = 180.0
HOST = "host1"


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
        for each in await services(found):
            await disabled(found, each, wanted=False)


async def services(running: Running) -> list[dict[str, Any]]:
    reply = await running.admin.compute("GET", "/os-services", binary="nova-compute")
    return list(reply.json()["services"])


async def disabled(running: Running, service: dict[str, Any], *, wanted: bool) -> None:
    status = "disabled" if wanted else "enabled"
    if service["status"] != status:
        reply = await running.admin.compute("PUT", f"/os-services/{service['id']}", {"status": status})
        assert reply.status_code == 200, reply.text


async def on_host(running: Running, name: str, **more: Any) -> str:
    return str((await running.admin.active(name, availability_zone=f"nova:{HOST}", **more))["id"])


async def drain(running: Running, status: int = 202, **wanted: Any) -> dict[str, Any]:
    reply = await running.admin.compute("POST", "/ext/drains", {"drain": {"host": HOST, **wanted}})
    assert reply.status_code == status, reply.text
    return dict(reply.json()["drain"] if status < 400 else next(iter(reply.json().values())))


async def shown(running: Running, id: str) -> dict[str, Any]:
    return dict((await running.admin.compute("GET", f"/ext/drains/{id}")).json()["drain"])


async def ended(running: Running, id: str, concurrency: int = 0) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        reply = await running.admin.compute("GET", f"/ext/drains/{id}")
        now: dict[str, Any] = reply.json()["drain"]
        assert not concurrency or now["counts"]["moving"] + now["counts"]["confirming"] <= concurrency, now
        if now["ended_at"] is not None:
            return now
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.05)


async def test_every_server_is_moved_and_the_host_gets_no_new_one(running: Running) -> None:
    admin = running.admin
    servers = [await on_host(running, f"s{n}") for n in range(3)]
    await asked(running, servers[1], {"os-stop": None}, "SHUTOFF")
    paused = await on_host(running, "paused")
    await asked(running, paused, {"pause": None}, "PAUSED")

    plan = await drain(running, 200, dry_run=True)
    assert (plan["id"], plan["status"], plan["counts"]["waiting"]) == (None, "planned", 4)
    assert all(each["planned"] not in (None, HOST) for each in plan["servers"]), plan
    assert sorted(each["way"] for each in plan["servers"]) == ["cold", "live", "live", "live"]
    assert {each["status"] for each in await services(running)} == {"enabled"}

    begun = await drain(running, concurrency=1)
    again = await drain(running, 409)
    assert begun["id"] in again["message"]
    done = await ended(running, begun["id"], concurrency=1)
    assert (done["status"], done["counts"]["done"]) == ("done", 4), done
    assert [each["server"] for each in done["servers"]] == [each["server"] for each in plan["servers"]]
    for each in (*servers, paused):
        seen = await admin.server(each)
        assert seen is not None
        assert host_of(seen) != HOST
        assert seen["status"] == {servers[1]: "SHUTOFF", paused: "PAUSED"}.get(each, "ACTIVE")
        assert guests(running, each) == [host_of(seen)]
    (service,) = [each for each in await services(running) if each["host"] == HOST]
    assert (service["status"], service["disabled_reason"]) == ("disabled", f"drain {done['id']}")
    reply = await admin.compute("POST", f"/ext/drains/{done['id']}/action", {"cancel": None})
    assert reply.status_code == 409


async def test_servers_without_another_host_are_named_in_the_plan(running: Running) -> None:
    """One is suspended; of two with guarantees of most of a card, only one has another place."""
    asleep = await on_host(running, "asleep")
    await asked(running, asleep, {"suspend": None}, "SUSPENDED")
    cell = [each["host"] for each in await services(running) if each["host"] in await neighbours(running)]
    for each in await services(running):
        if each["host"] in cell[1:]:
            await disabled(running, each, wanted=True)
    network = await network_on(running.admin, "physnet1", qos_policy_id=await policy_of(running.admin, KBPS * 4 // 10))
    wide = [await on_host(running, f"wide{n}", networks=[{"uuid": network}]) for n in range(2)]
    filler = await running.admin.active("filler", networks=[{"uuid": network}], availability_zone=f"nova:{cell[0]}")

    refused = (await drain(running, 409))["message"]
    assert refused.startswith("2 servers of host host1 cannot be moved"), refused
    assert "it is suspended" in refused
    assert "guaranteed bandwidth" in refused
    begun = await drain(running, partial=True, concurrency=4)
    done = await ended(running, begun["id"])
    assert (done["status"], done["counts"]["left"], done["counts"]["done"]) == ("incomplete", 2, 1), done
    there = [host_of(seen) for each in wide if (seen := await running.admin.server(each)) is not None]
    assert sorted(there) == sorted([HOST, cell[0]])
    for each in (asleep, *wide, filler["id"]):
        await running.admin.gone(each)


async def neighbours(running: Running) -> set[str]:
    """The other hosts of its cell."""
    cell = next(plan.cell for plan in running.cloud.plans if plan.host == HOST)
    return {plan.host for plan in running.cloud.plans if plan.cell == cell} - {HOST}


async def test_half_of_a_fleet_is_emptied_while_servers_are_booted(running: Running) -> None:
    """Plans know of one another, and every boot finds a host."""
    admin, cells = running.admin, defaultdict[str, list[str]](list)
    for plan in running.cloud.plans:
        cells[plan.cell].append(plan.host)
    first, second = (sorted(each) for each in cells.values())
    halves = [*first[:2], second[0]]
    servers = [await admin.active(f"l{n}", availability_zone=f"nova:{host}") for host in halves for n in range(2)]
    boots = [asyncio.create_task(admin.active(f"boot{n}")) for n in range(8)]
    begun = [await drain(running, host=host) for host in halves]
    for place, told in enumerate(begun):
        planned = {each["planned"] for each in told["servers"]}
        assert not planned & set(halves[: place + 1]), (halves, told)
    done = [await ended(running, each["id"]) for each in begun]
    assert [each["status"] for each in done] == ["done"] * 3, done
    for each in await asyncio.gather(*boots):
        assert each["status"] == "ACTIVE"
    hosts = [host_of(seen) for each in servers if (seen := await admin.server(each["id"])) is not None]
    assert len(hosts) == len(servers)
    assert not set(hosts) & set(halves)


async def test_a_drain_can_be_cancelled_and_failed_moves_are_retried(running: Running) -> None:
    for each in sorted(await neighbours(running)):
        running.dial(each, take_guest=VerbDial(fail_times=1))
    servers = [await on_host(running, f"c{n}") for n in range(3)]
    sent = running.delay_verb("send_guest", {HOST})
    begun = await drain(running, concurrency=1, live=False)
    deadline = time.monotonic() + PATIENCE_S
    while (await running.admin.compute("GET", f"/ext/drains/{begun['id']}")).json()["drain"]["counts"]["moving"] == 0:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    for service in await services(running):
        await disabled(running, service, wanted=False)
    late = await on_host(running, "late")  # an administrator insists
    deadline = time.monotonic() + PATIENCE_S
    while late not in {each["server"] for each in (await shown(running, begun["id"]))["servers"]}:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    reply = await running.admin.compute("POST", f"/ext/drains/{begun['id']}/action", {"cancel": None})
    assert reply.status_code == 202
    sent.set()
    done = await ended(running, begun["id"])
    assert done["status"] == "cancelled"
    assert done["counts"]["waiting"] >= 1
    for each in (*servers, late):
        await running.admin.settled(each)


async def test_the_command(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    server = await on_host(running, "d")
    assert await asyncio.to_thread(host_command.main, ["drain", HOST, "--plan"]) == 0
    assert "waiting" in capsys.readouterr().out
    assert await asyncio.to_thread(host_command.main, ["drain", HOST, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["servers"][0]["server"]) == ("done", server)
    assert await asyncio.to_thread(host_command.main, ["show-drain", HOST]) == 0
    assert f"drain of {HOST}: done" in capsys.readouterr().out
    assert await asyncio.to_thread(host_command.main, ["cancel-drain", HOST]) == 2
    assert await asyncio.to_thread(host_command.main, ["drain", "nowhere"]) == 2
    capsys.readouterr()
    assert host_command.bar(answer) == f"[{'#' * host_command.BAR_CHARACTERS}] 1/1  done"
    async with running.person("demo", "demo") as demo:
        assert (await demo.compute("GET", "/ext/drains")).status_code == 403
        assert (await demo.compute("POST", "/ext/drains", {"drain": {"host": HOST}})).status_code == 403
