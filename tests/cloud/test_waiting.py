"""Servers that wait for a host instead of ending in ERROR."""

import asyncio
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_full_segments import emptied, filled
from tests.cloud.test_last_address import routed_with
from tests.helpers.guaranteed_ports import KBPS, TWO, network_on, policy_of, port_on, show_port

from moorage.main import reconcilers
from moorage.main.config import Hosts, Quota
from moorage.model.errors import NoCapacity
from moorage.operations.boot.boot_claim import HostClaim
from moorage.operations.boot.boot_input import Claim
from moorage.store.region import waiting
from moorage_testing.leak_audit import nothing_leaked
from moorage_testing.waiting import PATIENCE_S, until

WAIT = {"moorage:wait": True}


async def boots(
    running: Running, name: str, count: int = 1, hints: dict[str, Any] | None = None, **body: Any
) -> list[str]:
    """Ids of servers that were asked for, the first first."""
    found = []
    for number in range(count):
        reply = await running.admin.ask_boot(f"{name}{number}", hints=WAIT if hints is None else hints, **body)
        assert reply.status_code == 202, reply.text
        found.append(reply.json()["server"]["id"])
    return found


async def asleep(running: Running) -> dict[str, waiting.WaitingServer]:
    rows = await running.cloud.region.databases.region.read(waiting.listed)
    return {each.server: each for each in rows if each.woken_at is None}


async def sleep(running: Running, *servers: str) -> None:
    """Until all of them sleep."""
    async with asyncio.timeout(PATIENCE_S):
        while not set(servers) <= (await asleep(running)).keys():  # noqa: ASYNC110 - the row is written by another task
            await asyncio.sleep(0.02)


ADDRESSES = 10
WAITERS, FREED = 30, 4
A_SECOND_ON_A_BUSY_MACHINE_S = 30.0


async def full(running: Running, *addresses: int) -> tuple[list[dict[str, str]], list[str]]:
    """A routed network of two segments without a free address, and the servers that have them."""
    addresses = addresses or (ADDRESSES - 2, 2)
    network, _ = await routed_with(running.admin, *addresses)
    networks = [{"uuid": network}]
    servers = [await running.admin.boot(f"first{number}", networks=networks) for number in range(sum(addresses))]
    for each in servers:
        assert (await running.admin.settled(each))["status"] == "ACTIVE"
    return networks, servers


async def test_waiting_boots_are_served_in_order(start: Start) -> None:
    """As many are ACTIVE as addresses were freed, those that came first; the others sleep, and nobody was woken for anything else."""
    async with start(hosts=Hosts(count=2)) as running:
        networks, holders = await full(running)
        waker = running.cloud.region.waker
        assert waker is not None
        servers = await boots(running, "w", WAITERS, networks=networks)
        await sleep(running, *servers)
        for each in (servers[0], servers[-1]):
            shown = await running.admin.server(each) or {}
            assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("BUILD", "scheduling")
        rows = await asleep(running)
        assert {row.causes for row in rows.values()} == {("addresses",)}
        conductor = running.cloud.region.conductor
        assert conductor is not None
        await until(lambda: not conductor.executing)
        assert waker.kinds == 1

        unrelated = await running.admin.active("unrelated", networks="none")
        await running.admin.gone(unrelated["id"])
        assert waker.woken["room"] == 0

        for each in holders[:FREED]:
            await running.admin.gone(each)
        for each in servers[:FREED]:
            assert (await running.admin.settled(each))["status"] == "ACTIVE"
        assert (await asleep(running)).keys() == set(servers[FREED:])
        assert (waker.woken["room"], waker.in_vain) == (FREED, 0)

        for each in servers[FREED:]:
            await running.admin.gone(each)
        assert not await asleep(running)
        for each in (*holders[FREED:], *servers[:FREED]):
            await running.admin.gone(each)


async def test_capacity_freed_before_the_sleep_is_noticed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has searched in vain, and has not written yet that it sleeps; then the address is freed, and nothing else ever happens."""
    reached, go_on = asyncio.Event(), asyncio.Event()
    take_best = HostClaim.take_best

    async def delayed(claim: HostClaim) -> Claim:
        try:
            return await take_best(claim)
        except NoCapacity:
            reached.set()
            await go_on.wait()
            raise

    async with start(hosts=Hosts(count=2)) as running:
        networks, holders = await full(running, 1, 1)
        monkeypatch.setattr(HostClaim, "take_best", delayed)
        (server,) = await boots(running, "w", networks=networks)
        await reached.wait()
        await running.admin.gone(holders[0])
        monkeypatch.setattr(HostClaim, "take_best", take_best)
        go_on.set()
        assert (await running.admin.settled(server))["status"] == "ACTIVE"
        for each in (server, holders[1]):
            await running.admin.gone(each)


async def test_a_freed_address_of_an_exhausted_segment_wakes_a_boot(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network service refused an address that placement had; the boot sleeps without anything of that host, and an address of that very
    segment wakes it.
    """
    monkeypatch.setattr(reconcilers, "SEGMENTS_EVERY_S", 3600.0)
    wires = (("physnet1",), ("physnet2",))
    async with start(hosts=Hosts(count=2, physical_networks=wires)) as running:
        admin = running.admin
        network, segments = await routed_with(admin, 2, 2)
        networks = [{"uuid": network}]
        first = await admin.active("the pools are drawn now", networks=networks)
        mine = 0 if first["OS-EXT-SRV-ATTR:host"] == "host1" else 1
        for place, segment in enumerate(segments):
            await filled(running, network, segment, 1 if place == mine else 2)
        (server,) = await boots(running, "w", networks=networks)
        await sleep(running, server)
        assert (await asleep(running))[server].causes == ("addresses",)
        assert await admin.claimed(server) == {}
        (port,) = (await admin.network("GET", "/ports", device_id=server)).json()["ports"]
        assert (port["binding:host_id"], port["fixed_ips"]) == ("", [])
        explained = (await admin.compute("GET", f"/ext/servers/{server}/explain")).json()["explain"]
        assert any("failed" in each for each in explained["operations"][0]["attempts"])
        assert explained["waits"]["causes"] == ["addresses"]

        await admin.gone(first["id"])
        found = await admin.settled(server)
        assert (found["status"], found["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", first["OS-EXT-SRV-ATTR:host"])
        await emptied(running, network, found)


async def test_a_later_server_that_fits_is_not_held_up(start: Start) -> None:
    """Memory is short for the first; the second asks less, and the third is of the first one's kind."""
    hosts = Hosts(count=1, ram_mib=1536, vcpus=8)
    async with start(hosts=hosts) as running:
        admin = running.admin
        small = {"flavor": "m1.nano", "networks": "none"}
        big = await flavor(running, "big", ram=600)
        holder = await admin.active("holder", flavor="big", networks="none")
        tiny = [await admin.active(f"tiny{number}", **small) for number in range(3)]
        first, second = await boots(running, "big", 2, flavor="big", networks="none")
        (third,) = await boots(running, "small", flavor="m1.nano", networks="none")
        await sleep(running, first, second, third)
        await admin.gone(tiny[0]["id"])
        assert (await admin.settled(third))["status"] == "ACTIVE"
        rows = await asleep(running)
        assert rows.keys() == {first, second}
        assert {row.causes for row in rows.values()} == {("memory",)}
        await admin.gone(holder["id"])
        assert (await admin.settled(first))["status"] == "ACTIVE"
        assert (await asleep(running)).keys() == {second}
        for each in (second, first, third, *(each["id"] for each in tiny[1:])):
            await admin.gone(each)
        await admin.compute("DELETE", f"/flavors/{big}")


async def flavor(running: Running, name: str, ram: int, **specs: str) -> str:
    body = {"flavor": {"name": name, "ram": ram, "vcpus": 1, "disk": 1, "id": name}}
    assert (await running.admin.compute("POST", "/flavors", body)).status_code == 200
    if specs:
        body = {"extra_specs": {key.replace("__", ":"): value for key, value in specs.items()}}
        reply = await running.admin.compute("POST", f"/flavors/{name}/os-extra_specs", body)
        assert reply.status_code == 200, reply.text
    return name


async def service(running: Running, host: str, **body: Any) -> None:
    listed = (await running.admin.compute("GET", "/os-services", binary="nova-compute", host=host)).json()["services"]
    reply = await running.admin.compute("PUT", f"/os-services/{listed[0]['id']}", body)
    assert reply.status_code == 200, reply.text


async def test_an_enabled_host_or_a_free_place_in_a_group_wakes_a_boot(start: Start) -> None:
    async with start(hosts=Hosts(count=2)) as running:
        admin = running.admin
        for host in ("host1", "host2"):
            await service(running, host, status="disabled")
        (server,) = await boots(running, "w", networks="none")
        await sleep(running, server)
        assert (await asleep(running))[server].causes == ("hosts",)
        await service(running, "host2", status="enabled")
        assert (await admin.settled(server))["OS-EXT-SRV-ATTR:host"] == "host2"
        await service(running, "host1", status="enabled")

        policy = {"server_group": {"name": "apart", "policy": "anti-affinity"}}
        group = (await admin.compute("POST", "/os-server-groups", policy)).json()["server_group"]["id"]
        apart = [await admin.active(f"a{number}", networks="none", hints={"group": group}) for number in range(2)]
        (third,) = await boots(running, "third", networks="none", hints={**WAIT, "group": group})
        await sleep(running, third)
        assert (await asleep(running))[third].causes == ("server_group",)
        await admin.gone(server)
        assert (await asleep(running)).keys() == {third}
        await admin.gone(apart[0]["id"])
        assert (await admin.settled(third))["status"] == "ACTIVE"
        for each in (third, apart[1]["id"]):
            await admin.gone(each)


async def test_guaranteed_bandwidth_that_is_freed_wakes(start: Start) -> None:
    async with start(hosts=TWO) as running:
        admin = running.admin
        network = await network_on(admin, "physnet2")
        policy = await policy_of(admin, kbps=KBPS)
        ports = [(await port_on(admin, network, policy))["id"] for _ in range(2)]
        holder = await admin.active("holder", networks=[{"port": ports[0]}])
        (server,) = await boots(running, "w", networks=[{"port": ports[1]}])
        await sleep(running, server)
        assert (await asleep(running))[server].causes == ("bandwidth",)
        assert (await show_port(admin, ports[1]))["device_id"] == server
        await admin.gone(holder["id"])
        assert (await admin.settled(server))["status"] == "ACTIVE"
        await admin.gone(server)
        for port in ports:
            await admin.network("DELETE", f"/ports/{port}")


async def test_a_deleted_waiting_boot_leaves_nothing(start: Start) -> None:
    """With a volume that was made for it, and a port of its user's; its quota is held until then."""
    async with start(hosts=Hosts(count=1), quota=Quota(instances=3, cores=-1, ram=-1)) as running:
        admin = running.admin
        await service(running, "host1", status="disabled")
        private = await admin.id_of("network", "private")
        port = (await admin.network("POST", "/ports", {"port": {"network_id": private}})).json()["port"]
        image = str(await admin.id_of("image", "tiny"))
        root = {"source_type": "image", "destination_type": "volume", "uuid": image, "boot_index": 0, "volume_size": 1}
        device = {**root, "delete_on_termination": True}
        await boots(running, "v", imageRef="", block_device_mapping_v2=[device], networks=[{"port": port["id"]}])
        reply = await admin.ask_boot("several", networks="none", hints=WAIT, min_count=2, max_count=5)
        assert reply.status_code == 202, reply.text
        conductor = running.cloud.region.conductor
        assert conductor is not None
        async with asyncio.timeout(PATIENCE_S):
            while len(await asleep(running)) < 3:  # noqa: ASYNC110 - the rows are written by other tasks
                await asyncio.sleep(0.02)
        await until(lambda: not conductor.executing)
        refused = await admin.ask_boot("one too many", networks="none")
        assert refused.status_code == 403, "a server that waits holds its quota"
        volumes = (await admin.volume("GET", "/volumes/detail", all_tenants="1")).json()["volumes"]
        assert len(volumes) == 1
        for each in await asleep(running):
            await admin.gone(each)
        assert not await asleep(running)
        assert (await show_port(admin, port["id"]))["device_id"] == ""
        await service(running, "host1", status="enabled")
        found = await admin.active("again", networks="none")
        await admin.gone(found["id"])
        assert (await admin.volume("GET", "/volumes/detail", all_tenants="1")).json()["volumes"] == []
        await nothing_leaked(running.config, admin)
        await admin.network("DELETE", f"/ports/{port['id']}")


async def test_freed_capacity_for_ten_serves_ten_of_a_hundred(start: Start) -> None:
    """Ten addresses are freed at one moment: exactly ten wake-ups, those that came first, and each is ACTIVE soon after the last delete."""
    async with start(hosts=Hosts(count=2)) as running:
        admin = running.admin
        networks, holders = await full(running, 8, 4)
        servers = await boots(running, "w", 100, networks=networks)
        await sleep(running, *servers)
        waker, region = running.cloud.region.waker, running.cloud.region.databases.region
        assert waker is not None
        searched = waker.searches
        await asyncio.gather(*(admin.gone(each) for each in holders[:10]))
        freed_at = asyncio.get_running_loop().time()
        async with asyncio.timeout(PATIENCE_S):
            while len(await region.read(waiting.listed)) > 90:  # noqa: ASYNC110 - the rows go with the ends of operations
                await asyncio.sleep(0.01)
        took_s = asyncio.get_running_loop().time() - freed_at
        assert took_s < A_SECOND_ON_A_BUSY_MACHINE_S
        assert {(await admin.server(each) or {})["status"] for each in servers[:10]} == {"ACTIVE"}
        assert (await asleep(running)).keys() == set(servers[10:])
        assert (waker.woken["room"], waker.in_vain) == (10, 0)
        assert waker.searches - searched < 100, "not one for each of those that wait"
        for each in (*servers, *holders[10:]):
            await admin.delete(each)
        for each in (*servers, *holders[10:]):
            await admin.absent(each)
