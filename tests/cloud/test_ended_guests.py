"""Guests that end by themselves, in a whole cloud: their servers are SHUTOFF, and may be started."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_rebuild import guest

from moorage.conductor.reconcilers import power_states
from moorage.main.config import Compute
from moorage.model.guest import PowerState
from moorage_testing.api_user import Person
from moorage_testing.waiting import PATIENCE_S


@pytest.fixture
async def looking(start: Start, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(power_states, "SURE_AFTER_S", 0.2)
    async with start(compute=Compute(sync_power_state_interval=0.1)) as running:
        yield running


async def until(admin: Person, server: str, status: str) -> dict[str, Any]:
    ends = time.monotonic() + PATIENCE_S
    while (shown := await admin.settled(server))["status"] != status:
        assert time.monotonic() < ends, shown
        await asyncio.sleep(0.05)
    return shown


async def test_a_server_whose_guest_has_crashed_is_shut_off_and_started(looking: Running) -> None:
    admin = looking.admin
    server = await admin.active("crashes")
    host, other = server["OS-EXT-SRV-ATTR:host"], await admin.active("stays")
    driver = looking.cloud.fleet.drivers[host]
    driver.turn(msgspec.structs.replace(driver.dials, crash=(server["id"],)))
    off = await until(admin, server["id"], "SHUTOFF")
    driver.turn(msgspec.structs.replace(driver.dials, crash=()))
    await looking.wait_until_unlocked(server["id"])
    assert off["OS-EXT-STS:vm_state"] == "stopped"
    actions = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
    assert [each["action"] for each in actions] == ["stop", "create"]
    assert actions[0]["message"] is None

    started = await admin.compute("POST", f"/servers/{server['id']}/action", {"os-start": None})
    assert started.status_code == 202
    back = await until(admin, server["id"], "ACTIVE")
    assert guest(looking, back).power is PowerState.RUNNING
    assert (await admin.settled(other["id"]))["status"] == "ACTIVE"
