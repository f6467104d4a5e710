"""The audit in a whole cloud, by its commands: nothing is found after normal work, planted leaks are found and repaired, and servers that are created and deleted cause no alarm."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.cloud.conftest import Running, Shared

from moorage.cli import audit, heal_allocations, status
from moorage.main.config import Hosts
from moorage.main.service_clients import admin_password
from moorage.model.network import mint_mac
from moorage.store.region.placement.tables import allocations

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore"),  # openstacksdk warns of its own next releases
]
CLOUD = {"hosts": Hosts(count=2)}
PATIENCE_S = 180.0


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


async def looked(running: Running, **asked: Any) -> dict[str, Any]:
    """An audit, as the commands ask for one."""
    reply = await running.admin.compute("POST", "/ext/audits", {"audit": asked})
    assert reply.status_code == 202, reply.text
    deadline = time.monotonic() + PATIENCE_S
    while True:
        reply = await running.admin.compute("GET", f"/ext/audits/{reply.json()['audit']['id']}")
        answer: dict[str, Any] = reply.json()["audit"]
        if answer["ended_at"] is not None:
            return answer
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.1)


async def test_an_audit_finds_nothing_during_and_after_normal_work(running: Running) -> None:
    servers = [await running.admin.active(f"a{number}") for number in range(3)]
    first, second, third = [each["id"] for each in servers]
    for server, action in ((first, "os-stop"), (second, "shelve")):
        reply = await running.admin.compute("POST", f"/servers/{server}/action", {action: None})
        assert reply.status_code == 202
    await running.admin.delete(third)
    during = await looked(running)
    assert during["findings"] == []
    assert during["status"] == "done"
    for each in (first, second):
        await running.admin.settled(each)
    told = await looked(running)
    assert (told["findings"], told["not_looked_at"]) == ([], {})
    assert told["looked_at"]["hosts"] == 2
    assert told["looked_at"]["ports"] >= 2


async def test_the_commands_find_and_repair_a_lost_claim(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    server = (await running.admin.active("a"))["id"]
    lost = sa.delete(allocations).where(allocations.c.consumer == server)
    await running.cloud.region.databases.region.write(lambda tx: tx.run(lost))
    assert await asyncio.to_thread(audit.main, ["--kind", "allocation_missing", "--json"]) == audit.FOUND
    answer = json.loads(capsys.readouterr().out)
    await asyncio.to_thread(status.main, [])
    assert "found 1 that are not repaired" in capsys.readouterr().out
    assert [each["server"] for each in answer["findings"]] == [server]
    heal = heal_allocations.main
    assert await asyncio.to_thread(heal, ["--server", server, "--dry-run"]) == heal_allocations.NOTHING
    assert "Would heal allocation_missing" in capsys.readouterr().out
    assert await asyncio.to_thread(heal, []) == heal_allocations.HEALED
    assert "1 found, 1 healed" in capsys.readouterr().out
    assert await asyncio.to_thread(heal, []) == heal_allocations.NOTHING
    capsys.readouterr()
    mended = await looked(running, kinds=["usage_drifted"], repair=True)  # the statement above took no counter along
    assert mended["left"] == {}
    assert await asyncio.to_thread(audit.main, []) == audit.CLEAN
    assert "nothing found" in capsys.readouterr().out


async def test_a_left_port_is_found_and_deleted_with_a_journal(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    server = (await running.admin.active("a"))["id"]
    network = await running.admin.id_of("network", "private")
    late = {
        "network_id": network,
        "mac_address": mint_mac(server, 40),
        "device_id": server,
        "device_owner": "compute:nova",
    }
    reply = await running.admin.network("POST", "/ports", {"port": late})
    assert reply.status_code == 201, reply.text
    port = reply.json()["port"]["id"]
    assert await asyncio.to_thread(audit.main, ["--repair"]) == audit.FOUND
    output = capsys.readouterr().out
    assert f"port_orphaned {port}" in output
    assert "1 deleted or released" in output
    assert (await running.admin.network("GET", f"/ports/{port}")).status_code == 404
    await asyncio.to_thread(status.main, [])
    assert "the last audit" not in capsys.readouterr().out, "it was mended"
    assert await asyncio.to_thread(audit.main, ["--kind", "nonsense"]) == audit.NOT_LOOKED
    assert "is not a kind" in capsys.readouterr().err


async def test_an_audit_is_the_administrators(running: Running) -> None:
    async with running.person("demo", "demo") as demo:
        assert (await demo.compute("GET", "/ext/audits")).status_code == 403
        assert (await demo.compute("POST", "/ext/audits", {"audit": {}})).status_code == 403
    assert (await running.admin.compute("GET", "/ext/audits/none")).status_code == 404
    kinds = (await running.admin.compute("GET", "/ext/audits/kinds")).json()["kinds"]
    assert len(kinds) >= 30
