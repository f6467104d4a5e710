"""Soft delete and restore in a whole cloud: off and out of the quota, restored, deleted finally, reclaimed after its time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_rebuild import guest

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Compute, Quota
from moorage.model.guest import PowerState
from moorage_testing.leak_audit import guests_on_disk

HOUR = Compute(reclaim_instance_interval=3600.0)


@pytest.fixture
async def keeping(start: Start) -> AsyncIterator[Running]:
    """A cloud that keeps deleted servers for an hour, with room for one server in a project."""
    async with start(compute=HOUR, quota=Quota(instances=1, cores=-1, ram=-1)) as running:
        yield running


async def act(running: Running, server: str, body: Any) -> Any:
    return await running.admin.compute("POST", f"/servers/{server}/action", body)


async def used(running: Running) -> int:
    return int((await running.admin.compute("GET", "/limits")).json()["limits"]["absolute"]["totalInstancesUsed"])


async def listed(running: Running, **filters: str) -> list[str]:
    rows = (await running.admin.compute("GET", "/servers", **filters)).json()["servers"]
    return [row["name"] for row in rows]


async def test_a_server_is_soft_deleted_and_restored(keeping: Running) -> None:
    admin = keeping.admin
    server = await admin.active("comes-back")
    await admin.delete(server["id"])
    gone = await admin.settled(server["id"])
    await keeping.wait_until_unlocked(server["id"])  # its place in the quota is given back after it is shown deleted
    assert (gone["status"], gone["OS-EXT-STS:vm_state"]) == ("SOFT_DELETED", "soft-delete")
    assert guest(keeping, gone).power is PowerState.SHUTDOWN
    assert await used(keeping) == 0
    assert await listed(keeping) == []
    assert await listed(keeping, soft_deleted="True") == ["comes-back"]
    assert await listed(keeping, status="SOFT_DELETED") == ["comes-back"]
    assert await listed(keeping, deleted="True") == ["comes-back"]
    assert (await act(keeping, server["id"], {"os-start": None})).status_code == 409
    await admin.delete(server["id"])  # adds nothing
    assert (await act(keeping, server["id"], {"restore": None})).status_code == 202
    back = await admin.settled(server["id"])
    assert (back["status"], back["addresses"]) == ("ACTIVE", server["addresses"])
    assert guest(keeping, back).power is PowerState.RUNNING
    assert await used(keeping) == 1
    assert await listed(keeping) == ["comes-back"]
    assert (await act(keeping, server["id"], {"restore": None})).status_code == 409
    rows = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
    assert [row["action"] for row in rows] == ["restore", "delete", "create"]


async def test_the_quota_of_a_soft_deleted_server_may_be_used(keeping: Running) -> None:
    admin = keeping.admin
    first = await admin.active("first")
    await admin.delete(first["id"])
    await admin.settled(first["id"])
    await keeping.wait_until_unlocked(first["id"])
    second = await admin.active("second")
    refused = await act(keeping, first["id"], {"restore": None})
    assert refused.status_code == 403
    assert "instances" in refused.json()["forbidden"]["message"]
    assert (await act(keeping, second["id"], {"forceDelete": None})).status_code == 202
    await admin.absent(second["id"])
    await keeping.idle()
    assert await used(keeping) == 0
    assert (await act(keeping, first["id"], {"restore": None})).status_code == 202
    assert (await admin.settled(first["id"]))["status"] == "ACTIVE"


async def test_force_delete_is_final(keeping: Running) -> None:
    admin = keeping.admin
    server = await admin.active("no-more")
    await admin.delete(server["id"])
    await admin.settled(server["id"])
    assert (await act(keeping, server["id"], {"forceDelete": None})).status_code == 202
    await admin.absent(server["id"])
    await keeping.idle()
    rows = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
    assert [row["action"] for row in rows] == ["delete", "delete", "create"]
    assert server["id"] not in guests_on_disk(keeping.config.data)
    assert await used(keeping) == 0


async def test_a_server_that_was_never_launched_is_deleted_at_once(keeping: Running) -> None:
    keeping.set_faults_everywhere(start_guest=VerbDial(fail_times=99, says="no"))
    server = await keeping.admin.boot("never-was")
    assert (await keeping.admin.settled(server))["status"] == "ERROR"
    await keeping.admin.delete(server)
    await keeping.admin.absent(server)
    await keeping.idle()
    assert await used(keeping) == 0


async def test_a_failed_restore_leaves_the_server_deleted(keeping: Running) -> None:
    admin = keeping.admin
    server = await admin.active("not-yet")
    await admin.delete(server["id"])
    await admin.settled(server["id"])
    keeping.dial(server["OS-EXT-SRV-ATTR:host"], power_on=VerbDial(fail_times=1, fail_when="after", says="no"))
    assert (await act(keeping, server["id"], {"restore": None})).status_code == 202
    after = await admin.settled(server["id"])
    assert (after["status"], guest(keeping, after).power) == ("SOFT_DELETED", PowerState.SHUTDOWN)
    assert await used(keeping) == 0


async def test_a_soft_deleted_server_is_reclaimed_after_its_time(start: Start) -> None:
    async with start(compute=Compute(reclaim_instance_interval=2.0)) as running:
        admin = running.admin
        server = await admin.active("goes")
        other = await admin.active("stays")
        await admin.delete(server["id"])
        async with asyncio.timeout(180):
            seen = ""
            while seen != "SOFT_DELETED":
                shown = await admin.server(server["id"])
                seen = "SOFT_DELETED" if shown is None else shown["status"]
                await asyncio.sleep(0.02)
        await admin.absent(server["id"])
        assert guests_on_disk(running.config.data).keys() == {other["id"]}


async def test_off_by_default(running: Running) -> None:
    assert running.config.compute.reclaim_instance_interval == 0
    await running.admin.gone((await running.admin.active("gone"))["id"])
