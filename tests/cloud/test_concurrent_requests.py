"""Many concurrent requests: limits are exact, groups are respected, nothing leaks."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared, Start

from moorage.main.config import Hosts, Quota
from moorage_testing.api_user import Person

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def usage(person: Person) -> dict[str, int]:
    limits = (await person.compute("GET", "/limits")).json()["limits"]["absolute"]
    return {
        "instances": limits["totalInstancesUsed"],
        "cores": limits["totalCoresUsed"],
        "ram": limits["totalRAMUsed"],
    }


async def test_quota_is_exact_with_fifty_concurrent_boots(start: Start) -> None:
    async with start(quota=Quota(instances=17)) as running, running.person("demo", "demo") as demo:
        replies = await asyncio.gather(*(demo.ask_boot(f"rival-{number}") for number in range(50)))
        counts = Counter(reply.status_code for reply in replies)
        assert counts == {202: 17, 403: 33}
        refused = next(reply for reply in replies if reply.status_code == 403)
        assert "instances" in refused.json()["forbidden"]["message"]
        servers = [str(reply.json()["server"]["id"]) for reply in replies if reply.status_code == 202]
        assert {(await demo.settled(each))["status"] for each in servers} == {"ACTIVE"}
        assert await usage(demo) == {"instances": 17, "cores": 17, "ram": 17 * 128}
        await asyncio.gather(*(demo.gone(each) for each in servers[:5]))
        # The quota is given back by the commit that ends a delete, a moment after the server is seen to be gone.
        async with asyncio.timeout(180):
            while (await usage(demo))["instances"] != 12:  # noqa: ASYNC110  what is asked of the API has no event
                await asyncio.sleep(0.01)
        assert (await demo.ask_boot("too-many", min_count=6)).status_code == 403
        for so_many in (1001, 5000, 10**18):
            beyond = await demo.ask_boot("beyond", min_count=so_many)
            assert beyond.status_code == 403, beyond.text
            assert "Quota exceeded" in beyond.text, "the quota, as in Nova, and not a limit of ours"
        assert (await demo.ask_boot("just-right", min_count=5)).status_code == 202


async def test_several_servers_of_one_request_boot(running: Running) -> None:
    admin = running.admin
    reply = await admin.ask_boot("crowd", min_count=10, max_count=10, return_reservation_id=True)
    assert reply.status_code == 202
    reservation = reply.json()["reservation_id"]
    listed = (await admin.compute("GET", "/servers/detail", reservation_id=reservation)).json()["servers"]
    assert sorted(each["name"] for each in listed) == sorted(f"crowd-{number}" for number in range(1, 11))
    found = await asyncio.gather(*(admin.settled(each["id"]) for each in listed))
    assert {each["status"] for each in found} == {"ACTIVE"}
    addresses = {each["addresses"]["private"][0]["addr"] for each in found}
    assert len(addresses) == 10


async def test_too_few_hosts_fail_all_servers_of_a_request(start: Start) -> None:
    """Nova's outcome, and no claim is kept for anyone (RULES §17)."""
    async with start(hosts=Hosts(count=1, vcpus=1, physical_networks=(("physnet1",),))) as running:
        reply = await running.admin.ask_boot("crowd", min_count=6, max_count=6, return_reservation_id=True)
        reservation = reply.json()["reservation_id"]
        listed = (await running.admin.compute("GET", "/servers/detail", reservation_id=reservation)).json()["servers"]
        found = await asyncio.gather(*(running.admin.settled(each["id"]) for each in listed))
        assert Counter(each["status"] for each in found) == {"ERROR": 6}


async def group(admin: Person, policy: str, **rules: int) -> str:
    body = {"name": policy, "policy": policy, **({"rules": rules} if rules else {})}
    reply = await admin.compute("POST", "/os-server-groups", {"server_group": body})
    assert reply.status_code == 200, reply.text
    return str(reply.json()["server_group"]["id"])


async def test_anti_affinity_holds_for_concurrent_boots(running: Running) -> None:
    admin = running.admin
    apart = await group(admin, "anti-affinity")
    servers = await asyncio.gather(*(admin.boot(f"apart-{number}", hints={"group": apart}) for number in range(8)))
    found = await asyncio.gather(*(admin.settled(each) for each in servers))
    hosts = [each["OS-EXT-SRV-ATTR:host"] for each in found if each["status"] == "ACTIVE"]
    assert sorted(hosts) == [f"host{number}" for number in range(1, 7)]
    faults = {each["fault"]["message"] for each in found if each["status"] == "ERROR"}
    assert len(faults) >= 1
    assert all(fault.startswith("No valid host was found.") for fault in faults)
    members = (await admin.compute("GET", f"/os-server-groups/{apart}")).json()["server_group"]["members"]
    assert set(members) == set(servers)
    freed = next(each for each in found if each["status"] == "ACTIVE")
    await admin.gone(freed["id"])
    after = await admin.active("takes-its-place", hints={"group": apart})
    assert after["OS-EXT-SRV-ATTR:host"] == freed["OS-EXT-SRV-ATTR:host"]


async def test_affinity_holds_for_concurrent_boots(running: Running) -> None:
    admin = running.admin
    together = await group(admin, "affinity")
    servers = await asyncio.gather(*(admin.boot(f"with-{number}", hints={"group": together}) for number in range(8)))
    found = await asyncio.gather(*(admin.settled(each) for each in servers))
    assert {each["status"] for each in found} == {"ACTIVE"}
    assert len({each["OS-EXT-SRV-ATTR:host"] for each in found}) == 1


async def test_concurrent_boots_and_deletes(running: Running) -> None:
    """Half of them are deleted while they are being built."""
    admin = running.admin

    async def life(number: int) -> str | None:
        server = await admin.boot(f"life-{number}")
        if number % 2:
            await admin.gone(server)
            return None
        return str((await admin.settled(server))["status"])

    assert Counter(await asyncio.gather(*(life(number) for number in range(40)))) == {None: 20, "ACTIVE": 20}


async def test_too_few_addresses_claim_none(running: Running) -> None:
    """As Nova: one request is for all of its servers (RULES §17), and no claim is kept for some."""
    admin = running.admin
    reply = await admin.ask_boot("nine", networks="routed", min_count=9, max_count=9, return_reservation_id=True)
    assert reply.status_code == 202
    reservation = reply.json()["reservation_id"]
    listed = (await admin.compute("GET", "/servers/detail", reservation_id=reservation)).json()["servers"]
    found = await asyncio.gather(*(admin.settled(each["id"]) for each in listed))
    assert {each["status"] for each in found} == {"ERROR"}
    assert {each["fault"]["message"].partition(" 6 hosts")[0] for each in found} == {"No valid host was found."}
    assert not any(each["addresses"] for each in found)


@pytest.mark.parametrize(("policy", "count"), [("anti-affinity", 9), ("affinity", 2)])
async def test_members_of_a_group_in_one_request_all_get_a_host_or_none(
    running: Running, policy: str, count: int
) -> None:
    """As in Nova, which places the whole request at once: nine apart on eight hosts, two of 20 GiB together on hosts of 32."""
    admin = running.admin
    made, hosts = await group(admin, policy), len(running.cloud.plans)
    size = f"half-{policy}"
    flavor = {"name": size, "vcpus": 1, "ram": 20_480 if policy == "affinity" else 64, "disk": 1}
    assert (await admin.compute("POST", "/flavors", {"flavor": flavor})).status_code == 200
    many = hosts + 1 if policy == "anti-affinity" else count
    reply = await admin.ask_boot(
        "together",
        flavor=flavor["name"],
        hints={"group": made},
        min_count=many,
        max_count=many,
        return_reservation_id=True,
    )
    assert reply.status_code == 202, reply.text
    reservation = reply.json()["reservation_id"]
    servers = (await admin.compute("GET", "/servers/detail", reservation_id=reservation)).json()["servers"]
    assert len(servers) == many
    assert {(await admin.settled(each["id"]))["status"] for each in servers} == {"ERROR"}
    for each in servers:
        await admin.gone(each["id"])
