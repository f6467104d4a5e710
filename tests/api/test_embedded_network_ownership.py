"""What one may do with a resource that one only sees: every action that names a second resource, for every kind of caller.

The expected statuses are those of Neutron 29; the comments say by which of its rules (`conf/policies/*`) or functions.
Where a trunk names a port that somebody else owns, this service is stricter than Neutron, and asks for what a PUT of that port takes.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.helpers.embedded_network_cloud import Cloud, cloud

__all__ = ["cloud"]

OWN, OTHER, ALL, PROJECT, EXTERNAL, ON_MINE, ADMIN = "own", "other", "all", "project", "external", "on mine", "admin"
"""Whose it is: the caller's; another project's, not shared; shared with all; shared with the caller's project; an external
network for that project; another project's port on the caller's network; another project's, and the caller is an administrator."""
TOKENS = {OWN: "member", ADMIN: "admin"}
PROJECTS = {"member": "p1", "stranger": "p2", "admin": "ops"}


class Case:
    """A resource of project p1, and a caller who has something to do with it or nothing."""

    def __init__(self, cloud: Cloud, whose: str) -> None:
        self.cloud, self.whose = cloud, whose
        self.token = TOKENS.get(whose, "stranger")
        self.project = PROJECTS[self.token]

    async def make(self, path: str, noun: str, body: dict[str, Any], *, project: str = "p1") -> Any:
        return (await self.cloud.ok("POST", path, {noun: body | {"project_id": project}}))[noun]

    async def mine(self, path: str, noun: str, body: dict[str, Any]) -> Any:
        return await self.make(path, noun, body, project=self.project)

    async def status(self, method: str, path: str, body: Any) -> int:
        return (await self.cloud.call(method, path, body, token=self.token)).status_code

    async def shared(self, kind: str, made: Any) -> Any:
        target = {ALL: "*", PROJECT: "p2", EXTERNAL: "p2"}.get(self.whose)
        if target is not None:
            action = "access_as_external" if self.whose == EXTERNAL else "access_as_shared"
            said = {"object_type": kind, "object_id": made["id"], "action": action, "target_tenant": target}
            await self.cloud.ok("POST", "/rbac-policies", {"rbac_policy": said})
        return made

    async def network(self) -> Any:
        return await self.shared("network", await self.make("/networks", "network", {"name": "theirs"}))

    async def subnet(self) -> Any:
        net = await self.network()
        said = {"network_id": net["id"], "ip_version": 4, "cidr": "10.5.0.0/24"}
        return await self.make("/subnets", "subnet", said)

    async def port(self) -> Any:
        """A port of p1: on p1's own network, or on that of the caller."""
        owner = self.project if self.whose == ON_MINE else "p1"
        net = await self.make("/networks", "network", {"name": "of ports"}, project=owner)
        said = {"network_id": net["id"], "ip_version": 4, "cidr": "10.6.0.0/24"}
        await self.make("/subnets", "subnet", said, project=owner)
        return await self.make("/ports", "port", {"network_id": net["id"]})

    async def router(self) -> str:
        return str((await self.mine("/routers", "router", {"name": "mine"}))["id"])

    async def my_network(self) -> str:
        return str((await self.mine("/networks", "network", {"name": "mine"}))["id"])

    async def policy(self) -> str:
        made = await self.make("/qos/policies", "policy", {"name": "theirs"})
        return str((await self.shared("qos_policy", made))["id"])

    async def group(self) -> str:
        made = await self.make("/security-groups", "security_group", {"name": "theirs"})
        return str((await self.shared("security_group", made))["id"])


Act = Callable[[Case], Awaitable[int]]


async def port_on_network(case: Case, **more: Any) -> int:
    return await case.status("POST", "/ports", {"port": {"network_id": (await case.network())["id"]} | more})


async def port_on_subnet(case: Case, **more: Any) -> int:
    subnet = await case.subnet()
    said = {"network_id": subnet["network_id"], "fixed_ips": [{"subnet_id": subnet["id"]} | more]}
    return await case.status("POST", "/ports", {"port": said})


async def subnet_on_network(case: Case) -> int:
    said = {"network_id": (await case.network())["id"], "ip_version": 4, "cidr": "10.7.0.0/24"}
    return await case.status("POST", "/subnets", {"subnet": said})


async def subnet_on_segment(case: Case) -> int:
    net = (await case.network())["id"]
    (segment,) = (await case.cloud.get("/segments", network_id=net))["segments"]
    said = {"network_id": net, "ip_version": 4, "cidr": "10.7.0.0/24", "segment_id": segment["id"]}
    return await case.status("POST", "/subnets", {"subnet": said})


async def interface_by_subnet(case: Case) -> int:
    body = {"subnet_id": (await case.subnet())["id"]}
    return await case.status("PUT", f"/routers/{await case.router()}/add_router_interface", body)


async def gateway(case: Case) -> int:
    info = {"network_id": (await case.subnet())["network_id"]}
    return await case.status("POST", "/routers", {"router": {"external_gateway_info": info}})


async def floating_ip(case: Case) -> int:
    said = {"floating_network_id": (await case.subnet())["network_id"]}
    return await case.status("POST", "/floatingips", {"floatingip": said})


async def share_network(case: Case) -> int:
    said = {"object_type": "network", "object_id": (await case.network())["id"], "action": "access_as_shared",
            "target_tenant": "p3"}  # fmt: skip
    return await case.status("POST", "/rbac-policies", {"rbac_policy": said})


async def share_group(case: Case) -> int:
    said = {"object_type": "security_group", "object_id": await case.group(), "action": "access_as_shared",
            "target_tenant": "p3"}  # fmt: skip
    return await case.status("POST", "/rbac-policies", {"rbac_policy": said})


async def interface_by_port(case: Case) -> int:
    body = {"port_id": (await case.port())["id"]}
    return await case.status("PUT", f"/routers/{await case.router()}/add_router_interface", body)


async def trunk_parent(case: Case) -> int:
    return await case.status("POST", "/trunks", {"trunk": {"port_id": (await case.port())["id"]}})


async def _trunk(case: Case, sub_ports: list[Any]) -> dict[str, Any]:
    parent = await case.mine("/ports", "port", {"network_id": await case.my_network()})
    return {"port_id": parent["id"], "sub_ports": sub_ports}


async def subport(case: Case) -> int:
    sub = {"port_id": (await case.port())["id"], "segmentation_type": "vlan", "segmentation_id": 7}
    return await case.status("POST", "/trunks", {"trunk": await _trunk(case, [sub])})


async def added_subport(case: Case) -> int:
    sub = {"port_id": (await case.port())["id"], "segmentation_type": "vlan", "segmentation_id": 7}
    trunk = await case.mine("/trunks", "trunk", await _trunk(case, []))
    return await case.status("PUT", f"/trunks/{trunk['id']}/add_subports", {"sub_ports": [sub]})


async def _ways_out(case: Case) -> tuple[str, str]:
    """The id of an external network that p1's port is reached from, and that of the port."""
    port = await case.port()
    out = await case.make("/networks", "network", {"name": "out", "router:external": True}, project="ops")
    said = {"network_id": out["id"], "ip_version": 4, "cidr": "203.0.113.0/24"}
    await case.make("/subnets", "subnet", said, project="ops")
    router = await case.make("/routers", "router", {"external_gateway_info": {"network_id": out["id"]}})
    inside = {"subnet_id": port["fixed_ips"][0]["subnet_id"]}
    await case.cloud.ok("PUT", f"/routers/{router['id']}/add_router_interface", inside)
    return out["id"], port["id"]


async def floating_ip_of_port(case: Case) -> int:
    out, port = await _ways_out(case)
    return await case.status("POST", "/floatingips", {"floatingip": {"floating_network_id": out, "port_id": port}})


async def floating_ip_moved(case: Case) -> int:
    out, port = await _ways_out(case)
    mine = await case.mine("/floatingips", "floatingip", {"floating_network_id": out})
    return await case.status("PUT", f"/floatingips/{mine['id']}", {"floatingip": {"port_id": port}})


async def change_port(case: Case) -> int:
    return await case.status("PUT", f"/ports/{(await case.port())['id']}", {"port": {"name": "x"}})


async def binding(case: Case) -> int:
    port = (await case.port())["id"]
    await case.cloud.ok("PUT", f"/ports/{port}", {"port": {"device_owner": "compute:nova"}})
    return await case.status("POST", f"/ports/{port}/bindings", {"binding": {"host": "cmp1"}})


async def remote_group(case: Case) -> int:
    mine = await case.mine("/security-groups", "security_group", {"name": "mine"})
    said = {"security_group_id": mine["id"], "direction": "ingress", "remote_group_id": await case.group()}
    return await case.status("POST", "/security-group-rules", {"security_group_rule": said})


async def remote_address_group(case: Case) -> int:
    made = await case.make("/address-groups", "address_group", {"name": "theirs"})
    await case.shared("address_group", made)
    mine = await case.mine("/security-groups", "security_group", {"name": "mine"})
    said = {"security_group_id": mine["id"], "direction": "ingress", "remote_address_group_id": made["id"]}
    return await case.status("POST", "/security-group-rules", {"security_group_rule": said})


async def rule_in_group(case: Case) -> int:
    said = {"security_group_id": await case.group(), "direction": "ingress"}
    return await case.status("POST", "/security-group-rules", {"security_group_rule": said})


async def group_of_port(case: Case) -> int:
    said = {"network_id": await case.my_network(), "security_groups": [await case.group()]}
    return await case.status("POST", "/ports", {"port": said})


async def policy_of_port(case: Case) -> int:
    said = {"network_id": await case.my_network(), "qos_policy_id": await case.policy()}
    return await case.status("POST", "/ports", {"port": said})


async def policy_of_network(case: Case) -> int:
    return await case.status("POST", "/networks", {"network": {"qos_policy_id": await case.policy()}})


async def policy_of_changed_network(case: Case) -> int:
    said = {"network": {"qos_policy_id": await case.policy()}}
    return await case.status("PUT", f"/networks/{await case.my_network()}", said)


async def subnet_of_pool(case: Case) -> int:
    said = {"name": "p", "prefixes": ["10.200.0.0/16"], "default_prefixlen": 24, "shared": case.whose == ALL}
    pool = await case.make("/subnetpools", "subnetpool", said)
    subnet = {"network_id": await case.my_network(), "ip_version": 4, "subnetpool_id": pool["id"]}
    return await case.status("POST", "/subnets", {"subnet": subnet})


async def pool_in_scope(case: Case) -> int:
    said = {"name": "s", "ip_version": 4, "shared": case.whose == ALL}
    scope = await case.make("/address-scopes", "address_scope", said)
    pool = {"name": "p", "prefixes": ["10.200.0.0/16"], "address_scope_id": scope["id"]}
    return await case.status("POST", "/subnetpools", {"subnetpool": pool})


async def port_of_router(case: Case, owner: str) -> int:
    router = await case.make("/routers", "router", {"name": "theirs"})
    said = {"network_id": await case.my_network(), "device_id": router["id"], "device_owner": owner}
    return await case.status("POST", "/ports", {"port": said})


async def port_becomes_routers(case: Case) -> int:
    router = await case.make("/routers", "router", {"name": "theirs"})
    mine = await case.mine("/ports", "port", {"network_id": await case.my_network()})
    said = {"device_id": router["id"], "device_owner": "network:router_interface"}
    return await case.status("PUT", f"/ports/{mine['id']}", {"port": said})


OF_NETWORK = (OWN, OTHER, ALL, PROJECT, EXTERNAL, ADMIN)
OF_PORT = (OWN, OTHER, ON_MINE, ADMIN)
SHARED = (OWN, OTHER, ALL, PROJECT, ADMIN)
FOR_ALL = (OWN, OTHER, ALL, ADMIN)
TWO = (OWN, OTHER, ADMIN)
TABLE: list[tuple[Act, tuple[str, ...], tuple[int, ...]]] = [
    # create_port: ADMIN_OR_SERVICE, NET_OWNER_MEMBER or rule:shared; a network that is not visible is not found
    (port_on_network, OF_NETWORK, (201, 404, 201, 201, 403, 201)),
    # create_port:fixed_ips:subnet_id: rule:shared is enough
    (port_on_subnet, OF_NETWORK, (201, 404, 201, 201, 403, 201)),
    # create_port:fixed_ips:ip_address, :allowed_address_pairs, :mac_address, :port_security_enabled: NET_OWNER_MEMBER
    (lambda case: port_on_subnet(case, ip_address="10.5.0.9"), OF_NETWORK, (201, 404, 403, 403, 403, 201)),
    (lambda case: port_on_network(case, allowed_address_pairs=[{"ip_address": "10.5.0.0/24"}]), OF_NETWORK,
     (201, 404, 403, 403, 403, 201)),
    (lambda case: port_on_network(case, mac_address="fa:16:3e:00:00:01"), OF_NETWORK, (201, 404, 403, 403, 403, 201)),
    (lambda case: port_on_network(case, port_security_enabled=False), OF_NETWORK, (201, 404, 403, 403, 403, 201)),
    # create_port:device_owner: not rule:network_device, or NET_OWNER_MEMBER
    (lambda case: port_on_network(case, device_owner="network:dhcp"), OF_NETWORK, (201, 404, 403, 403, 403, 201)),
    # create_subnet: ADMIN_OR_NET_OWNER_MEMBER; create_subnet:segment_id: ADMIN, which Neutron writes
    # down and does not ask (201 for owners)
    (subnet_on_network, OF_NETWORK, (201, 403, 403, 403, 403, 201)),
    (subnet_on_segment, OF_NETWORK, (403, 403, 403, 403, 403, 201)),
    # db/l3_db.py _add_interface_by_subnet: own, or shared with just this project; BadRequest otherwise
    (interface_by_subnet, OF_NETWORK, (200, 404, 400, 200, 400, 200)),
    # db/l3_db.py _validate_gw_info and _create_floatingip: a visible network that is external
    (gateway, OF_NETWORK, (400, 404, 400, 400, 201, 400)),
    (floating_ip, OF_NETWORK, (400, 404, 400, 400, 201, 400)),
    # db_base_plugin_v2.py _validate_network_rbac_policy_change, objects/rbac_db.py: InvalidInput for objects of others
    (share_network, OF_NETWORK, (201, 400, 400, 400, 400, 201)),
    (share_group, SHARED, (201, 400, 400, 400, 201)),
    # update_port: ADMIN_OR_SERVICE or PROJECT_MEMBER; who owns the network sees the port
    (change_port, OF_PORT, (200, 404, 403, 200)),
    # stricter than Neutron, which makes the port part of the trunk (201)
    (trunk_parent, OF_PORT, (201, 404, 403, 201)),
    (subport, OF_PORT, (201, 404, 403, 201)),
    (added_subport, OF_PORT, (200, 404, 403, 200)),
    # create_port_binding: SERVICE
    (binding, OF_PORT, (403, 403, 403, 403)),
    # db/l3_db.py _internal_fip_assoc_data: BadRequest, owned by a different project
    (floating_ip_of_port, OF_PORT, (201, 404, 400, 201)),
    (floating_ip_moved, OF_PORT, (200, 404, 400, 200)),
    # db/securitygroups_db.py _check_security_group, _get_security_groups_on_port; create_security_group_rule: ADMIN_OR_SG_OWNER
    (remote_group, SHARED, (201, 404, 201, 201, 201)),
    (remote_address_group, SHARED, (201, 404, 201, 201, 201)),
    (group_of_port, SHARED, (201, 404, 201, 201, 201)),
    (rule_in_group, SHARED, (201, 403, 403, 403, 201)),
    # objects/qos/policy.py get_policy_obj: QosPolicyNotFound
    (policy_of_port, SHARED, (201, 404, 201, 201, 201)),
    (policy_of_network, SHARED, (201, 404, 201, 201, 201)),
    (policy_of_changed_network, SHARED, (200, 404, 200, 200, 200)),
    # db_base_plugin_v2.py: SubnetPool.get_object by the context; _validate_address_scope_id: is_accessible
    (subnet_of_pool, FOR_ALL, (201, 404, 201, 201)),
    (pool_in_scope, FOR_ALL, (201, 404, 201, 201)),
    # db_base_plugin_v2.py _enforce_device_owner_not_router_intf_or_device_id: DeviceIDNotOwnedByTenant
    (interface_by_port, OF_PORT, (200, 404, 409, 200)),
    (lambda case: port_of_router(case, "network:router_interface"), TWO, (201, 409, 201)),
    (port_becomes_routers, TWO, (200, 409, 200)),
    (lambda case: port_of_router(case, "network:router_gateway"), TWO, (201, 409, 201)),  # ours: it would be the gateway
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(TABLE)), ids=lambda row: TABLE[row][0].__name__)
async def test_what_one_sees_is_not_what_one_owns(cloud: Cloud, row: int) -> None:
    act, relations, expected = TABLE[row]
    for project in {*PROJECTS.values()}:
        await cloud.ok("PUT", f"/quotas/{project}", {"quota": {"network": -1, "router": -1, "security_group": -1,
                                                               "rbac_policy": -1, "floatingip": -1}})  # fmt: skip
    assert len(relations) == len(expected)
    found = {}
    for whose in relations:
        case = Case(cloud, whose)
        found[whose] = await act(case)
        for group in (await cloud.get("/security-groups"))["security_groups"]:
            if group["name"] == "theirs" and group["project_id"] == "p1":  # names of the next case
                await cloud.ok("PUT", f"/security-groups/{group['id']}", {"security_group": {"name": f"was {whose}"}})
    assert found == dict(zip(relations, expected, strict=True))


async def test_an_address_out_of_the_pools_of_a_shared_subnet_makes_no_interface(cloud: Cloud) -> None:
    """Else a port that an administrator made for a project would make that project's router the gateway of all."""
    case = Case(cloud, ALL)
    subnet = await case.subnet()
    fixed = {"subnet_id": subnet["id"], "ip_address": subnet["gateway_ip"]}
    port = await case.mine("/ports", "port", {"network_id": subnet["network_id"], "fixed_ips": [fixed]})
    path = f"/routers/{await case.router()}/add_router_interface"
    refused = await cloud.call("PUT", path, {"port_id": port["id"]}, token="stranger")
    assert (refused.status_code, "out of the allocation pool" in refused.text) == (400, True), refused.text
    usual = await case.mine("/ports", "port", {"network_id": subnet["network_id"]})
    await cloud.ok("PUT", path, {"port_id": usual["id"]}, token="stranger")


async def test_refusals_are_sentences_of_neutron(cloud: Cloud) -> None:
    case = Case(cloud, ALL)
    subnet = await case.subnet()
    path = f"/routers/{await case.router()}/add_router_interface"
    refused = (await cloud.call("PUT", path, {"subnet_id": subnet["id"]}, token="stranger")).json()["NeutronError"]
    assert refused["message"] == (
        f"Bad router request: Cannot add interface to router because subnet {subnet['id']}"
        " is not owned by project making the request."
    )
    mine = Case(cloud, ON_MINE)
    out, port = await _ways_out(mine)
    body = {"floatingip": {"floating_network_id": out, "port_id": port}}
    refused = (await cloud.call("POST", "/floatingips", body, token="stranger")).json()["NeutronError"]
    assert refused["message"].endswith(f"Port {port}, since that port is owned by a different project.")


async def test_who_put_a_pool_into_a_shared_scope_does_not_change_it(cloud: Cloud) -> None:
    case = Case(cloud, ALL)
    scope = await case.make("/address-scopes", "address_scope", {"name": "s", "ip_version": 4, "shared": True})
    said = {"name": "p", "prefixes": ["10.200.0.0/16"], "address_scope_id": scope["id"]}
    pool = (await cloud.ok("POST", "/subnetpools", {"subnetpool": said}, token="stranger"))["subnetpool"]
    change = {"subnetpool": {"address_scope_id": None}}
    assert await case.status("PUT", f"/subnetpools/{pool['id']}", change) == 400
    await cloud.ok("PUT", f"/subnetpools/{pool['id']}", change, token="admin")
