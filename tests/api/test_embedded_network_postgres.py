"""The embedded network service on PostgreSQL, with concurrent requests."""

import asyncio
from collections import Counter

import pytest
from tests.helpers.embedded_network_cloud import cloud_over

pytestmark = pytest.mark.postgres


async def test_concurrent_requests_get_the_last_addresses_and_quota_exactly_once(postgres_url: str) -> None:
    async with cloud_over(postgres_url) as cloud:
        net, _ = await cloud.flat_network("10.0.0.0/28")
        body = {"port": {"network_id": net["id"], "project_id": "p1", "device_id": "x"}}
        answers = await asyncio.gather(*(cloud.call("POST", "/ports", body) for _ in range(24)))
        assert Counter(each.status_code for each in answers) == {201: 13, 409: 11}, [each.text for each in answers]
        made = [each.json()["port"] for each in answers if each.status_code == 201]
        assert len({each["fixed_ips"][0]["ip_address"] for each in made}) == 13
        assert len({each["security_groups"][0] for each in made}) == 1
        await asyncio.gather(*(cloud.call("DELETE", f"/ports/{each['id']}") for each in made[:6]))
        await cloud.ok("PUT", "/quotas/p1", {"quota": {"port": 10}})
        answers = await asyncio.gather(*(cloud.call("POST", "/ports", body) for _ in range(8)))
        assert Counter(each.status_code for each in answers) == {201: 3, 409: 5}
        assert (await cloud.get("/quotas/p1/details"))["quota"]["port"] == {"limit": 10, "used": 10, "reserved": 0}


async def test_a_routed_network_on_postgres(postgres_url: str) -> None:
    async with cloud_over(postgres_url) as cloud:
        net, (one, two), _ = await cloud.routed_network("10.1.0.0/29", "10.2.0.0/29")
        ports = [await cloud.port(net["id"], device_id=f"s{n}") for n in range(8)]
        body = {"port": {"binding:host_id": "cmp1", "device_owner": "compute:nova"}}
        answers = await asyncio.gather(*(cloud.call("PUT", f"/ports/{each['id']}", body) for each in ports))
        assert Counter(each.status_code for each in answers) == {200: 5, 409: 3}
        moved = {"port": {"binding:host_id": "cmp2", "fixed_ips": [{"subnet_id": two["id"]}]}}
        found = await cloud.ok("PUT", f"/ports/{ports[0]['id']}", moved)
        assert [each["subnet_id"] for each in found["port"]["fixed_ips"]] == [two["id"]]
        full = (await cloud.get(f"/network-ip-availabilities/{net['id']}"))["network_ip_availability"]
        used = {each["subnet_id"]: each["used_ips"] for each in full["subnet_ip_availability"]}
        assert used[one["id"]] + used[two["id"]] in {5, 6}
