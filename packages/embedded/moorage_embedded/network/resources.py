"""The resources of the API: path, attributes, visibility, and methods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage_embedded.network import (
    address_groups,
    address_scopes,
    floating_ips,
    hosts,
    networks,
    ownership,
    ports,
    qos,
    removal,
    routers,
    security_group_rules,
    security_groups,
    segments,
    sharing,
    subnet_pools,
    subnets,
    trunks,
)
from moorage_embedded.network.attributes import Attr
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.request import NetworkCall
from moorage_embedded.network.store import Doc


def _plain(call: NetworkCall, doc: Doc) -> Doc:
    return {name: value for name, value in doc.items() if not name.startswith("_")}


def _own(call: NetworkCall, doc: Doc) -> bool:
    return call.who.reads(doc["project_id"])


def _admins(call: NetworkCall, doc: Doc) -> bool:
    return call.who.admin


def _visible(noun: str) -> Callable[[NetworkCall, Doc], bool]:
    return lambda call, doc: ownership.visible(call.store, call.who, noun, doc)


def _put(noun: str) -> Callable[[NetworkCall, Doc], None]:
    return lambda call, doc: call.store.put(noun, doc)


@dataclass(frozen=True)
class ResourceType:
    """One kind of thing."""

    name: str
    plural: str
    attrs: Mapping[str, Attr]
    visible: Callable[[NetworkCall, Doc], bool]
    create: Callable[[NetworkCall, list[Any]], list[Doc]] | None
    update: Callable[[NetworkCall, Doc, Any], Doc] | None
    delete: Callable[[NetworkCall, Doc], None] | None
    put: Callable[[NetworkCall, Doc], None]
    view: Callable[[NetworkCall, Doc], Doc] = _plain
    columns: Mapping[str, str] = ()  # type: ignore[assignment]
    """Filters that SQL answers: attribute → column."""
    tagged: bool = True
    revised: bool = True
    may_list: Callable[[NetworkCaller], bool] = lambda who: who.reader or who.everywhere
    filters: tuple[str, ...] = ()
    path: str = ""

    @property
    def place(self) -> str:
        return self.path or self.plural.replace("_", "-")


def _subnet_view(call: NetworkCall, doc: Doc) -> Doc:
    shown = _plain(call, doc)
    if not call.who.admin:
        shown.pop("segment_id", None)
    return shown


NETWORK = ResourceType(
    "network", "networks", networks.ATTRS, _visible("network"),
    networks.create, qos.update_network, removal.delete_network, _put("network"),
    view=lambda call, doc: networks.view(call.who, doc), columns={"id": "id", "project_id": "project"},
)  # fmt: skip
SUBNET = ResourceType(
    "subnet", "subnets", subnets.ATTRS, _visible("subnet"),
    subnets.create, subnets.update, removal.delete_subnet, _put("subnet"), view=_subnet_view,
    columns={"id": "id", "project_id": "project", "network_id": "parent"}, filters=("shared",),
)  # fmt: skip
PORT = ResourceType(
    "port", "ports", ports.ATTRS, _visible("port"), ports.create, ports.update, ports.delete, _put("port"),
    view=lambda call, doc: ports.view(call.who, doc),
    columns={"id": "id", "project_id": "project", "network_id": "network", "device_id": "device",
             "device_owner": "owner", "mac_address": "mac", "binding:host_id": "host"},
    filters=("ip_address_substr",),
)  # fmt: skip
SEGMENT = ResourceType(
    "segment", "segments", segments.ATTRS, _admins, segments.create, segments.update, segments.delete,
    _put("segment"), columns={"id": "id", "network_id": "parent"}, tagged=False, may_list=lambda who: who.admin,
    view=lambda call, doc: {name: doc[name] for name in doc if name not in {"project_id", "tenant_id"}},
)  # fmt: skip
GROUP = ResourceType(
    "security_group", "security_groups", security_groups.ATTRS, _visible("security_group"),
    security_groups.create, security_groups.update, security_groups.delete, security_groups.put,
    view=lambda call, doc: security_groups.view(call.store, doc), columns={"id": "id", "project_id": "project"},
)  # fmt: skip
RULE = ResourceType(
    "security_group_rule", "security_group_rules", security_group_rules.ATTRS,
    lambda call, doc: security_groups.rule_visible(call.store, call.who, doc),
    security_groups.create_rules, security_groups.update_rule, security_groups.delete_rule, _put("security_group_rule"),
    columns={"id": "id", "project_id": "project", "security_group_id": "parent"}, tagged=False,
)  # fmt: skip
ADDRESS_GROUP = ResourceType(
    "address_group", "address_groups", address_groups.ATTRS,
    _visible("address_group"),
    address_groups.create, address_groups.update, address_groups.delete, _put("address_group"),
    view=address_groups.view, columns={"id": "id", "project_id": "project"}, tagged=False,
)  # fmt: skip
AGENT = ResourceType(
    "agent", "agents", hosts.ATTRS, _admins, None, hosts.update, hosts.delete, hosts.put,
    columns={"id": "id", "host": "key"}, tagged=False, revised=False, may_list=lambda who: who.admin,
)  # fmt: skip
POOL = ResourceType(
    "subnetpool", "subnetpools", subnet_pools.ATTRS, _visible("subnetpool"),
    subnet_pools.create, subnet_pools.update, subnet_pools.delete, _put("subnetpool"), view=subnet_pools.view,
    columns={"id": "id", "project_id": "project"},
)  # fmt: skip
SCOPE = ResourceType(
    "address_scope", "address_scopes", address_scopes.ATTRS, _visible("address_scope"),
    address_scopes.create, address_scopes.update, address_scopes.delete, _put("address_scope"),
    columns={"id": "id", "project_id": "project"}, tagged=False, revised=False,
)  # fmt: skip
RBAC = ResourceType(
    "rbac_policy", "rbac_policies", sharing.ATTRS, _own, sharing.create, sharing.update, sharing.delete,
    lambda call, doc: None, view=sharing.view, columns={"id": "id", "object_id": "parent"}, tagged=False, revised=False,
)  # fmt: skip
POLICY = ResourceType(
    "policy", "policies", qos.ATTRS, _visible("policy"),
    qos.create, qos.update, qos.delete, _put("policy"), view=lambda call, doc: qos.view(call.who, doc),
    columns={"id": "id", "project_id": "project"}, path="qos/policies",
)  # fmt: skip

ROUTER = ResourceType(
    "router", "routers", routers.ATTRS, _own, routers.create, routers.update, routers.delete, _put("router"),
    view=routers.view, columns={"id": "id", "project_id": "project"},
)  # fmt: skip
FLOATING = ResourceType(
    "floatingip", "floatingips", floating_ips.ATTRS, _own, floating_ips.create, floating_ips.update,
    floating_ips.delete, floating_ips.put,
    columns={"id": "id", "project_id": "project", "floating_network_id": "parent", "port_id": "key"},
)  # fmt: skip
TRUNK = ResourceType(
    "trunk", "trunks", trunks.ATTRS, _own, trunks.create, trunks.update, trunks.delete, _put("trunk"),
    columns={"id": "id", "project_id": "project"},
)  # fmt: skip

NOUNS: tuple[ResourceType, ...] = (
    NETWORK, SUBNET, PORT, SEGMENT, GROUP, RULE, ADDRESS_GROUP, AGENT, POOL, SCOPE, RBAC, POLICY, ROUTER, FLOATING,
    TRUNK,
)  # fmt: skip
