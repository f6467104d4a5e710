"""`addFixedIp` and `removeFixedIp` in a running cloud: the network service allocates, and record and claim agree."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared

from moorage_testing.api_user import Person

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


PATIENCE_S = 180.0


async def act(person: Person, server: str, body: Any) -> Any:
    return await person.http.request(
        "POST",
        f"{person.urls[0]}/servers/{server}/action",
        json=body,
        headers={"OpenStack-API-Version": "compute 2.43"},
    )


async def addresses(person: Person, server: str) -> list[str]:
    shown = await person.server(server)
    assert shown is not None
    return [each["addr"] for rows in shown["addresses"].values() for each in rows]


async def claimed(running: Running, server: str) -> int:
    """Addresses that the server holds in placement."""
    url = f"{running.config.api.placement.url}/placement/allocations/{server}"
    reply = await running.admin.http.get(url)
    reply.raise_for_status()
    rows = reply.json()["allocations"].values()
    return sum(row["resources"].get("IPV4_ADDRESS", 0) for row in rows)


async def test_an_address_on_a_routed_network_is_claimed_and_released(running: Running) -> None:
    admin = running.admin
    server = (await admin.active("a", networks="routed"))["id"]
    (first,) = await addresses(admin, server)
    assert await claimed(running, server) == 1
    network = await admin.id_of("network", "routed")
    assert (await act(admin, server, {"addFixedIp": {"networkId": network}})).status_code == 202
    assert len(both := await addresses(admin, server)) == 2
    assert {each.rsplit(".", 1)[0] for each in both} == {first.rsplit(".", 1)[0]}  # of the same segment
    assert await claimed(running, server) == 2
    assert (await act(admin, server, {"removeFixedIp": {"address": first}})).status_code == 202
    assert await addresses(admin, server) == [each for each in both if each != first]
    assert await claimed(running, server) == 1
    gone = await act(admin, server, {"removeFixedIp": {"address": first}})
    assert (gone.status_code, first in gone.text) == (400, True)
    for _ in range(3):  # the segment has four
        assert (await act(admin, server, {"addFixedIp": {"networkId": network}})).status_code == 202
    full = await act(admin, server, {"addFixedIp": {"networkId": network}})
    assert (full.status_code, "No fixed IP addresses available" in full.text) == (400, True)
    assert await claimed(running, server) == 4
    elsewhere = await act(admin, server, {"addFixedIp": {"networkId": await admin.id_of("network", "private")}})
    assert elsewhere.status_code == 404
    await admin.gone(server)


async def test_a_floating_address_appears_in_the_record(running: Running) -> None:
    admin = running.admin
    made = await admin.network("POST", "/networks", {"network": {"name": "out", "router:external": True}})
    outside = made.json()["network"]["id"]
    subnet = {"network_id": outside, "ip_version": 4, "cidr": "203.0.113.0/24"}
    assert (await admin.network("POST", "/subnets", {"subnet": subnet})).status_code == 201
    gateway = {"external_gateway_info": {"network_id": outside}}
    router = (await admin.network("POST", "/routers", {"router": gateway})).json()["router"]["id"]
    inside = {"subnet_id": await admin.id_of("subnet", "private-v4")}
    assert (await admin.network("PUT", f"/routers/{router}/add_router_interface", inside)).status_code == 200
    server = (await admin.active("a"))["id"]
    port = (await admin.network("GET", "/ports", device_id=server)).json()["ports"][0]["id"]
    asked = {"floatingip": {"floating_network_id": outside, "port_id": port}}
    floating = (await admin.network("POST", "/floatingips", asked)).json()["floatingip"]

    async def shows(count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(found := await addresses(admin, server)) != count:
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)

    await shows(2)
    assert (await addresses(admin, server))[1] == floating["floating_ip_address"]
    assert (await admin.network("DELETE", f"/floatingips/{floating['id']}")).status_code == 204
    await shows(1)
    await admin.gone(server)
    await admin.network("PUT", f"/routers/{router}/remove_router_interface", inside)
    await admin.network("DELETE", f"/routers/{router}")
    await admin.network("DELETE", f"/networks/{outside}")


async def test_groups_changed_at_the_network_service_show_by_themselves(running: Running) -> None:
    admin = running.admin
    group = {"security_group": {"name": "web"}}
    made = (await admin.network("POST", "/security-groups", group)).json()["security_group"]["id"]
    server = await admin.active("a", security_groups=[{"name": made}])
    assert server["security_groups"] == [{"name": "web"}]
    port = (await admin.network("GET", "/ports", device_id=server["id"])).json()["ports"][0]["id"]

    async def shows(*names: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            shown = await admin.server(server["id"])
            assert shown is not None
            if tuple(each["name"] for each in shown.get("security_groups", ())) == names:
                return
            assert time.monotonic() < deadline, shown
            await asyncio.sleep(0.05)

    assert (await admin.network("PUT", f"/ports/{port}", {"port": {"security_groups": []}})).status_code == 200
    await shows()
    assert (await admin.network("PUT", f"/ports/{port}", {"port": {"security_groups": [made]}})).status_code == 200
    await shows("web")
    await admin.gone(server["id"])
