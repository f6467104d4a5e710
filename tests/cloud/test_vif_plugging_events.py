"""ACTIVE waits for the plug event if the network service did not report it with the bind, and the event ends the wait at once."""

import asyncio
import dataclasses

import pytest
from tests.cloud.conftest import Running

from moorage.operations.steps import vif_plugging


async def test_the_event_of_the_plug_ends_the_wait(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vif_plugging, "LOOK_FIRST_S", 3600.0)  # it is the event that wakes, or nothing in this test
    admin, network = running.admin, running.cloud.embedded.network
    assert network is not None
    runner = network._runner  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(runner, "settings", dataclasses.replace(runner.settings, ports_become_active=False))
    server = await admin.boot("plugged-later")
    async with asyncio.timeout(180):
        ports: list[dict[str, str]] = []
        while not (ports and ports[0]["binding:host_id"] and running.told):
            ports = (await admin.network("GET", "/ports", device_id=server)).json()["ports"]
            await asyncio.sleep(0.05)
        while not running.cloud.region.context.arrivals._waiting:  # noqa: ASYNC110  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.05)
    shown = await admin.server(server)
    assert shown is not None
    assert shown["status"] == "BUILD"
    assert await network.set_port_status(ports[0]["id"], "ACTIVE")
    assert (await admin.settled(server))["status"] == "ACTIVE"
