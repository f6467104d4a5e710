"""Servers with guaranteed ports with a real Neutron, which reports its agents' bandwidth to Moorage's Placement itself (S2, N5)."""

from typing import Any

import pytest
from tests.helpers.real_neutron_guarantees import BRIDGE, EGR, IGR, KBPS, PPS, Site, admin, config, site  # noqa: F401  three of them are fixtures
from tests.helpers.real_services_cloud import until, until_server
from tests.real.test_reporting import AGENT

from moorage.main.config import Config

pytestmark = pytest.mark.real


async def test_a_port_with_bandwidth_and_packet_rate_is_bound_to_what_was_claimed_for_it(site: Site) -> None:  # noqa: F811
    network, policy = await site.network(), await site.policy(6_000, 60)
    asked = {"port": {"network_id": network, "qos_policy_id": policy, "name": "guaranteed"}}
    port = (await site.alice("network", "POST", "/ports", asked))["port"]["id"]
    server = await site.boot(port=port)
    await until_server(site.alice, server, "ACTIVE")
    host = (await site.admin("compute", "GET", f"/servers/{server}"))["server"]["OS-EXT-SRV-ATTR:host"]
    assert host in {"host1", "host3"}
    bound = (await site.admin("network", "GET", f"/ports/{port}"))["port"]
    groups = {tuple(each["resources"]): each["id"] for each in bound["resource_request"]["request_groups"]}
    assert bound["binding:vif_type"] == "ovs"
    assert bound["binding:profile"]["allocation"] == {
        groups[(EGR,)]: await site.id_of(f"{host}:{BRIDGE}"),
        groups[(PPS,)]: await site.id_of(f"{host}:{AGENT}"),
    }
    assert await site.used(f"{host}:{BRIDGE}") == {EGR: 6_000, IGR: 0}
    assert await site.used(f"{host}:{AGENT}") == {PPS: 60}
    await site.gone(server)
    free = (await site.admin("network", "GET", f"/ports/{port}"))["port"]
    assert free["binding:profile"] == {}
    assert await site.used(f"{host}:{BRIDGE}") == {EGR: 0, IGR: 0}
    await site.admin("network", "DELETE", f"/ports/{port}")
    await site.admin("network", "DELETE", f"/networks/{network}")


async def test_a_networks_policy_is_guaranteed_to_every_server_on_it_until_there_is_no_more(site: Site) -> None:  # noqa: F811
    network = await site.network(qos_policy_id=await site.policy(6_000))
    servers = [await site.boot(uuid=network) for _ in range(3)]

    async def settled() -> list[Any]:
        return [(await site.admin("compute", "GET", f"/servers/{each}"))["server"] for each in servers]

    shown = await until(settled, lambda seen: all(each["status"] != "BUILD" for each in seen))
    assert sorted(each["status"] for each in shown) == ["ACTIVE", "ACTIVE", "ERROR"]
    hosts = {each["OS-EXT-SRV-ATTR:host"] for each in shown if each["status"] == "ACTIVE"}
    assert hosts == {"host1", "host3"}
    fault = next(each["fault"]["message"] for each in shown if each["status"] == "ERROR")
    assert "not enough guaranteed bandwidth on any one device" in fault
    for host in hosts:
        assert await site.used(f"{host}:{BRIDGE}") == {EGR: 6_000, IGR: 0}
    for each in servers:
        await site.gone(each)
    for host in hosts:
        assert await site.used(f"{host}:{BRIDGE}") == {EGR: 0, IGR: 0}
    left = await site.admin("network", "GET", f"/ports?network_id={network}")
    assert left["ports"] == []
    await site.admin("network", "DELETE", f"/networks/{network}")


async def test_when_a_host_refuses_the_binding_names_the_next_ones_provider(site: Site, config: Config) -> None:  # noqa: F811
    """The same port, bound again on another host with another provider's bandwidth."""
    network, policy = await site.network(), await site.policy(6_000)
    asked = {"port": {"network_id": network, "qos_policy_id": policy, "name": "guaranteed"}}
    port = (await site.alice("network", "POST", "/ports", asked))["port"]["id"]
    dials = config.data / "hosts" / "host1" / "dials.json"
    for _ in range(40):  # until one was sent to the refusing host first
        dials.write_text('{"verbs": {"start_guest": {"fail_times": 1}}}')
        server = await site.boot(port=port)
        await until_server(site.alice, server, "ACTIVE")
        assert_reported = (await site.admin("compute", "GET", f"/ext/servers/{server}/explain"))["explain"]
        attempts = assert_reported["operations"][0]["attempts"]
        if len(attempts) > 1:
            break
        await site.gone(server)
        dials.unlink()
    assert [each["host"] for each in attempts] == ["host1", "host3"]
    bound = (await site.admin("network", "GET", f"/ports/{port}"))["port"]
    assert bound["binding:host_id"] == "host3"
    assert list(bound["binding:profile"]["allocation"].values()) == [await site.id_of(f"host3:{BRIDGE}")]
    assert await site.used(f"host1:{BRIDGE}") == {EGR: 0, IGR: 0}
    assert await site.used(f"host3:{BRIDGE}") == {EGR: 6_000, IGR: 0}
    await site.gone(server)
    await site.admin("network", "DELETE", f"/ports/{port}")
    await site.admin("network", "DELETE", f"/networks/{network}")


class Changing:
    """A server with a guaranteed port, one without any guarantee, and one of a network's policy, all on one bridge."""

    def __init__(self, site: Site, server: str, host: str, ports: list[str], network: str) -> None:  # noqa: F811
        self.site, self.server, self.bridge, self.ports, self.network = site, server, f"{host}:{BRIDGE}", ports, network

    async def change(self, port: str, policy: str | None) -> int:
        body = {"port": {"qos_policy_id": policy}}
        return (await self.site.admin.ask("network", "PUT", f"/ports/{port}", body)).status_code

    async def holds(self, kbps: int) -> None:
        provider = await self.site.id_of(self.bridge)
        claim = (await self.site.admin("placement", "GET", f"/allocations/{self.server}"))["allocations"]
        assert claim.get(provider, {"resources": {}})["resources"] == ({EGR: kbps} if kbps else {})
        assert await self.site.used(self.bridge) == {EGR: kbps, IGR: 0}

    async def named(self, port: str) -> bool:
        """Whether the binding names the bridge, for the group that the port asks for now; else it names nothing."""
        shown = (await self.site.admin("network", "GET", f"/ports/{port}"))["port"]
        allocation = shown["binding:profile"].get("allocation", {})
        if allocation:
            groups = [each["id"] for each in shown["resource_request"]["request_groups"]]
            assert allocation == dict.fromkeys(groups, await self.site.id_of(self.bridge))
        return bool(allocation)

    async def audited(self) -> Any:
        """What an audit of everything finds."""
        admin = self.site.admin  # noqa: F811
        id = (await admin("compute", "POST", "/ext/audits", {"audit": {}}))["audit"]["id"]
        done = await until(
            lambda: admin("compute", "GET", f"/ext/audits/{id}"),
            lambda assert_reported: assert_reported["audit"]["ended_at"],
        )
        return [each for each in done["audit"]["findings"] if self.server in str(each)]


async def test_a_policy_that_changes_under_a_server_changes_what_is_claimed(site: Site) -> None:  # noqa: F811
    """Neutron changes the server's allocation in our Placement by itself, and says 409 only of what does not fit."""
    small, more, most = [await site.policy(kbps) for kbps in (1_000, 6_000, KBPS)]
    networks = await site.network(), await site.network("10.45.0.0/24", qos_policy_id=small)
    ports: list[str] = []
    for name, policy in (("guaranteed", small), ("plain", None)):
        asked = {"port": {"network_id": networks[0], "qos_policy_id": policy, "name": name}}
        ports.append((await site.alice("network", "POST", "/ports", asked))["port"]["id"])
    server = await site.boot({"port": ports[1]}, {"uuid": networks[1]}, port=ports[0])
    shown = await until_server(site.admin, server, "ACTIVE")
    bound = (await site.admin("network", "GET", f"/ports?device_id={server}&network_id={networks[1]}"))["ports"]
    one = Changing(site, server, shown["OS-EXT-SRV-ATTR:host"], [*ports, bound[0]["id"]], networks[1])
    guaranteed, plain, _ = one.ports
    await one.holds(2_000)

    assert await one.change(guaranteed, more) == 200
    await one.holds(7_000)
    assert await one.change(guaranteed, most) == 409
    await one.holds(7_000)
    assert [await one.named(each) for each in one.ports] == [True, False, True]
    assert await one.change(plain, more) == 200, (
        "for the data plane alone: which provider gives it, a scheduler decides"
    )
    await one.holds(7_000)
    assert await one.change(plain, None) == 200

    rules = f"/qos/policies/{small}/minimum_bandwidth_rules"
    (rule,) = (await site.admin("network", "GET", rules))["minimum_bandwidth_rules"]
    for method, path, body in (
        ("PUT", f"{rules}/{rule['id']}", {"minimum_bandwidth_rule": {"min_kbps": 2_000}}),
        ("DELETE", f"{rules}/{rule['id']}", None),
        ("POST", rules, {"minimum_bandwidth_rule": {"min_kbps": 10, "direction": "ingress"}}),
    ):
        reply = await site.admin.ask("network", method, path, body)
        assert reply.status_code == 501, "Neutron changes no rule of a policy whose ports servers have"
    await one.holds(7_000)

    body = {"network": {"qos_policy_id": more}}
    assert await one.change(guaranteed, small) == 200
    await site.admin("network", "PUT", f"/networks/{one.network}", body)
    await one.holds(7_000)
    assert [await one.named(each) for each in one.ports] == [True, False, True]
    assert await one.audited() == []
    assert await one.change(guaranteed, None) == 200
    await one.holds(6_000)
    assert [await one.named(each) for each in one.ports] == [False, False, True]
    await site.admin("network", "PUT", f"/networks/{one.network}", {"network": {"qos_policy_id": None}})
    await one.holds(0)
    assert await one.audited() == []
    await site.gone(server)
    assert await site.used(one.bridge) == {EGR: 0, IGR: 0}
