"""Waiting for a host: permissions, time limit, number, and what users see."""

import asyncio
import json
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_waiting import WAIT, asleep, boots, flavor, service, sleep

from moorage.cli import explain as explain_command
from moorage.cli import waiting as waiting_command
from moorage.main.config import Hosts, WaitingConfig
from moorage.main.observability import database_reads
from moorage.main.observability.process_metrics import of_waiting
from moorage.main.service_clients import admin_password
from moorage.scheduler.lacks import CAUSES
from moorage_testing.waiting import PATIENCE_S, until

pytestmark = pytest.mark.filterwarnings("ignore")  # openstacksdk warns of its own next releases
HINT = "moorage:wait"


async def full_cloud(running: Running) -> None:
    """No host takes servers."""
    await service(running, "host1", status="disabled")


async def test_limits(start: Start) -> None:
    """Values that are none, too long, too many of a project: refused with a sentence; and ERROR with the last reason when the time is over."""
    limits = WaitingConfig(time_s=600.0, time_max_s=900.0, project_servers_max=2)
    async with start(hosts=Hosts(count=1), waiting=limits) as running:
        admin = running.admin
        await full_cloud(running)
        for value in ("perhaps", 0, -1, 1.5, [], {}, None, "", "60 s"):
            reply = await admin.ask_boot("bad", networks="none", hints={HINT: value})
            assert reply.status_code == 400, (value, reply.text)
            assert HINT in reply.text
        reply = await admin.ask_boot("too long", networks="none", hints={HINT: 901})
        assert (reply.status_code, "900 s" in reply.text) == (400, True), reply.text

        (short,) = await boots(running, "short", hints={HINT: 1}, networks="none")
        ended = await admin.settled(short)
        assert ended["status"] == "ERROR"
        assert ended["fault"]["message"].startswith("No valid host was found. 1 host: ")
        assert ended["fault"]["message"].endswith("(after it waited for 1 s)")
        waker = running.cloud.region.waker
        assert waker is not None
        assert waker.woken["room"] == 0

        servers = await boots(running, "w", 2, hints={HINT: "true"}, networks="none")
        await sleep(running, *servers)
        reply = await admin.ask_boot("one more", networks="none", hints=WAIT)
        assert (reply.status_code, "2 of the project wait already" in reply.text) == (403, True), reply.text
        plain = await admin.settled(await admin.boot("plain", networks="none"))
        assert plain["status"] == "ERROR"
        await admin.gone(servers[0])
        refused = 0
        reply = await admin.ask_boot("several", networks="none", hints=WAIT, min_count=3, max_count=3)
        assert reply.status_code == 202, reply.text
        async with asyncio.timeout(PATIENCE_S):
            while refused < 2:  # accepted before the limit was reached
                listed = (await admin.compute("GET", "/servers/detail", name="several")).json()["servers"]
                faults = [each["fault"]["message"] for each in listed if each["status"] == "ERROR"]
                refused = sum("It does not wait: 2 of the project wait already." in each for each in faults)
                await asyncio.sleep(0.05)
        assert len(await asleep(running)) == 2
        for each in (await admin.compute("GET", "/servers")).json()["servers"]:
            await admin.gone(each["id"])


async def test_a_flavor_sets_the_waiting_time_and_a_hint_changes_it(start: Start) -> None:
    async with start(hosts=Hosts(count=1)) as running:
        admin = running.admin
        await full_cloud(running)
        await flavor(running, "patient", ram=64, moorage__wait="true")
        body = {"extra_specs": {HINT: "for ever"}}
        reply = await admin.compute("POST", "/flavors/patient/os-extra_specs", body)
        assert (reply.status_code, "true, false, or a limit" in reply.text) == (400, True), reply.text
        (waits,) = await boots(running, "w", hints={}, flavor="patient", networks="none")
        await sleep(running, waits)
        (not_this_one,) = await boots(running, "n", hints={HINT: False}, flavor="patient", networks="none")
        assert (await admin.settled(not_this_one))["status"] == "ERROR"
        for each in (waits, not_this_one):
            await admin.gone(each)


async def test_policy_disables_waiting(start: Start) -> None:
    async with start(policy={"moorage:servers:wait": "!"}, hosts=Hosts(count=1)) as running:
        reply = await running.admin.ask_boot("w", networks="none", hints=WAIT)
        assert (reply.status_code, "moorage:servers:wait" in reply.text) == (403, True), reply.text
        found = await running.admin.active("w", networks="none")
        await running.admin.gone(found["id"])
    async with start(hosts=Hosts(count=1), waiting=WaitingConfig(servers_max=0)) as running:
        assert (await running.admin.ask_boot("w", networks="none", hints=WAIT)).status_code == 403


async def test_waiting_servers_are_shown(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start(hosts=Hosts(count=1)) as running:
        admin = running.admin
        await full_cloud(running)
        async with running.person("demo", "demo") as demo:
            ids = []
            for person in (admin, demo):
                reply = await person.ask_boot("w", networks="none", hints=WAIT)
                ids.append(reply.json()["server"]["id"])
            await sleep(running, *ids)
            mine = (await demo.compute("GET", "/ext/waiting")).json()
            assert [each["server"] for each in mine["waiting"]] == [ids[1]]
            assert mine["causes"]["hosts"]["servers"] == mine["servers"] == 1
            assert "host1" not in json.dumps(mine)
            for others in ({"all_projects": "1"}, {"project_id": "0" * 32}):
                assert (await demo.compute("GET", "/ext/waiting", **others)).status_code == 403
            explained = (await demo.compute("GET", f"/ext/servers/{ids[1]}/explain")).json()["explain"]
            assert explained["waits"]["causes"] == ["hosts"]
            assert explained["summary"].startswith("waiting for a host: 1 host: ")
            assert "host1" not in json.dumps(explained)
        every: Any = (await admin.compute("GET", "/ext/waiting", all_projects="1")).json()
        assert [each["server"] for each in every["waiting"]] == ids
        page = (await admin.compute("GET", "/ext/waiting", all_projects="1", limit="1")).json()["waiting"]
        rest = await admin.compute("GET", "/ext/waiting", all_projects="1", marker=page[0]["operation"])
        assert [each["server"] for each in (*page, *rest.json()["waiting"])] == ids
        assert (await admin.compute("GET", "/ext/waiting", cause="addresses")).json()["waiting"] == []
        assert (await admin.compute("GET", "/ext/waiting", cause="luck")).status_code == 400

        region = running.cloud.region
        seen = await region.databases.region.read(
            lambda tx: database_reads._read_queues(tx, region=True, conducts=True, outboxes=False)
        )
        samples = of_waiting(seen.waiting, 0)
        assert dict(samples["moorage_waiting_servers"]) == {(each,): 2 * (each == "hosts") for each in CAUSES}

        for name, value in {
            "OS_AUTH_URL": f"{running.config.api.identity.url}/v3",
            "OS_USERNAME": "admin",
            "OS_PASSWORD": admin_password(running.config),
            "OS_PROJECT_NAME": "admin",
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
            "OS_IDENTITY_API_VERSION": "3",
            "OS_REGION_NAME": "RegionOne",
        }.items():
            monkeypatch.setenv(name, value)
        for command, words in ((waiting_command.main, ["list", "--all-projects"]), (explain_command.main, [ids[0]])):
            assert await asyncio.to_thread(command, words) == 0
        output = capsys.readouterr().out
        assert "2 servers wait" in output
        assert "  2 for hosts, the first since " in output
        assert all(each in output for each in ids)
        assert "waits for hosts since " in output
        conductor = region.conductor
        assert conductor is not None
        await until(lambda: not conductor.executing)
        for each in ids:
            await admin.gone(each)
