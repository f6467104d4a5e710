"""A routed network of two segments: they fill up one after the other, and then the reason is shown."""

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared, Start

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.main.seed_data import ROUTED, SEGMENT_ADDRESSES, SEGMENTS

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


RACKS = [ipaddress.ip_network(cidr) for *_, cidr in SEGMENTS]


def rack_of(server: dict[str, Any]) -> int:
    """Which segment its address is of."""
    address = ipaddress.ip_address(server["addresses"][ROUTED][0]["addr"])
    return next(at for at, cidr in enumerate(RACKS) if address in cidr)


async def test_a_full_segment_is_named_and_a_delete_frees_an_address(running: Running) -> None:
    admin = running.admin
    servers = [await admin.active(f"r{number}", networks=ROUTED) for number in range(2 * SEGMENT_ADDRESSES)]
    assert sorted(rack_of(each) for each in servers) == [0] * SEGMENT_ADDRESSES + [1] * SEGMENT_ADDRESSES

    refused = await admin.settled(await admin.boot("one-too-many", networks=ROUTED))
    assert refused["status"] == "ERROR"
    message = refused["fault"]["message"]
    assert message.startswith("No valid host was found.")
    assert "no free address" in message
    assert len(message) <= 255
    explained = (await admin.compute("GET", f"/ext/servers/{refused['id']}/explain")).json()["explain"]
    assert "no free address" in explained["summary"]
    ended = explained["operations"][0]["ended"]
    assert ended["considered"] == 6
    assert ended["willing"] == 0
    assert ended["refused_hosts"]

    await admin.gone(servers[0]["id"])
    after = await admin.active("after", networks=ROUTED)
    assert rack_of(after) == rack_of(servers[0])
    await admin.gone(refused["id"])


async def test_the_owner_sees_causes_and_no_host_names(running: Running) -> None:
    async with running.person("demo", "demo") as demo:
        servers = await asyncio.gather(
            *(demo.active(f"r{number}", networks=ROUTED) for number in range(2 * SEGMENT_ADDRESSES))
        )
        refused = await demo.settled(await demo.boot("one-too-many", networks=ROUTED))
        assert "details" not in refused["fault"]
        for each in (refused["id"], servers[0]["id"]):
            reply = await demo.compute("GET", f"/ext/servers/{each}/explain")
            assert reply.status_code == 200
            assert all(f"host{number}" not in reply.text for number in range(1, 7))
        assert "no free address" in reply.text or "no free address" in refused["fault"]["message"]
    theirs = await running.admin.boot("theirs")
    async with running.person("demo", "demo") as demo:
        assert (await demo.compute("GET", f"/ext/servers/{theirs}/explain")).status_code == 404


async def test_concurrent_boots_never_exceed_the_addresses(running: Running) -> None:
    """Twelve for eight addresses: eight get one each, four are told why."""
    admin = running.admin
    asked = await asyncio.gather(*(admin.boot(f"at-once-{number}", networks=ROUTED) for number in range(12)))
    found = await asyncio.gather(*(admin.settled(each) for each in asked))
    assert sorted(each["status"] for each in found) == ["ACTIVE"] * 8 + ["ERROR"] * 4
    faults = {each["fault"]["message"] for each in found if each["status"] == "ERROR"}
    assert all(fault.startswith("No valid host was found.") for fault in faults)
    addresses = [each["addresses"][ROUTED][0]["addr"] for each in found if each["status"] == "ACTIVE"]
    assert len(set(addresses)) == 8


async def test_a_refusal_by_the_host_moves_on_to_the_other_segment(start: Start) -> None:
    """The same port and MAC, another host on another segment, and so another address."""
    async with start(hosts=Hosts(count=2)) as running:
        for refusing, taking in (("host1", "host2"), ("host2", "host1")):
            running.dial(refusing, start_guest=VerbDial(fail_times=1))
            for _ in range(6):  # until one was sent to the refusing host first
                server = await running.admin.active("moves", networks=ROUTED)
                answer = (await running.admin.compute("GET", f"/ext/servers/{server['id']}/explain")).json()["explain"]
                attempts = answer["operations"][0]["attempts"]
                if len(attempts) > 1:
                    break
            assert [each["host"] for each in attempts] == [refusing, taking]
            assert server["OS-EXT-SRV-ATTR:host"] == taking
            assert rack_of(server) == int(taking[-1]) - 1


async def test_a_new_subnet_adds_addresses_to_its_segment_at_once(running: Running) -> None:
    """One segment of two subnets of one address each; a third is there for the next request, whatever was kept from before."""
    admin = running.admin
    wire = {"provider:network_type": "vlan", "provider:physical_network": "physnet1", "provider:segmentation_id": 611}
    network = (await admin.network("POST", "/networks", {"network": {"name": "grown", **wire}})).json()["network"]["id"]
    segment = (await admin.network("GET", "/segments", network_id=network)).json()["segments"][0]["id"]

    async def grow(row: int) -> None:
        pools = [{"start": f"10.6{row}.0.10", "end": f"10.6{row}.0.10"}]
        asked = {"network_id": network, "segment_id": segment, "ip_version": 4, "cidr": f"10.6{row}.0.0/24"}
        made = await admin.network("POST", "/subnets", {"subnet": {**asked, "allocation_pools": pools}})
        assert made.status_code == 201, made.text

    async def boot(name: str) -> dict[str, Any]:
        return await admin.settled(await admin.boot(name, networks=[{"uuid": network}]))

    await grow(1)
    await grow(2)
    servers = [await boot(f"g{number}") for number in range(3)]
    assert [each["status"] for each in servers] == ["ACTIVE", "ACTIVE", "ERROR"]
    assert "no free address on the network's segment" in servers[2]["fault"]["message"]
    await grow(3)
    deadline = time.monotonic() + 180
    while (after := await boot("after"))["status"] != "ACTIVE":  # a network is asked of once in a second at most
        assert time.monotonic() < deadline, after["fault"]
    given = {each["addresses"]["grown"][0]["addr"] for each in (*servers[:2], after)}
    assert given == {"10.61.0.10", "10.62.0.10", "10.63.0.10"}
