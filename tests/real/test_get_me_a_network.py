"""Get me a network (S3.5 to S3.9, D1): `auto`, `none` and neither, with an embedded network service and with a real Neutron."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from tests.helpers.clouds_of_both_kinds import Land, Who, land

pytestmark = pytest.mark.asyncio(loop_scope="module")
GROUPS = [{"name": "nobody"}]


@pytest_asyncio.fixture(
    loop_scope="module", scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)]
)
async def country(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Land]:
    """One cloud for all tests of a kind: each has a project of its own."""
    stack = request.getfixturevalue("real_stack") if request.param == "real" else None
    async with land(tmp_path_factory.mktemp("land"), stack) as made:
        shared = await made.admin.ok("network", "GET", "/networks", shared="true")
        for network in shared["networks"]:  # what a new cloud is seeded with would be found usable by everybody
            await made.admin.ok("network", "PUT", f"/networks/{network['id']}", {"network": {"shared": False}})
        yield made


async def ask_boot(who: Who, networks: Any, at: str = "2.104", **more: Any) -> Any:
    flavor = (await who.ok("compute", "GET", "/flavors"))["flavors"][0]["id"]
    order = {"name": "a", "imageRef": await who.image(), "flavorRef": flavor, **more}
    if networks is not None:
        order["networks"] = networks
    return await who.ask("compute", "POST", "/servers", {"server": order}, at=at)


async def refusal(who: Who, networks: Any, at: str = "2.104", **more: Any) -> tuple[int, str]:
    reply = await ask_boot(who, networks, at, **more)
    assert reply.status_code >= 400, reply.text
    (fault,) = reply.json().values()
    assert fault["code"] == reply.status_code
    assert (await who.ok("compute", "GET", "/servers"))["servers"] == []
    return reply.status_code, fault["message"]


async def boot(who: Who, networks: Any, at: str = "2.104", **more: Any) -> Any:
    reply = await ask_boot(who, networks, at, **more)
    assert reply.status_code == 202, reply.text
    shown = await who.settled(reply.json()["server"]["id"])
    assert shown["status"] == "ACTIVE", shown.get("fault")
    return shown


async def flat(who: Who, cidr: str = "10.30.0.0/24") -> str:
    network = (await who.ok("network", "POST", "/networks", {"network": {"name": "mine"}}))["network"]["id"]
    subnet = {"network_id": network, "ip_version": 4, "cidr": cidr}
    await who.ok("network", "POST", "/subnets", {"subnet": subnet})
    return str(network)


@asynccontextmanager
async def ready(country: Land, prefix: str = "10.200.0.0/16") -> AsyncIterator[str]:
    """The network service can make topologies: a default external network, and a default pool of subnets, its id."""
    admin = country.admin
    external = {"network": {"name": "outside", "router:external": True, "is_default": True}}
    outside = (await admin.ok("network", "POST", "/networks", external))["network"]["id"]
    subnet = {"network_id": outside, "ip_version": 4, "cidr": "203.0.113.0/24"}
    await admin.ok("network", "POST", "/subnets", {"subnet": subnet})
    body = {
        "name": "pool", "prefixes": [prefix], "default_prefixlen": 26, "is_default": True, "shared": True,
    }  # fmt: skip
    pool = (await admin.ok("network", "POST", "/subnetpools", {"subnetpool": body}))["subnetpool"]["id"]
    try:
        yield str(pool)
    finally:
        await admin.ok("network", "DELETE", f"/subnetpools/{pool}")
        await admin.ok("network", "DELETE", f"/networks/{outside}")


async def networks_of(who: Who) -> list[Any]:
    found: list[Any] = (await who.ok("network", "GET", "/networks", project_id=who.project))["networks"]
    return found


async def test_what_each_version_takes(country: Land) -> None:
    who = await country.person()
    for at, networks in (("2.36", "auto"), ("2.36", "none"), ("2.37", None), ("2.37", "wings"), ("2.37", ["auto"])):
        assert (await refusal(who, networks, at))[0] == 400, (at, networks)


async def test_auto_is_refused_with_the_services_reason_and_never_means_none(country: Land) -> None:
    who = await country.person()
    status, sentence = await refusal(who, "auto")
    assert status == 409
    assert who.project in sentence
    assert "external" in sentence  # the service's own reason: it has no default external network
    assert await networks_of(who) == []


async def test_auto_uses_the_usable_network_there_is(country: Land) -> None:
    who = await country.person()
    mine = await flat(who)
    async with ready(country):
        server = await boot(who, "auto")
        (port,) = await who.ports(server["id"])
        assert port["network_id"] == mine
        assert [network["id"] for network in await networks_of(who)] == [mine]  # no topology was made
        await who.delete(server["id"])
        await flat(who)
        status, sentence = await refusal(who, "auto")
        assert (status, "Multiple possible networks found" in sentence) == (409, True)


async def test_auto_makes_a_topology_once_and_servers_together_share_it(country: Land) -> None:
    who = await country.person()
    async with ready(country):
        reply = await ask_boot(who, "auto", min_count=3)
        assert reply.status_code == 202, reply.text
        listed = (await who.ok("compute", "GET", "/servers"))["servers"]
        servers = [await who.settled(each["id"]) for each in listed]
        assert [server["status"] for server in servers] == ["ACTIVE"] * 3, [server.get("fault") for server in servers]
        (network,) = await networks_of(who)
        assert network["name"] == "auto_allocated_network"
        for server in servers:
            (port,) = await who.ports(server["id"])
            assert port["network_id"] == network["id"]
            assert list(server["addresses"]) == ["auto_allocated_network"]
        later = await boot(who, "auto")
        assert (await who.ports(later["id"]))[0]["network_id"] == network["id"]
        for server in (*servers, later):
            await who.delete(server["id"])
        assert (await networks_of(who)) == [network]  # it is the project's; only deleting it takes it away
        await who.ok("network", "DELETE", f"/auto-allocated-topology/{who.project}")


async def test_a_topology_that_fails_after_all_is_a_fault_and_not_a_server_without_network(country: Land) -> None:
    who, admin = await country.person(), country.admin
    async with ready(country, "10.201.0.0/26") as pool:
        last = (await admin.ok("network", "POST", "/networks", {"network": {"name": "last"}}))["network"]["id"]
        subnet = {"network_id": last, "ip_version": 4, "subnetpool_id": pool}
        await admin.ok("network", "POST", "/subnets", {"subnet": subnet})
        reply = await ask_boot(who, "auto")
        assert reply.status_code == 202, reply.text  # the dry run does not look into the pool
        server = await who.settled(reply.json()["server"]["id"])
        assert (server["status"], server["addresses"]) == ("ERROR", {})
        assert server["fault"]["message"]
        await who.delete(server["id"])
        await admin.ok("network", "DELETE", f"/networks/{last}")
        assert await networks_of(who) == []


async def test_none_means_none(country: Land) -> None:
    who = await country.person()
    await flat(who)
    server = await boot(who, "none", security_groups=[{"name": "default"}])
    assert server["addresses"] == {}
    assert "security_groups" not in server
    assert await who.ports(server["id"]) == []
    listed = await who.ok("compute", "GET", f"/servers/{server['id']}/os-interface")
    assert listed["interfaceAttachments"] == []
    await who.delete(server["id"])


async def test_names_of_unused_groups_are_checked(country: Land) -> None:
    who = await country.person()
    status, sentence = await refusal(who, "none", security_groups=GROUPS)
    assert (status, "nobody" in sentence) == (400, True)
    for _ in range(2):
        await who.ok("network", "POST", "/security-groups", {"security_group": {"name": "nobody"}})
    assert (await refusal(who, "none", security_groups=GROUPS))[0] == 409


async def test_an_empty_list_is_what_nothing_is(country: Land) -> None:
    who = await country.person()
    for at in ("2.36", "2.104"):
        bare = await boot(who, [], at)
        assert bare["addresses"] == {}
        await who.delete(bare["id"])
    mine = await flat(who)
    server = await boot(who, [])
    assert [port["network_id"] for port in await who.ports(server["id"])] == [mine]
    await who.delete(server["id"])
