"""Servers with guaranteed ports beside a real Neutron, which reports its agents' bandwidth into our Placement itself (S2, N5)."""

from typing import Any

import pytest
from beside import until, until_server
from guaranteed_site import BRIDGE, EGR, IGR, PPS, Site, admin, config, site  # noqa: F401  three of them are fixtures
from test_reporting import AGENT

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
        told = (await site.admin("compute", "GET", f"/ext/servers/{server}/explain"))["explain"]
        attempts = told["operations"][0]["attempts"]
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
