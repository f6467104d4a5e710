"""An audit finds a guest whose volumes are not those of its record, in a whole cloud, and its repair ends that."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_audit import looked
from tests.cloud.test_volumes import attach, attached, disks, ended, status, volume

from moorage.drivers.simulated import SimulatedDriver
from moorage.main.config import Hosts
from moorage.model.ids import ServerId

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATIENCE_S = 180.0
CLOUD = {"hosts": Hosts(count=2)}


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


def driver_of(running: Running, host: str) -> SimulatedDriver:
    driver = running.cloud.fleet.drivers[host]
    assert isinstance(driver, SimulatedDriver)
    return driver


async def findings(running: Running, count: int = 1) -> list[dict[str, Any]]:
    """Those of an audit, once the hosts' heartbeats show the change."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := (await looked(running))["findings"]) < count:
        assert time.monotonic() < deadline, "nothing is found"
    return list(found)


async def test_a_volume_that_a_guest_lost_is_found_and_plugged_in_again(running: Running) -> None:
    server = await running.admin.active("a")
    id, host = ServerId(server["id"]), server["OS-EXT-SRV-ATTR:host"]
    disk = await volume(running)
    await attach(running, id, disk)
    await ended(running, id, "attach_volume")
    assert (await looked(running))["findings"] == []
    await driver_of(running, host).detach_volume(id, disk)
    found = await findings(running)
    assert [(each["kind"], each["what"], each["where"], each["server"]) for each in found] == [
        ("guest_volume_missing", disk, host, id)
    ]
    done = await looked(running, repair=True)
    assert done["repaired"] == {"guest_volume_missing": 1}, done
    assert disks(running, server) == [disk]
    assert (await looked(running))["findings"] == []


async def test_a_volume_of_nobody_is_taken_out_and_one_of_another_server_first(running: Running) -> None:
    """As after an attach of which the host's answer was lost."""
    one, two = await asyncio.gather(running.admin.active("one"), running.admin.active("two"))
    free, used = await volume(running), await volume(running)
    await attach(running, two["id"], used)
    await ended(running, two["id"], "attach_volume")
    host = driver_of(running, one["OS-EXT-SRV-ATTR:host"])
    spec = driver_of(running, two["OS-EXT-SRV-ATTR:host"]).spec_of(ServerId(two["id"]))

    for each in (free, used):
        await host.attach_volume(ServerId(one["id"]), msgspec.structs.replace(spec.volumes[0], volume=each, bdm=""))
    found = await findings(running, 2)
    assert [(each["kind"], each["what"]) for each in found] == [
        ("guest_volume_of_other", used),
        ("guest_volume_unrecorded", free),
    ]
    assert all(each["repairable"] for each in found)
    await looked(running, repair=True)
    assert disks(running, one) == []
    assert disks(running, two) == [used]
    assert (await status(running, used), await status(running, free)) == ("in-use", "available")
    assert [each["volumeId"] for each in await attached(running, two["id"])] == [used]
    assert (await looked(running))["findings"] == []
