"""Address scopes of the embedded network service, and the pools and networks in them."""

from typing import Any

from tests.helpers.embedded_network_cloud import Cloud, cloud

__all__ = ["cloud"]


async def scope(cloud: Cloud, token: str = "member", **said: Any) -> dict[str, Any]:
    made = await cloud.ok(
        "POST", "/address-scopes", {"address_scope": {"name": "s", "ip_version": 4, **said}}, token=token
    )
    return dict(made["address_scope"])


async def refused(cloud: Cloud, method: str, path: str, body: Any = None, token: str = "member") -> tuple[int, str]:
    answer = await cloud.call(method, path, body, token=token)
    return answer.status_code, answer.json()["NeutronError"]["type"]


async def test_a_scope_is_made_found_changed_and_removed(cloud: Cloud) -> None:
    made = await scope(cloud)
    assert made == {
        "id": made["id"], "project_id": "p1", "tenant_id": "p1", "name": "s", "ip_version": 4, "shared": False
    }  # fmt: skip
    path = f"/address-scopes/{made['id']}"
    assert (await cloud.get("/address-scopes", name="s"))["address_scopes"] == [made]
    changed = await cloud.ok("PUT", path, {"address_scope": {"name": "t"}}, token="member")
    assert changed["address_scope"]["name"] == "t"
    shared = {"address_scope": {"shared": True}}
    assert (await cloud.call("PUT", path, shared, token="member")).status_code == 403
    assert (await cloud.ok("PUT", path, shared))["address_scope"]["shared"] is True
    assert await refused(cloud, "PUT", path, {"address_scope": {"shared": False}}, "admin") == (
        400,
        "AddressScopeUpdateError",
    )
    for odd in ({"ip_version": 5}, {}, {"ip_version": 4, "colour": "red"}):
        assert (await cloud.call("POST", "/address-scopes", {"address_scope": odd})).status_code == 400
    await cloud.ok("DELETE", path, token="member")
    assert await refused(cloud, "GET", path) == (404, "AddressScopeNotFound")


async def test_pools_of_a_scope_share_no_prefix_and_networks_show_it(cloud: Cloud) -> None:
    inside, six = await scope(cloud), await scope(cloud, ip_version=6)
    hidden = await scope(cloud, "admin")

    def pool(prefix: str, within: str | None) -> dict[str, Any]:
        return {"subnetpool": {"name": "p", "prefixes": [prefix], "address_scope_id": within}}

    made = (await cloud.ok("POST", "/subnetpools", pool("10.64.0.0/16", inside["id"]), token="member"))["subnetpool"]
    for prefix, within, why in (
        ("10.64.1.0/24", inside["id"], (409, "AddressScopePrefixConflict")),
        ("10.65.0.0/16", six["id"], (400, "IllegalSubnetPoolIpVersionAssociationToAddressScope")),
        ("10.65.0.0/16", hidden["id"], (404, "AddressScopeNotFound")),
        ("10.65.0.0/16", "0d0c0b0a-0000-4000-8000-00000000ffff", (404, "AddressScopeNotFound")),
    ):
        assert await refused(cloud, "POST", "/subnetpools", pool(prefix, within)) == why
    beside = (await cloud.ok("POST", "/subnetpools", pool("10.65.0.0/16", inside["id"]), token="member"))["subnetpool"]
    widened = {"subnetpool": {"prefixes": ["10.64.0.0/16", "10.65.0.0/16"]}}
    assert (await refused(cloud, "PUT", f"/subnetpools/{made['id']}", widened))[1] == "AddressScopePrefixConflict"
    assert await refused(cloud, "DELETE", f"/address-scopes/{inside['id']}") == (409, "AddressScopeInUse")

    network = (await cloud.ok("POST", "/networks", {"network": {"name": "n"}}, token="member"))["network"]["id"]

    async def shown() -> Any:
        return (await cloud.get(f"/networks/{network}"))["network"]["ipv4_address_scope"]

    assert await shown() is None
    carved = {"subnet": {"network_id": network, "ip_version": 4, "subnetpool_id": made["id"], "prefixlen": 26}}
    subnet = (await cloud.ok("POST", "/subnets", carved, token="member"))["subnet"]["id"]
    assert await shown() == inside["id"]
    out = {"subnetpool": {"address_scope_id": None}}
    await cloud.ok("PUT", f"/subnetpools/{made['id']}", out, token="member")
    assert await shown() is None
    await cloud.ok(
        "PUT", f"/subnetpools/{made['id']}", {"subnetpool": {"address_scope_id": inside["id"]}}, token="member"
    )
    assert await shown() == inside["id"]
    other = {"subnet": {"network_id": network, "ip_version": 4, "cidr": "10.1.0.0/24"}}
    alone = (await cloud.ok("POST", "/subnets", other, token="member"))["subnet"]["id"]
    assert (await refused(cloud, "PUT", f"/subnetpools/{made['id']}", out))[1] == "NetworkAddressScopeAffinityError"
    await cloud.ok("DELETE", f"/subnets/{alone}", token="member")
    await cloud.ok("DELETE", f"/subnets/{subnet}", token="member")
    assert await shown() is None
    for each in (made, beside):
        await cloud.ok("DELETE", f"/subnetpools/{each['id']}", token="member")
    await cloud.ok("DELETE", f"/address-scopes/{inside['id']}", token="member")
