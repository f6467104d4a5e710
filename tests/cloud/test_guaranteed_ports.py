"""Guaranteed bandwidth and packet rate: ports and networks with a QoS policy, from the claim to the port's binding (S2, N5)."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.cloud.conftest import Running, Start
from tests.helpers.explained_claims import explained
from tests.helpers.guaranteed_ports import (
    EGR,
    IGR,
    KBPS,
    KPPS,
    PPS,
    TWO,
    network_on,
    placement,
    policy_of,
    port_on,
    providers,
    show_port,
    used,
)

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Cell, Hosts, UpgradeLevels
from moorage.model.ids import new_uuid
from moorage_testing.api_user import Person


async def test_a_port_with_guarantees_is_claimed_bound_explained_and_released(start: Start) -> None:
    async with start(hosts=TWO) as running:
        admin, found = running.admin, await providers(running.admin)
        bridge, agent = found["host2:Open vSwitch agent:br-physnet2"], found["host2:Open vSwitch agent"]
        network = await network_on(admin, "physnet2")
        port = await port_on(admin, network, await policy_of(admin, kbps=6_000, ingress_kbps=1_000, kpps=60))
        server = await admin.active(networks=[{"port": port["id"]}])
        assert server["OS-EXT-SRV-ATTR:host"] == "host2"
        assert await used(admin, bridge) == {EGR: 6_000, IGR: 1_000}
        assert await used(admin, agent) == {PPS: 60}
        groups = {tuple(each["resources"]): each["id"] for each in port["resource_request"]["request_groups"]}
        bound = await show_port(admin, port["id"])
        assert bound["binding:profile"]["allocation"] == {groups[(EGR, IGR)]: bridge, groups[(PPS,)]: agent}
        given = (await explained(admin, server["id"]))["operations"][0]["attempts"][0]["providers"]
        assert {each["name"]: each["resources"] for each in given} == {
            "host2:Open vSwitch agent:br-physnet2": {EGR: 6_000, IGR: 1_000},
            "host2:Open vSwitch agent": {PPS: 60},
        }
        await admin.gone(server["id"])
        assert await used(admin, bridge) == {EGR: 0, IGR: 0}
        assert await used(admin, agent) == {PPS: 0}
        assert (await show_port(admin, port["id"]))["binding:profile"] == {}
        await admin.network("DELETE", f"/ports/{port['id']}")


async def test_the_embedded_service_reports_bandwidth_of_bridges_and_agents(start: Start) -> None:
    async with start(hosts=TWO) as running:
        found = await providers(running.admin)
        bridge, agent = found["host1:Open vSwitch agent:br-physnet1"], found["host1:Open vSwitch agent"]
        inventories = (await placement(running.admin, f"/resource_providers/{bridge}/inventories"))["inventories"]
        assert {name: each["total"] for name, each in inventories.items()} == {EGR: KBPS, IGR: KBPS}
        traits = (await placement(running.admin, f"/resource_providers/{bridge}/traits"))["traits"]
        assert {"CUSTOM_PHYSNET_PHYSNET1", "CUSTOM_VNIC_TYPE_NORMAL"} <= set(traits)
        inventories = (await placement(running.admin, f"/resource_providers/{agent}/inventories"))["inventories"]
        assert {name: each["total"] for name, each in inventories.items()} == {PPS: KPPS}
        shown = await placement(running.admin, f"/resource_providers/{bridge}")
        assert shown["parent_provider_uuid"] == agent
        assert shown["root_provider_uuid"] == found["host1"]


async def test_a_networks_policy_is_claimed_and_a_created_port_below_2_72_refused(
    start: Start,
) -> None:
    async with start(hosts=TWO) as running:
        admin, found = running.admin, await providers(running.admin)
        bridge = found["host1:Open vSwitch agent:br-physnet1"]
        policy = await policy_of(admin, kbps=3_000)
        network = await network_on(admin, "physnet1", qos_policy_id=policy)
        port = await port_on(admin, await network_on(admin, "physnet2"), policy)
        admin.http.headers["OpenStack-API-Version"] = "compute 2.71"
        refused = await admin.ask_boot(networks=[{"port": port["id"]}])
        assert refused.status_code == 400
        assert "2.72" in refused.text
        asked = [await admin.boot(f"b{number}", networks=[{"uuid": network}]) for number in range(3)]
        await asyncio.gather(*(admin.settled(each) for each in asked))  # claims under way have a reason of their own
        asked.append(await admin.boot("b3", networks=[{"uuid": network}]))
        admin.http.headers["OpenStack-API-Version"] = "compute 2.104"
        servers = [await admin.settled(each) for each in asked]
        assert sorted(each["status"] for each in servers) == ["ACTIVE", "ACTIVE", "ACTIVE", "ERROR"]
        assert await used(admin, bridge) == {EGR: 9_000, IGR: 0}
        refused_server = next(each for each in servers if each["status"] == "ERROR")
        assert "not enough guaranteed bandwidth on any one device" in refused_server["fault"]["message"]
        told = await explained(admin, refused_server["id"])
        reasons = {each["host"]: each["reason"] for each in told["operations"][0]["ended"]["refused_hosts"]}
        assert reasons["host1"] == f"{EGR}: 3000 asked, at most 1000 free on one device"
        assert reasons["host2"].startswith(("no device on physical network PHYSNET1", "not wired"))
        (mine,) = (await admin.network("GET", "/ports", device_id=servers[0]["id"])).json()["ports"]
        (group,) = mine["resource_request"]["request_groups"]
        assert mine["binding:profile"]["allocation"] == {group["id"]: bridge}
        await asyncio.gather(*(admin.gone(each) for each in asked))
        assert await used(admin, bridge) == {EGR: 0, IGR: 0}
        await admin.network("DELETE", f"/ports/{port['id']}")


async def test_concurrent_boots_never_exceed_the_bridge(start: Start) -> None:
    async with start(hosts=TWO) as running:
        admin, found = running.admin, await providers(running.admin)
        network = await network_on(admin, "physnet1", qos_policy_id=await policy_of(admin, kbps=2_500))
        asked = await asyncio.gather(*(admin.boot(f"b{n}", networks=[{"uuid": network}]) for n in range(7)))
        servers = await asyncio.gather(*(admin.settled(each) for each in asked))
        assert sorted(each["status"] for each in servers) == ["ACTIVE"] * 4 + ["ERROR"] * 3
        assert await used(admin, found["host1:Open vSwitch agent:br-physnet1"]) == {EGR: KBPS, IGR: 0}
        first = next(each["id"] for each in servers if each["status"] == "ACTIVE")
        await admin.gone(first)
        await admin.active(networks=[{"uuid": network}])


async def crowd(admin: Person, network: str, count: int, least: int | None = None) -> list[dict[str, Any]]:
    """Several servers of one request, when all of them are settled."""
    reply = await admin.ask_boot(
        "crowd", networks=[{"uuid": network}], min_count=least or count, max_count=count, return_reservation_id=True
    )
    assert reply.status_code == 202, reply.text
    reservation = reply.json()["reservation_id"]
    listed = (await admin.compute("GET", "/servers/detail", reservation_id=reservation)).json()["servers"]
    assert len(listed) == count
    found: list[dict[str, Any]] = await asyncio.gather(*(admin.settled(each["id"]) for each in listed))
    return found


@pytest.mark.parametrize(("amounts", "least"), [({"kbps": 3_000}, None), ({"kbps": 3_000}, 1), ({"kpps": 30}, None)])
async def test_several_servers_of_one_request_are_all_guaranteed_or_none(
    start: Start, amounts: dict[str, int], least: int | None
) -> None:
    """Judged together before any is accepted, as several plain ones are: what does not fit in full is ERROR as one (RULES §17)."""
    async with start(hosts=TWO) as running:
        admin, found = running.admin, await providers(running.admin)
        bridge, agent = found["host1:Open vSwitch agent:br-physnet1"], found["host1:Open vSwitch agent"]
        network = await network_on(admin, "physnet1", qos_policy_id=await policy_of(admin, **amounts))
        too_many = await crowd(admin, network, 4, least)
        assert {each["status"] for each in too_many} == {"ERROR"}
        assert all("guaranteed" in each["fault"]["message"] for each in too_many), too_many[0]["fault"]
        assert not (await admin.network("GET", "/ports", network_id=network)).json()["ports"]
        assert (await used(admin, bridge))[EGR] == (await used(admin, agent))[PPS] == 0
        fitting = await crowd(admin, network, 3, least)
        assert {each["status"] for each in fitting} == {"ACTIVE"}
        assert await used(admin, bridge) == {EGR: 3 * amounts.get("kbps", 0), IGR: 0}
        assert await used(admin, agent) == {PPS: 3 * amounts.get("kpps", 0)}
        await asyncio.gather(*(admin.gone(each["id"]) for each in [*too_many, *fitting]))


async def test_a_refused_host_releases_its_bandwidth_and_the_binding_names_the_next(start: Start) -> None:
    """The same port, another host, another provider."""
    wires = Hosts(count=2, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS)
    async with start(hosts=wires) as running:
        admin, found = running.admin, await providers(running.admin)
        network = await network_on(admin, "physnet1")
        port = await port_on(admin, network, await policy_of(admin, kbps=6_000))
        running.dial("host1", start_guest=VerbDial(fail_times=1))
        running.dial("host2", start_guest=VerbDial(fail_times=1))
        refused = await admin.settled(await admin.boot(networks=[{"port": port["id"]}], name="refused-by-both"))
        assert refused["status"] == "ERROR"
        bridges = [found[f"host{n}:Open vSwitch agent:br-physnet1"] for n in (1, 2)]
        await running.wait_until_unlocked(refused["id"])  # it is ERROR before what it held is given back
        assert [await used(admin, each) for each in bridges] == [{EGR: 0, IGR: 0}] * 2
        assert (await show_port(admin, port["id"]))["binding:profile"] == {}
        await admin.gone(refused["id"])
        running.set_faults_everywhere()
        first = (await admin.active(networks=[{"port": port["id"]}]))["OS-EXT-SRV-ATTR:host"]
        await admin.gone((await show_port(admin, port["id"]))["device_id"])
        running.dial(first, start_guest=VerbDial(fail_times=1))  # it is liked best, for it has not failed since
        server = await admin.active(networks=[{"port": port["id"]}])
        attempts = (await explained(admin, server["id"]))["operations"][0]["attempts"]
        second = server["OS-EXT-SRV-ATTR:host"]
        assert [each["host"] for each in attempts] == [first, second]
        (allocation,) = (await show_port(admin, port["id"]))["binding:profile"]["allocation"].values()
        there, here = (found[f"{host}:Open vSwitch agent:br-physnet1"] for host in (first, second))
        assert allocation == here
        assert [await used(admin, each) for each in (there, here)] == [{EGR: 0, IGR: 0}, {EGR: 6_000, IGR: 0}]
        await admin.gone(server["id"])
        await admin.network("DELETE", f"/ports/{port['id']}")


async def test_bandwidth_of_a_tunnelled_network_is_that_of_the_tunnel_interface(start: Start) -> None:
    async with start(hosts=msgspec.structs.replace(TWO, count=1)) as running:
        admin, found = running.admin, await providers(running.admin)
        port = await port_on(admin, await admin.id_of("network", "private"), await policy_of(admin, kbps=7_000))
        (group,) = port["resource_request"]["request_groups"]
        assert group["required"] == ["CUSTOM_NETWORK_TUNNEL_PROVIDER", "CUSTOM_VNIC_TYPE_NORMAL"]
        server = await admin.active(networks=[{"port": port["id"]}])
        assert await used(admin, found["host1:Open vSwitch agent:rp_tunnelled"]) == {EGR: 7_000, IGR: 0}
        await admin.gone(server["id"])
        await admin.network("DELETE", f"/ports/{port['id']}")


async def test_each_group_of_a_flavor_is_served_by_one_provider(start: Start) -> None:
    """What an operator put below a host; a policy that is not said is `none`."""
    async with start(hosts=msgspec.structs.replace(TWO, count=2)) as running:
        admin, found = running.admin, await providers(running.admin)
        url = f"{admin.config.api.placement.url}/placement"
        headers = {"OpenStack-API-Version": "placement 1.39"}

        async def put(method: str, path: str, body: Any = None) -> None:
            reply = await admin.http.request(method, url + path, json=body, headers=headers)
            assert reply.is_success, reply.text

        await put("PUT", "/resource_classes/CUSTOM_ENGINE")
        engines = [new_uuid(), new_uuid()]
        for number, uuid in enumerate(engines):
            name = f"engine{number}"
            await put(
                "POST", "/resource_providers", {"name": name, "uuid": uuid, "parent_provider_uuid": found["host2"]}
            )
            inventories = {"CUSTOM_ENGINE": {"total": 3}}
            body = {"resource_provider_generation": 0, "inventories": inventories}
            await put("PUT", f"/resource_providers/{uuid}/inventories", body)

        async def flavor(name: str, **specs: str) -> str:
            made = {"flavor": {"name": name, "ram": 64, "vcpus": 1, "disk": 1}}
            key = str((await admin.compute("POST", "/flavors", made)).json()["flavor"]["id"])
            asked = {f"resources{n}:CUSTOM_ENGINE": "1" for n in (1, 2)} | specs
            reply = await admin.compute("POST", f"/flavors/{key}/os-extra_specs", {"extra_specs": asked})
            assert reply.status_code == 200, reply.text
            return name

        async def taken() -> list[int]:
            return [(await used(admin, uuid))["CUSTOM_ENGINE"] for uuid in engines]

        apart = await admin.active(flavor=await flavor("apart", group_policy="isolate"), networks="none")
        assert apart["OS-EXT-SRV-ATTR:host"] == "host2"
        assert await taken() == [1, 1]
        servers = [apart, await admin.active(flavor=await flavor("anyhow"), networks="none")]
        assert sum(await taken()) == 4
        servers.append(await admin.active(flavor="anyhow", networks="none"))
        assert await taken() == [3, 3]
        full = await admin.settled(await admin.boot(flavor="anyhow", networks="none"))
        assert "not enough CUSTOM_ENGINE on any one device" in full["fault"]["message"]
        for each in (*servers, full):
            await admin.gone(each["id"])
        assert await taken() == [0, 0]


async def test_a_created_port_is_guaranteed_while_old_hosts_create_ports(start: Start) -> None:
    """A host of level 1 binds the user's port to what was claimed; a network's policy wants a host that takes ports made before."""
    async with start(hosts=msgspec.structs.replace(TWO, count=1, levels=(1,))) as running:
        admin, found = running.admin, await providers(running.admin)
        bridge, policy = found["host1:Open vSwitch agent:br-physnet1"], await policy_of(admin, kbps=6_000)
        network = await network_on(admin, "physnet1")
        port = await port_on(admin, network, policy)
        server = await admin.active(networks=[{"port": port["id"]}])
        (group,) = port["resource_request"]["request_groups"]
        assert (await show_port(admin, port["id"]))["binding:profile"] == {"allocation": {group["id"]: bridge}}
        assert await used(admin, bridge) == {EGR: 6_000, IGR: 0}
        await admin.gone(server["id"])
        guaranteed = await network_on(admin, "physnet1", qos_policy_id=policy)
        refused = await admin.settled(await admin.boot(networks=[{"uuid": guaranteed}]))
        said = "No valid host was found. 1 host: the host's agent is too old for this request"
        assert refused["fault"]["message"] == said
        assert await used(admin, bridge) == {EGR: 0, IGR: 0}
        await admin.gone(refused["id"])
        await admin.network("DELETE", f"/ports/{port['id']}")


async def test_a_pinned_fleet_refuses_a_networks_policy_as_nova_does(start: Start) -> None:
    """`[upgrade_levels] compute = 1`: nothing is done that the oldest agents would not understand."""
    hosts = msgspec.structs.replace(TWO, count=1, levels=(2,))
    async with start(hosts=hosts, upgrade_levels=UpgradeLevels(compute=1)) as running:
        admin, found = running.admin, await providers(running.admin)
        network = await network_on(admin, "physnet1", qos_policy_id=await policy_of(admin, kbps=6_000))
        refused = await admin.settled(await admin.boot(networks=[{"uuid": network}]))
        assert refused["fault"]["message"].startswith("Using networks with QoS policy is not supported")
        assert await used(admin, found["host1:Open vSwitch agent:br-physnet1"]) == {EGR: 0, IGR: 0}
        await admin.gone(refused["id"])


async def unshelved_elsewhere(running: Running, server: str, found: dict[str, str]) -> None:
    """S1.4, S1.5: its port names the provider of its new host, bound by an agent of level 2, or for one of level 3."""
    admin, bridges = running.admin, {each: f"{each}:Open vSwitch agent:br-physnet1" for each in ("host2", "host3")}
    assert (await admin.compute("POST", f"/servers/{server}/action", {"shelve": None})).status_code == 202
    assert (await admin.settled(server))["status"] == "SHELVED_OFFLOADED"
    await running.wait_until_unlocked(server)
    assert [await used(admin, found[each]) for each in bridges.values()] == [{EGR: 0, IGR: 0}] * 2
    running.dial("host2", start_guest=VerbDial(fail_times=9))
    assert (await admin.compute("POST", f"/servers/{server}/action", {"unshelve": None})).status_code == 202
    seen = await admin.settled(server)
    assert (seen["status"], seen["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "host3"), await explained(admin, server)
    running.dial("host2")
    (port,) = (await admin.network("GET", "/ports", device_id=server)).json()["ports"]
    assert (port["binding:host_id"], port["status"]) == ("host3", "ACTIVE")
    assert list(port["binding:profile"]["allocation"].values()) == [found[bridges["host3"]]]
    assert await used(admin, found[bridges["host3"]]) == {EGR: 6_000, IGR: 0}
    assert await used(admin, found[bridges["host2"]]) == {EGR: 0, IGR: 0}


@pytest.mark.parametrize("level", [2, 3])
async def test_while_a_gate_is_shut_a_networks_policy_is_guaranteed_on_hosts_that_can(start: Start, level: int) -> None:
    """One host is of level 1, so ports are made late; those of a network with a policy are made early, for the other host."""
    wires = Hosts(count=3, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, levels=(1, level, level))
    async with start(hosts=wires, cells=(Cell("cell1"),)) as running:
        admin, found = running.admin, await providers(running.admin)
        gates = {
            each["name"]: each["open"] for each in (await admin.compute("GET", "/ext/gates")).json()["gates"]["gates"]
        }
        assert gates == {"early_ports": False, "bind_in_conductor": False}
        network = await network_on(admin, "physnet1", qos_policy_id=await policy_of(admin, kbps=6_000))
        running.dial("host2", start_guest=VerbDial(fail_times=9))
        servers = [await admin.active("first", networks=[{"uuid": network}])]
        running.dial("host2")
        servers.append(await admin.active("second", networks=[{"uuid": network}]))
        on = {each["OS-EXT-SRV-ATTR:host"]: each["id"] for each in servers}
        assert list(on) == ["host3", "host2"]
        for host, server in on.items():
            bridge = found[f"{host}:Open vSwitch agent:br-physnet1"]
            (port,) = (await admin.network("GET", "/ports", device_id=server)).json()["ports"]
            (group,) = port["resource_request"]["request_groups"]
            assert port["binding:profile"]["allocation"] == {group["id"]: bridge}
            assert await used(admin, bridge) == {EGR: 6_000, IGR: 0}
        assert await used(admin, found["host1:Open vSwitch agent:br-physnet1"]) == {EGR: 0, IGR: 0}
        await admin.gone(servers.pop(0)["id"])
        await unshelved_elsewhere(running, servers[0]["id"], found)
        for each in servers:
            await admin.gone(each["id"])
        assert not (await admin.network("GET", "/ports", network_id=network)).json()["ports"]
        for host in ("host2", "host3"):
            assert await used(admin, found[f"{host}:Open vSwitch agent:br-physnet1"]) == {EGR: 0, IGR: 0}
