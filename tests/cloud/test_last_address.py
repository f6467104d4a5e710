"""One free address, and two hundred boots at the same moment (N1): one gets it, and no other boot is placed where there is none."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start

from moorage.main.config import Cell, Compute, RegionSettings
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import census, nothing_leaked

BOOTS = 200
ONE, OTHER = 1, 20
ADDRESS = "IPV4_ADDRESS"
PATIENT = Compute(lease_s=120.0, host_silence_s=120.0)
"""Who loses its lease on a busy machine binds some ports once more, and a host that is thought silent is passed over."""


async def made(admin: Person, path: str, kind: str, **words: Any) -> dict[str, Any]:
    reply = await admin.network("POST", path, {kind: words})
    assert reply.status_code == 201, reply.text
    found: dict[str, Any] = reply.json()[kind]
    return found


async def routed_with(admin: Person, *addresses: int) -> tuple[str, list[str]]:
    """A routed network with a segment per number, wired to every other host, which has so many addresses; and its segments."""
    network = await made(
        admin,
        "/networks",
        "network",
        name="tight",
        **{
            "provider:network_type": "vlan",
            "provider:physical_network": "physnet1",
            "provider:segmentation_id": 301,
        },
    )
    segments = [(await admin.network("GET", "/segments", network_id=network["id"])).json()["segments"][0]["id"]]
    other = {"network_type": "vlan", "physical_network": "physnet2", "segmentation_id": 302}
    segments.append((await made(admin, "/segments", "segment", network_id=network["id"], **other))["id"])
    for place, (segment, count) in enumerate(zip(segments, addresses, strict=True)):
        base = f"10.9{place}.0"
        pool = {"start": f"{base}.10", "end": f"{base}.{9 + count}"}
        await made(
            admin,
            "/subnets",
            "subnet",
            network_id=network["id"],
            segment_id=segment,
            ip_version=4,
            cidr=f"{base}.0/24",
            allocation_pools=[pool],
        )
    return str(network["id"]), segments


def calls_of(running: Running) -> Counter[str]:
    return next(each.calls for each in running.cloud.region.clients.services if each.name == "network")


async def many_for_one(running: Running, boots: int) -> None:
    admin = running.admin
    network, (tight, roomy) = await routed_with(admin, ONE, OTHER)
    before = Counter(calls_of(running))
    networks = [{"uuid": network}]
    await asyncio.gather(admin.id_of("image", "tiny"), admin.id_of("flavor", "m1.nano"))
    servers = await asyncio.gather(*(admin.boot(f"rival-{number}", networks=networks) for number in range(boots)))
    found = await asyncio.gather(*(admin.settled(each) for each in servers))

    winners = {each["id"]: each for each in found if each["status"] == "ACTIVE"}
    losers = [each for each in found if each["status"] == "ERROR"]
    assert (len(winners), len(losers)) == (ONE + OTHER, boots - ONE - OTHER)
    assert {each["fault"]["message"] for each in losers} == {
        "No valid host was found. 6 hosts: no free address on the network's segment"
    }

    seen = await census(running.config, admin)
    held = Counter[str]()
    for server, claims in seen.claims.items():
        assert server in winners
        held.update({provider: amount for (provider, kind), amount in claims.items() if kind == ADDRESS})
    ports = (await admin.network("GET", "/ports", network_id=network)).json()["ports"]
    bound = [port for port in ports if port["binding:host_id"]]
    assert held == {tight: ONE, roomy: OTHER}
    assert sum(held.values()) == len(bound) == len({port["fixed_ips"][0]["ip_address"] for port in bound})
    assert {port["device_id"]: port["binding:host_id"] for port in bound} == {
        server: each["OS-EXT-SRV-ATTR:host"] for server, each in winners.items()
    }

    started = [host for host, step in running.commands_once if step == "start_guest"]
    assert len(started) == ONE + OTHER, "a build was sent where there was no address"
    assert Counter(started) == Counter(each["OS-EXT-SRV-ATTR:host"] for each in winners.values())
    assert (calls_of(running) - before)["PUT ports"] == ONE + OTHER, "a bind was tried that could not succeed"
    await nothing_leaked(running.config, admin)

    (first,) = [port["device_id"] for port in bound if port["fixed_ips"][0]["ip_address"].startswith("10.90.")]
    await admin.gone(first)
    after = await admin.active("takes-its-place", networks=networks)
    assert after["addresses"]["tight"][0]["addr"].startswith("10.90.")


@pytest.mark.slow
async def test_two_hundred_boots_compete_for_one_address_on_sqlite(start: Start) -> None:
    async with start(compute=PATIENT) as running:
        await many_for_one(running, BOOTS)


@pytest.mark.slow
@pytest.mark.postgres
async def test_two_hundred_on_postgresql(start: Start, postgres_server: Any) -> None:
    names = [f"last_{name}" for name in ("region", "cell1", "cell2")]
    region, *cells = [postgres_server.create_database(name) for name in names]
    try:
        databases = tuple(Cell(f"cell{number}", url) for number, url in enumerate(cells, start=1))
        async with start(region=RegionSettings(database=region), cells=databases, compute=PATIENT) as running:
            await many_for_one(running, BOOTS)
    finally:
        for name in names:
            postgres_server.drop_database(name)


async def test_the_last_address_of_a_network_without_segments(running: Running) -> None:
    """Nobody claims these: the network service says no, to all but one, each by its own name."""
    admin = running.admin
    network = (await made(admin, "/networks", "network", name="small"))["id"]
    pool = {"start": "10.95.0.10", "end": "10.95.0.10"}
    await made(
        admin, "/subnets", "subnet", network_id=network, ip_version=4, cidr="10.95.0.0/24", allocation_pools=[pool]
    )
    servers = await asyncio.gather(*(admin.boot(f"rival-{n}", networks=[{"uuid": network}]) for n in range(24)))
    found = await asyncio.gather(*(admin.settled(each) for each in servers))
    assert Counter(each["status"] for each in found) == {"ACTIVE": 1, "ERROR": 23}
    assert all("No more IP addresses available" in each["fault"]["message"] for each in found if "fault" in each)
    assert len([step for _, step in running.commands_once if step == "start_guest"]) == 1
