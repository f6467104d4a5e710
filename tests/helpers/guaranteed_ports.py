"""Policies, networks and ports with guarantees, and what is used of the providers that give them."""

import asyncio
import time
from typing import Any

from moorage.main.config import Hosts
from moorage_testing.api_user import Person

EGR, IGR, PPS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC", "NET_PACKET_RATE_KILOPACKET_PER_SEC"
KBPS, KPPS = 10_000, 100
TWO = Hosts(count=2, physical_networks=(("physnet1",), ("physnet2",)), bandwidth_kbps=KBPS, packet_rate_kpps=KPPS)


async def made(admin: Person, path: str, kind: str, **said: Any) -> dict[str, Any]:
    reply = await admin.network("POST", path, {kind: said})
    assert reply.status_code == 201, reply.text
    found: dict[str, Any] = reply.json()[kind]
    return found


async def policy_of(admin: Person, kbps: int = 0, kpps: int = 0, ingress_kbps: int = 0) -> str:
    policy = str((await made(admin, "/qos/policies", "policy", name="guaranteed"))["id"])
    rules = f"/qos/policies/{policy}/minimum_bandwidth_rules"
    for amount, direction in ((kbps, "egress"), (ingress_kbps, "ingress")):
        if amount:
            await made(admin, rules, "minimum_bandwidth_rule", min_kbps=amount, direction=direction)
    if kpps:
        path = f"/qos/policies/{policy}/minimum_packet_rate_rules"
        await made(admin, path, "minimum_packet_rate_rule", min_kpps=kpps, direction="any")
    return policy


async def network_on(admin: Person, physnet: str, **more: Any) -> str:
    wire = {"provider:network_type": "vlan", "provider:physical_network": physnet}
    network = await made(admin, "/networks", "network", name=f"on-{physnet}", **wire, **more)
    await made(admin, "/subnets", "subnet", network_id=network["id"], cidr="10.99.0.0/24", ip_version=4)
    return str(network["id"])


async def port_on(admin: Person, network: str, policy: str) -> dict[str, Any]:
    return await made(admin, "/ports", "port", network_id=network, qos_policy_id=policy)


async def show_port(admin: Person, port: str) -> dict[str, Any]:
    found: dict[str, Any] = (await admin.network("GET", f"/ports/{port}")).json()["port"]
    return found


async def placement(admin: Person, path: str) -> Any:
    url = f"{admin.config.api.placement.url}/placement{path}"
    reply = await admin.http.get(url, headers={"OpenStack-API-Version": "placement 1.39"})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def providers(admin: Person) -> dict[str, str]:
    """Name → id, once every host of the cloud has its bridges."""
    deadline = time.monotonic() + 180
    while True:
        rows = (await placement(admin, "/resource_providers"))["resource_providers"]
        found = {row["name"]: row["uuid"] for row in rows}
        hosts = [name for name in found if name.startswith("host") and ":" not in name]
        if hosts and all(any(name.startswith(f"{host}:Open vSwitch agent:br-") for name in found) for host in hosts):
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)


async def used(admin: Person, provider: str) -> dict[str, int]:
    found: dict[str, int] = (await placement(admin, f"/resource_providers/{provider}/usages"))["usages"]
    return found
