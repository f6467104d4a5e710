"""The connection to a real Neutron resets, loses, delays and garbles: operations succeed, and nothing leaks there (N19)."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.clouds_of_both_kinds import LOOK_EVERY_S, land, log_in

from moorage.main.config import NetworkConfig
from moorage_testing.fault_proxy import KINDS, FlakyProxy, ProxyFault
from moorage_testing.leak_audit import in_region
from moorage_testing.real_services.stack import Stack

pytestmark = pytest.mark.real

CALL_S = 6.0
"""A real Neutron takes up to seconds where processors are shared."""
LATE_S = 8.0
STRAYS_S = 300.0
"""A call that landed after it was taken back is found by a round every minute."""
BOOTS = 8


async def test_a_storm_over_boots_and_deletes_leaves_nothing(real_stack: Stack, tmp_path: Path) -> None:
    async with FlakyProxy(real_stack.network_url) as proxy:
        way = NetworkConfig(url=proxy.url, timeout_s=CALL_S)
        async with land(tmp_path, real_stack, network=way) as country:
            direct = {**country.urls, "network": f"{real_stack.network_url}/v2.0"}
            admin_login = real_stack.logins["admin"]
            admin = await log_in(direct, admin_login.user, admin_login.password, admin_login.project)
            who = await country.person()
            network = (await who.ok("network", "POST", "/networks", {"network": {"name": "stormy"}}))["network"]["id"]
            subnet = {"network_id": network, "ip_version": 4, "cidr": "10.83.0.0/24"}
            await who.ok("network", "POST", "/subnets", {"subnet": subnet})
            mine = (await who.ok("network", "POST", "/ports", {"port": {"network_id": network}}))["port"]
            flavor = (await who.ok("compute", "GET", "/flavors"))["flavors"][0]["id"]
            order = {"name": "a", "imageRef": await who.image(), "flavorRef": flavor}
            nics: list[Any] = [{"uuid": network}] * (BOOTS - 1) + [{"port": mine["id"]}]

            async def boot(nic: Any) -> str:
                made = await who.ok("compute", "POST", "/servers", {"server": {**order, "networks": [nic]}})
                return str(made["server"]["id"])

            every = [proxy.add_fault(ProxyFault(kind, "POST", "/ports", delay_s=LATE_S, status=502)) for kind in KINDS]
            servers = await asyncio.gather(*(boot(nic) for nic in nics))
            met = proxy.fail_randomly(7, 0.25, LATE_S)

            async def life(number: int, server: str) -> str:
                if number % 2 == 0:
                    await who.delete(server)
                    return "gone"
                shown = await who.settled(server)
                return f"{shown['status']}{shown.get('fault', {}).get('message', '')}"

            ends = await asyncio.gather(*(life(number, server) for number, server in enumerate(servers)))
            assert Counter(ends) == {"gone": BOOTS // 2, "ACTIVE": BOOTS // 2}
            await asyncio.gather(*(who.ok("compute", "DELETE", f"/servers/{each}") for each in servers[1::2]))
            assert sum(each.fired for each in every) + sum(met.values()) >= 5
            proxy.clear_faults()

            deadline = time.monotonic() + STRAYS_S
            while True:
                ports = (await admin.ok("network", "GET", "/ports", network_id=network))["ports"]
                left = [port for port in ports if port["device_id"]]
                claims, drift, _, unended = await in_region(country.config)
                if not (left or claims or unended):
                    break
                assert time.monotonic() < deadline, (left, claims, unended)
                await asyncio.sleep(LOOK_EVERY_S)
            assert drift == []
            assert [(port["id"], port["fixed_ips"]) for port in ports] == [(mine["id"], mine["fixed_ips"])]
            await admin.close()
