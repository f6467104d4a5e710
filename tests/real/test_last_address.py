"""One free address on a segment and many boots at once (N1), with an embedded network service and with a real Neutron."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.clouds_of_both_kinds import DEADLINE_S, LOOK_EVERY_S, Land, Who, land

from moorage_testing.leak_audit import in_region

BOOTS, ONE, OTHER = 20, 1, 5


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def country(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Land]:
    stack = request.getfixturevalue("real_stack") if request.param == "real" else None
    async with land(tmp_path, stack) as made:
        yield made


async def routed(admin: Who, project: str, *addresses: int) -> tuple[str, list[str]]:
    """A routed network of theirs whose segments have so many addresses each; and the segments."""
    first = {
        "provider:network_type": "vlan",
        "provider:physical_network": "physnet1",
        "provider:segmentation_id": 911,
    }
    asked = {"network": {"name": "tight", "project_id": project, **first}}
    network = (await admin.ok("network", "POST", "/networks", asked))["network"]["id"]
    segments = [(await admin.ok("network", "GET", "/segments", network_id=network))["segments"][0]["id"]]
    second = {"network_id": network, "network_type": "vlan", "physical_network": "physnet2", "segmentation_id": 912}
    segments.append((await admin.ok("network", "POST", "/segments", {"segment": second}))["segment"]["id"])
    for place, (segment, count) in enumerate(zip(segments, addresses, strict=True)):
        pools = [{"start": f"10.8{place}.0.10", "end": f"10.8{place}.0.{9 + count}"}]
        subnet = {"network_id": network, "segment_id": segment, "ip_version": 4, "cidr": f"10.8{place}.0.0/24"}
        body = {"subnet": {**subnet, "allocation_pools": pools, "project_id": project}}
        await admin.ok("network", "POST", "/subnets", body)
    return network, segments


async def test_one_server_gets_the_address_and_the_others_another_segment_or_an_error(country: Land) -> None:
    who = await country.person()
    network, (tight, roomy) = await routed(country.admin, who.project, ONE, OTHER)
    flavor = (await who.ok("compute", "GET", "/flavors"))["flavors"][0]["id"]
    order = {"name": "a", "imageRef": await who.image(), "flavorRef": flavor, "networks": [{"uuid": network}]}
    made = await asyncio.gather(*(who.ok("compute", "POST", "/servers", {"server": order}) for _ in range(BOOTS)))
    servers = [each["server"]["id"] for each in made]
    found = await asyncio.gather(*(who.settled(each) for each in servers))
    assert Counter(each["status"] for each in found) == {"ACTIVE": ONE + OTHER, "ERROR": BOOTS - ONE - OTHER}
    assert all("no free address" in each["fault"]["message"] for each in found if each["status"] == "ERROR")

    deadline = time.monotonic() + DEADLINE_S
    while True:
        claims, drift, _, unended = await in_region(country.config)
        if not unended:  # the losers' ports are deleted after they were told
            break
        assert time.monotonic() < deadline, unended
        await asyncio.sleep(LOOK_EVERY_S)
    assert drift == []
    held: Counter[str] = Counter()
    for rows in claims.values():
        held.update({provider: amount for (provider, kind), amount in rows.items() if kind == "IPV4_ADDRESS"})
    ports: list[Any] = (await country.admin.ok("network", "GET", "/ports", network_id=network))["ports"]
    bound = [port for port in ports if port["binding:host_id"]]
    assert held == {tight: ONE, roomy: OTHER}
    assert len(bound) == len({port["fixed_ips"][0]["ip_address"] for port in bound}) == ONE + OTHER
    assert {port["device_id"] for port in bound} == {each["id"] for each in found if each["status"] == "ACTIVE"}

    await asyncio.gather(*(who.delete(each) for each in servers))
    assert (await country.admin.ok("network", "GET", "/ports", network_id=network))["ports"] == []
    deadline = time.monotonic() + DEADLINE_S
    while (claims := (await in_region(country.config))[0]) != {}:  # they go a moment after their servers
        assert time.monotonic() < deadline, claims
        await asyncio.sleep(LOOK_EVERY_S)
