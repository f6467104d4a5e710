"""Cells as a whole, in a whole cloud: closed to servers from elsewhere, and the command."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from conftest import Running, Shared
from test_administrators_changes import keep_pictures_old
from test_resize import asked, host_of

from moorage.cli import cell as cell_command
from moorage.main.config import Hosts
from moorage.main.embedded import admin_password

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


def hosts_of(running: Running, cell: str) -> set[str]:
    return {plan.host for plan in running.cloud.plans if plan.cell == cell}


async def test_no_boot_lands_in_a_disabled_cell_and_its_own_servers_move_about_in_it(
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
    told = (await admin.compute("GET", f"/ext/servers/{refused}/explain")).text
    assert "its cell cell1 is disabled by an administrator" in told
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
