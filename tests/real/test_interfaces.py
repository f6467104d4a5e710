"""Interfaces attached to running servers with a real Neutron, and its events about their ports afterwards (N5, C13).

Its nova notifier finds us in the catalog; nobody else tells us that a port was deleted or given another address.
"""

from typing import Any

import pytest
from tests.helpers.real_neutron_guarantees import BRIDGE, EGR, IGR, Site, admin, config, site  # noqa: F401  three of them are fixtures
from tests.helpers.real_services_cloud import until, until_server

pytestmark = pytest.mark.real

FREE = {EGR: 0, IGR: 0}


async def attached(site: Site, server: str, **wish: Any) -> Any:  # noqa: F811
    body = {"interfaceAttachment": wish}
    return (await site.alice("compute", "POST", f"/servers/{server}/os-interface", body))["interfaceAttachment"]


async def ports_of(site: Site, server: str) -> set[str]:  # noqa: F811
    rows = (await site.alice("compute", "GET", f"/servers/{server}/os-interface"))["interfaceAttachments"]
    return {each["port_id"] for each in rows}


async def test_a_guaranteed_port_deleted_in_neutron_frees_its_claim(site: Site) -> None:  # noqa: F811
    plain, network = await site.network(), await site.network(qos_policy_id=await site.policy(6_000))
    server = await site.boot(uuid=plain)
    await until_server(site.alice, server, "ACTIVE")
    host = (await site.admin("compute", "GET", f"/servers/{server}"))["server"]["OS-EXT-SRV-ATTR:host"]
    bridge = f"{host}:{BRIDGE}"
    first = await attached(site, server, net_id=network)
    assert len(first["fixed_ips"]) == 1
    assert await site.used(bridge) == {EGR: 6_000, IGR: 0}
    refused = await site.alice.ask(
        "compute", "POST", f"/servers/{server}/os-interface", {"interfaceAttachment": {"net_id": network}}
    )
    assert refused.status_code == 400, refused.text
    assert "Failed to allocate additional resources" in refused.text
    left = (await site.admin("network", "GET", f"/ports?network_id={network}&device_id={server}"))["ports"]
    assert [each["id"] for each in left] == [first["port_id"]]

    await site.admin("network", "DELETE", f"/ports/{first['port_id']}")
    await until(lambda: site.used(bridge), lambda used: used == FREE)
    assert first["port_id"] not in await ports_of(site, server)

    second = await attached(site, server, net_id=network)
    assert await site.used(bridge) == {EGR: 6_000, IGR: 0}
    await site.alice("compute", "DELETE", f"/servers/{server}/os-interface/{second['port_id']}")
    await until(lambda: site.used(bridge), lambda used: used == FREE)
    assert (await site.admin.ask("network", "GET", f"/ports/{second['port_id']}")).status_code == 404
    await site.gone(server)
    for each in (plain, network):
        await site.admin("network", "DELETE", f"/networks/{each}")


async def test_an_address_given_in_neutron_is_shown(site: Site) -> None:  # noqa: F811
    network = await site.network()
    server = await site.boot(uuid=network)
    await until_server(site.alice, server, "ACTIVE")
    (port,) = (await site.admin("network", "GET", f"/ports?device_id={server}"))["ports"]
    more = [*port["fixed_ips"], {"subnet_id": port["fixed_ips"][0]["subnet_id"]}]
    asked = {"port": {"fixed_ips": more}}
    given = (await site.admin("network", "PUT", f"/ports/{port['id']}", asked))["port"]["fixed_ips"]

    async def shown() -> set[str]:
        found = (await site.alice("compute", "GET", f"/servers/{server}"))["server"]["addresses"]
        return {each["addr"] for each in found["guaranteed"]}

    await until(shown, lambda seen: seen == {each["ip_address"] for each in given})
    await site.gone(server)
    await site.admin("network", "DELETE", f"/networks/{network}")


async def test_the_users_port_comes_and_goes_as_it_was(site: Site) -> None:  # noqa: F811
    network = await site.network()
    server = await site.boot(uuid=network)
    await until_server(site.alice, server, "ACTIVE")
    asked = {"port": {"network_id": network, "name": "mine"}}
    port = (await site.alice("network", "POST", "/ports", asked))["port"]
    await attached(site, server, port_id=port["id"])
    bound = (await site.admin("network", "GET", f"/ports/{port['id']}"))["port"]
    assert (bound["device_id"], bound["binding:vif_type"]) == (server, "ovs")
    await site.alice("compute", "DELETE", f"/servers/{server}/os-interface/{port['id']}")

    async def now() -> Any:
        return (await site.admin("network", "GET", f"/ports/{port['id']}"))["port"]

    free = await until(now, lambda seen: seen["device_id"] == "")
    assert (free["binding:host_id"], free["fixed_ips"]) == ("", port["fixed_ips"])
    await until(lambda: ports_of(site, server), lambda seen: port["id"] not in seen)
    await site.gone(server)
    await site.admin("network", "DELETE", f"/ports/{port['id']}")
    await site.admin("network", "DELETE", f"/networks/{network}")
