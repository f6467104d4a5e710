"""A cloud without a network service: pools of its cells, and servers that look like any other's (S0.16, S0.17, S3.10)."""

import asyncio

import httpx
import pytest
from tests.cloud.conftest import Start, a_config

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import FlatPoolConfig, Hosts, NetworkConfig
from moorage.main.flat_networks import FlatAddressBook, pools_of
from moorage.model.errors import Invalid
from moorage.model.flat_network import flat_id
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import guests_on_disk

POOLS = (
    FlatPoolConfig("office", "cell1", "10.1.0.0/29"),
    FlatPoolConfig("office", "cell2", "10.2.0.0/29", dns=("10.2.0.1",), bridge="br-office"),
)
FLAT = NetworkConfig(backend="flat", pools=POOLS)
OFFICE = [{"uuid": flat_id("office")}]


async def addresses_of(admin: Person, server: str) -> list[str]:
    found = await admin.server(server)
    assert found is not None
    return [each["addr"] for each in found["addresses"].get("office", ())]


async def test_servers_have_addresses_of_their_hosts_cell(start: Start) -> None:
    async with start(network=FLAT, hosts=Hosts(count=4)) as running:
        admin, cloud = running.admin, running.cloud
        assert cloud.embedded.network is None
        servers = await asyncio.gather(*(admin.active(f"flat-{n}", networks=OFFICE) for n in range(6)))
        seen: set[str] = set()
        for server in servers:
            (address,) = await addresses_of(admin, server["id"])
            plan = next(plan for plan in cloud.plans if plan.host == server["OS-EXT-SRV-ATTR:host"])
            assert address.startswith("10.1.0." if plan.cell == "cell1" else "10.2.0.")
            seen.add(address)
        assert len(seen) == 6
        shown = await admin.compute("GET", f"/servers/{servers[0]['id']}/os-interface")
        assert shown.status_code == 200, shown.text
        (interface,) = shown.json()["interfaceAttachments"]
        assert interface["fixed_ips"][0]["ip_address"] in seen
        auto = await admin.active("auto", networks="auto")
        assert await addresses_of(admin, auto["id"])
        for server in (*servers, auto):
            await admin.gone(server["id"])
        assert await FlatAddressBook(cloud.region.databases.region).every() == []
        assert guests_on_disk(running.config.data) == {}


async def test_a_failed_host_is_followed_by_a_host_of_the_next_cell(start: Start) -> None:
    async with start(network=FLAT, hosts=Hosts(count=2)) as running:
        running.dial("host1", start_guest=VerbDial(fail_times=9))
        servers = [await running.admin.active(f"moved-{n}", networks=OFFICE) for n in range(3)]
        for server in servers:
            assert [each.startswith("10.2.0.") for each in await addresses_of(running.admin, server["id"])] == [True]
        held = await FlatAddressBook(running.cloud.region.databases.region).every()
        assert {lease.server for lease in held} == {server["id"] for server in servers}
        for server in servers:
            await running.admin.gone(server["id"])


async def test_an_interface_is_attached_with_an_address_of_the_pool_and_detached(start: Start) -> None:
    async with start(network=FLAT, hosts=Hosts(count=1)) as running:
        admin, book = running.admin, FlatAddressBook(running.cloud.region.databases.region)
        server = (await admin.active("wired", networks=OFFICE))["id"]
        path = f"/servers/{server}/os-interface"
        made = await admin.compute("POST", path, {"interfaceAttachment": {"net_id": flat_id("office")}})
        assert made.status_code == 200, made.text
        got = made.json()["interfaceAttachment"]
        assert got["fixed_ips"][0]["ip_address"] in await addresses_of(admin, server)
        assert [lease.server for lease in await book.every()] == [server] * 2
        shown = await admin.compute("GET", f"{path}/{got['port_id']}")
        assert shown.json()["interfaceAttachment"] == got
        assert (await admin.compute("DELETE", f"{path}/{got['port_id']}")).status_code == 202
        async with asyncio.timeout(180):
            while len(await book.of_server(server)) > 1 or len(await addresses_of(admin, server)) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await admin.gone(server)


async def test_a_requested_address_is_used_by_boot_and_attach(start: Start) -> None:
    """It decides the cell; one in use is 400 for a boot and 409 for an attach, as Nova's are, and free again with its server."""
    async with start(network=FLAT, hosts=Hosts(count=2)) as running:
        admin = running.admin
        wished = [{**OFFICE[0], "fixed_ip": "10.2.0.5"}]
        server = await admin.active("wished", networks=wished)
        assert await addresses_of(admin, server["id"]) == ["10.2.0.5"]
        assert server["OS-EXT-SRV-ATTR:host"] == "host2"
        listed = await admin.http.get(
            f"{admin.config.api.compute.url}/v2.1/os-networks", headers={"OpenStack-API-Version": "compute 2.35"}
        )
        assert [(each["id"], each["label"]) for each in listed.json()["networks"]] == [(OFFICE[0]["uuid"], "office")]
        refused = await admin.ask_boot("second", networks=wished)
        assert refused.status_code == 400
        said = "Fixed IP address 10.2.0.5 is already in use."
        assert refused.json()["badRequest"]["message"] == said
        twice = await admin.ask_boot("twice", networks=[{**OFFICE[0], "fixed_ip": "10.2.0.6"}] * 2)
        assert twice.status_code == 400
        cells = [{**OFFICE[0], "fixed_ip": each} for each in ("10.1.0.6", "10.2.0.6")]
        assert (await admin.ask_boot("two cells", networks=cells)).status_code == 400
        assert (
            await admin.ask_boot("several", networks=[{**OFFICE[0], "fixed_ip": "10.2.0.6"}], min_count=2)
        ).status_code == 400

        path = f"/servers/{server['id']}/os-interface"

        async def attach(address: str) -> httpx.Response:
            wish = {"net_id": flat_id("office"), "fixed_ips": [{"ip_address": address}]}
            return await admin.compute("POST", path, {"interfaceAttachment": wish})

        assert {each: (await attach(each)).status_code for each in ("10.2.0.5", "10.1.0.6", "10.9.0.1")} == {
            "10.2.0.5": 409, "10.1.0.6": 400, "10.9.0.1": 400,
        }  # fmt: skip
        made = await attach("10.2.0.6")
        assert made.status_code == 200, made.text
        assert made.json()["interfaceAttachment"]["fixed_ips"][0]["ip_address"] == "10.2.0.6"
        assert sorted(await addresses_of(admin, server["id"])) == ["10.2.0.5", "10.2.0.6"]
        await admin.gone(server["id"])
        again = await admin.active("again", networks=wished)
        assert await addresses_of(admin, again["id"]) == ["10.2.0.5"]
        await admin.gone(again["id"])


async def test_requests_that_need_a_network_service_are_refused(start: Start) -> None:
    async with start(network=FLAT, hosts=Hosts(count=1)) as running:
        for networks, says in (
            ([{"port": flat_id("a port")}], "there are no ports"),
            ([{"uuid": flat_id("office"), "fixed_ip": "10.9.0.3"}], "Fixed IP 10.9.0.3 is not a valid ip address"),
            ([{"uuid": flat_id("office"), "fixed_ip": "10.1.0.1"}], "Fixed IP 10.1.0.1 is not a valid ip address"),
            ([{"uuid": flat_id("office"), "fixed_ip": "fd00::3"}], "Fixed IP fd00::3 is not a valid ip address"),
            ([{"uuid": flat_id("another")}], "could not be found"),
        ):
            refused = await running.admin.ask_boot("no", networks=networks)
            assert refused.status_code == 400, refused.text
            assert says in refused.text


def test_invalid_pools_are_refused_by_name(tmp_path: object) -> None:
    for pools, says in (
        ((FlatPoolConfig("office", "cell9", "10.0.0.0/24"),), "office: there is no cell cell9"),
        ((FlatPoolConfig("office", "cell1", "10.0.0.0/33"),), "office in cell1"),
        ((POOLS[0], POOLS[0]), "two pools in cell1"),
    ):
        with pytest.raises(Invalid, match=says):
            pools_of(a_config(tmp_path, network=NetworkConfig(backend="flat", pools=pools)))  # type: ignore[arg-type]
