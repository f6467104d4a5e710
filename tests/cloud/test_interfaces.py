"""Interfaces attached to and detached from servers, in a whole cloud: ports, addresses, claims and guests go together."""

import asyncio
from typing import Any

from conftest import Running

from moorage.main.seed import ROUTED
from moorage.model.ids import ServerId


async def interfaces(running: Running, server: str) -> list[dict[str, Any]]:
    reply = await running.admin.compute("GET", f"/servers/{server}/os-interface")
    assert reply.status_code == 200, reply.text
    return list(reply.json()["interfaceAttachments"])


def vifs(running: Running, server: dict[str, Any]) -> list[str]:
    """The ports that the guest has."""
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    return [str(vif.port) for vif in driver.spec_of(ServerId(server["id"])).vifs]


async def attach(running: Running, server: str, **wish: Any) -> Any:
    return await running.admin.compute("POST", f"/servers/{server}/os-interface", {"interfaceAttachment": wish})


async def detached(running: Running, server: str, port: str) -> None:
    reply = await running.admin.compute("DELETE", f"/servers/{server}/os-interface/{port}")
    assert reply.status_code == 202, reply.text
    for _ in range(200):
        if port not in [each["port_id"] for each in await interfaces(running, server)]:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{port} is still attached")


async def test_a_network_is_attached_and_detached(running: Running) -> None:
    server = await running.admin.active("a")
    network = await running.admin.id_of("network", "private")
    reply = await attach(running, server["id"], net_id=network)
    assert reply.status_code == 200, reply.text
    got = reply.json()["interfaceAttachment"]
    assert got["net_id"] == network
    assert got["port_state"] == "ACTIVE"
    assert len(got["fixed_ips"]) == 1
    assert len(await interfaces(running, server["id"])) == 2
    assert got["port_id"] in vifs(running, server)
    shown = await running.admin.server(server["id"])
    assert shown is not None
    assert len(shown["addresses"]["private"]) == 2
    await detached(running, server["id"], got["port_id"])
    assert (await running.admin.network("GET", f"/ports/{got['port_id']}")).status_code == 404
    assert got["port_id"] not in vifs(running, server)
    await running.admin.gone(server["id"])


async def test_routed(running: Running) -> None:
    server = await running.admin.active("a")
    reply = await attach(running, server["id"], net_id=await running.admin.id_of("network", ROUTED))
    assert reply.status_code == 200, reply.text
    got = reply.json()["interfaceAttachment"]
    assert got["fixed_ips"]
    await detached(running, server["id"], got["port_id"])
    await running.admin.gone(server["id"])
