"""Whole cells in a cloud: disabled for servers of other cells, and the command."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_administrators_changes import keep_pictures_old
from tests.cloud.test_drain import disabled, services
from tests.cloud.test_shelve import done
from tests.helpers.resized_cloud import asked, host_of

from moorage.cli import cell as cell_command
from moorage.main.config import Hosts
from moorage.main.service_clients import admin_password
from moorage.model.ids import ServerId
from moorage.model.principal import Principal
from moorage.operations.resize import accept_resize
from moorage.operations.resize.accept_resize import ResizeWish
from moorage.operations.steps import servers as records

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore"),  # openstacksdk warns of its own next releases
]
CLOUD = {"hosts": Hosts(count=4, physical_networks=(("physnet1",),))}


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
        for cell in {str(plan.cell) for plan in found.cloud.plans}:
            reply = await found.admin.compute("PUT", f"/ext/cells/{cell}", {"cell": {"disabled": False}})
            assert reply.status_code == 200, reply.text
        for service in await services(found):
            await disabled(found, service, wanted=False)


def hosts_of(running: Running, cell: str) -> set[str]:
    return {plan.host for plan in running.cloud.plans if plan.cell == cell}


async def test_a_disabled_cell_gets_no_boots_and_its_servers_move_within_it(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, though no picture has heard of it (RULES §21)."""
    admin = running.admin
    keep_pictures_old(running, monkeypatch)
    first, second = hosts_of(running, "cell1"), hosts_of(running, "cell2")
    there = await admin.active("there", availability_zone=f"nova:{min(first)}")
    assert await asyncio.to_thread(cell_command.main, ["disable", "cell1", "--reason", "old machines"]) == 0
    found = await asyncio.gather(*(admin.active(f"s{number}") for number in range(4)))
    assert {host_of(each) for each in found} <= second
    refused = await admin.boot("named", availability_zone=f"nova:{min(first)}")
    assert (await admin.settled(refused))["status"] == "ERROR"
    output = (await admin.compute("GET", f"/ext/servers/{refused}/explain")).text
    assert "its cell cell1 is disabled by an administrator" in output
    owner = (await admin.server(refused) or {})["fault"]["message"]
    assert "the host's cell is disabled" in owner

    moved = await asked(running, there["id"], {"migrate": None}, "VERIFY_RESIZE")
    assert {host_of(moved)} == first - {min(first)}
    await asked(running, there["id"], {"confirmResize": None}, "ACTIVE", code=204)

    capsys.readouterr()
    assert await asyncio.to_thread(cell_command.main, ["list"]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("cell1")]
    assert line.split()[1:5] == ["answers", "disabled", "2", "1"]
    assert line.endswith("old machines")
    assert await asyncio.to_thread(cell_command.main, ["delete", "cell1"]) == 2
    assert "has hosts: " in capsys.readouterr().err
    assert await asyncio.to_thread(cell_command.main, ["enable", "cell1"]) == 0
    assert await asyncio.to_thread(cell_command.main, ["enable", "nowhere"]) == 2
    capsys.readouterr()
    assert await asyncio.to_thread(cell_command.main, ["list", "--json"]) == 0
    assert [each["disabled"] for each in json.loads(capsys.readouterr().out)] == [False, False]
    back = await admin.active("back", availability_zone=f"nova:{min(first)}")
    assert host_of(back) == min(first)


async def test_a_balance_plan_evens_out_cells_and_writes_nothing(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """The moves are ordinary ones: each goes where the scheduler would put it, and says what it costs."""
    admin = running.admin
    first, second = hosts_of(running, "cell1"), hosts_of(running, "cell2")
    there = [
        await admin.active(f"full-{n}", availability_zone=f"nova:{host}") for n in range(2) for host in sorted(first)
    ]
    stopped = there[0]["id"]
    assert (await admin.compute("POST", f"/servers/{stopped}/action", {"os-stop": None})).status_code == 202
    await admin.settled(stopped)
    for each in there:
        await running.wait_until_unlocked(each["id"])
    before = (await admin.compute("GET", "/ext/operations")).json()
    assert await asyncio.to_thread(cell_command.main, ["balance", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["moves"]) == 2, plan
    assert {each["server"] for each in plan["moves"]} <= {each["id"] for each in there}
    assert {(each["from_cell"], each["cell"]) for each in plan["moves"]} == {("cell1", "cell2")}
    assert {each["host"] for each in plan["moves"]} <= second
    flavor = there[0]["flavor"]
    for each in plan["moves"]:
        assert each["send_bytes"] == flavor["disk"] << 30
        assert each["guest_off"] is (each["server"] != stopped)
    used = [{row["cell"]: row["memory_used_mib"] for row in plan[when]} for when in ("before", "after")]
    ram = flavor["ram"]
    assert used == [{"cell1": 4 * ram, "cell2": 0}, {"cell1": 2 * ram, "cell2": 2 * ram}]
    uneven = [plan["unevenness"], *(each["unevenness"] for each in plan["moves"])]
    assert uneven == sorted(uneven, reverse=True)
    assert (await admin.compute("GET", "/ext/operations")).json() == before
    assert await asyncio.to_thread(cell_command.main, ["balance", "--dry-run", "--moves", "1"]) == 0
    table = capsys.readouterr().out
    assert "to send" in table
    assert table.count("cell2/host") == 1

    for each in there[1:]:  # those cannot be moved as they are
        await admin.compute("POST", f"/servers/{each['id']}/action", {"suspend": None})
        await admin.settled(each["id"])
    reply = await admin.compute("POST", "/ext/balances", {"balance": {"dry_run": True}})
    assert [each["server"] for each in reply.json()["balance"]["moves"]] == [stopped]
    assert (await admin.compute("POST", "/ext/balances", {"balance": {"dry_run": False}})).status_code == 400
    assert (await admin.compute("POST", "/ext/balances", {"balance": {}})).status_code == 400
    async with running.person("demo", "demo") as demo:
        assert (await demo.compute("POST", "/ext/balances", {"balance": {"dry_run": True}})).status_code == 403

    for each in there[1:]:
        await asked(running, each["id"], {"resume": None}, "ACTIVE")
    for each in reversed(plan["moves"]):  # in whatever order, and before any of them is confirmed
        await moved_there(running, each["server"], each["host"])
    back, stays = plan["moves"]
    await asked(running, back["server"], {"revertResize": None}, "ACTIVE" if back["guest_off"] else "SHUTOFF")
    await asked(running, stays["server"], {"confirmResize": None}, "ACTIVE" if stays["guest_off"] else "SHUTOFF", 204)


async def moved_there(running: Running, server: str, host: str) -> None:
    """As who has the permission has it moved to a host of another cell."""
    context = running.cloud.region.context
    now = (await records.find(context, ServerId(server))).server
    assert now is not None
    principal = Principal(now.user, project=now.project)
    await accept_resize.begin(context, principal, now, ResizeWish(host=host, cross_cell=True), check=lambda _: None)
    seen = await running.admin.settled(server)
    await running.wait_until_unlocked(server)
    assert (seen["status"], host_of(seen)) == ("VERIFY_RESIZE", host)


async def test_a_cell_is_left_by_its_offloaded_servers(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan says where everybody would go; records go to the other cell, where their servers are unshelved."""
    admin = running.admin
    first, second = hosts_of(running, "cell1"), hosts_of(running, "cell2")
    here = [await admin.active(f"here-{host}", availability_zone=f"nova:{host}") for host in sorted(first)]
    away = (await admin.active("away", availability_zone=f"nova:{min(first)}"))["id"]
    await done(running, away, {"shelve": None}, "SHELVED_OFFLOADED")
    await running.wait_until_unlocked(away)

    assert await asyncio.to_thread(cell_command.main, ["drain", "cell1", "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["status"] == "planned"
    rows = {row["server"]: row for each in plan["hosts"] for row in each["servers"]}
    assert {row["planned"] for row in rows.values()} <= second
    assert set(rows) == {each["id"] for each in here}
    assert [(row["server"], row["cell"]) for row in plan["offloaded"]] == [(away, "cell2")]
    listed = {row["name"]: row for row in (await admin.compute("GET", "/ext/cells")).json()["cells"]}
    assert not listed["cell1"]["disabled"]
    for each in here:
        await admin.gone(each["id"])

    assert await asyncio.to_thread(cell_command.main, ["drain", "cell1"]) == 0
    assert "drain of cell1: done" in capsys.readouterr().out
    assert await asyncio.to_thread(cell_command.main, ["show-drain", "cell1"]) == 0
    assert await asyncio.to_thread(cell_command.main, ["cancel-drain", "cell1"]) == 2
    assert await asyncio.to_thread(cell_command.main, ["drain", "nowhere"]) == 2
    listed = {row["name"]: row for row in (await admin.compute("GET", "/ext/cells")).json()["cells"]}
    assert [(each, listed[each]["disabled"], listed[each]["servers"]) for each in ("cell1", "cell2")] == [
        ("cell1", True, 0),
        ("cell2", False, 1),
    ]
    back = await done(running, away, {"unshelve": None}, "ACTIVE")
    assert host_of(back) in second
    async with running.person("demo", "demo") as demo:
        assert (await demo.compute("GET", "/ext/cell-drains")).status_code == 403
        body = {"cell_drain": {"cell": "cell1", "dry_run": True}}
        assert (await demo.compute("POST", "/ext/cell-drains", body)).status_code == 403


async def test_a_cell_is_emptied(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """Running servers, stopped ones and offloaded ones; nobody who has no place is forgotten, and nobody stays in the cell."""
    admin = running.admin
    first, second = hosts_of(running, "cell1"), hosts_of(running, "cell2")
    here = [
        (await admin.active(f"d{n}", availability_zone=f"nova:{host}"))["id"]
        for n in range(2)
        for host in sorted(first)
    ]
    off, pinned = here[0], here[1]
    await asked(running, off, {"os-stop": None}, "SHUTOFF")
    away = (await admin.active("away", availability_zone=f"nova:{min(first)}"))["id"]
    await done(running, away, {"shelve": None}, "SHELVED_OFFLOADED")
    await asked(running, pinned, {"suspend": None}, "SUSPENDED")
    addresses = {each: (await admin.server(each) or {})["addresses"] for each in (*here, away)}

    assert await asyncio.to_thread(cell_command.main, ["drain", "cell1"]) == 2
    refused = capsys.readouterr().err
    assert "1 servers of cell cell1 cannot be moved" in refused
    assert "it is suspended" in refused
    assert await asyncio.to_thread(cell_command.main, ["drain", "cell1", "--plan"]) == 1
    capsys.readouterr()
    assert await asyncio.to_thread(cell_command.main, ["drain", "cell1", "--partial", "--servers", "4"]) == 1
    assert "drain of cell1: incomplete 1 servers stay" in capsys.readouterr().out
    assert host_of(await admin.settled(pinned)) in first
    await asked(running, pinned, {"resume": None}, "ACTIVE")

    assert await asyncio.to_thread(cell_command.main, ["drain", "cell1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["counts"]["left"]) == ("done", 0), answer
    for each in here:
        seen = await admin.settled(each)
        assert (host_of(seen) in second, seen["status"]) == (True, "SHUTOFF" if each == off else "ACTIVE")
        assert seen["addresses"] == addresses[each]
    back = await done(running, away, {"unshelve": None}, "ACTIVE")
    assert (host_of(back) in second, back["addresses"]) == (True, addresses[away])
    listed = {row["name"]: row for row in (await admin.compute("GET", "/ext/cells")).json()["cells"]}
    assert (listed["cell1"]["servers"], listed["cell2"]["servers"]) == (0, 5)
