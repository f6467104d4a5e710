"""What is asked about the service and its networks: extensions, quotas, zones, how full a network is, auto topology."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from moorage_embedded.network import listing, ownership, subnet_pools, validators
from moorage_embedded.network.faults import NeutronFault, bad, conflict, not_found
from moorage_embedded.network.request import NetworkCall, NetworkRequest
from moorage_embedded.network.store import Doc

_EXTENSIONS = {
    "address-group": "Address group", "address-scope": "Address scope", "agent": "agent",
    "allowed-address-pairs": "Allowed Address Pairs",
    "auto-allocated-topology": "Auto Allocated Topology Services", "availability_zone": "Availability Zone",
    "binding": "Port Binding", "binding-extended": "Port Bindings Extended", "default-subnetpools": "Default Subnetpools",
    "dns-integration": "DNS Integration", "dns-domain-ports": "dns_domain for ports",
    "empty-string-filtering": "Empty String Filtering Extension", "ext-gw-mode": "Neutron L3 Configurable external gateway mode",
    "external-net": "Neutron external network", "extra_dhcp_opt": "Neutron Extra DHCP options",
    "extraroute": "Neutron Extra Route", "extraroute-atomic": "Atomically add/remove extra routes",
    "filter-validation": "Filter parameters validation",
    "fip-port-details": "Floating IP Port Details Extension", "ip-substring-filtering": "IP address substring filtering",
    "ip_allocation": "IP Allocation", "l2_adjacency": "L2 Adjacency", "multi-provider": "Multi Provider Network",
    "net-mtu": "Network MTU", "net-mtu-writable": "Network MTU (writable)",
    "network-ip-availability": "Network IP Availability", "network_availability_zone": "Network Availability Zone",
    "pagination": "Pagination support", "port-device-profile": "Port device profile",
    "port-numa-affinity-policy": "Port NUMA affinity policy", "port-numa-affinity-policy-socket": "Port NUMA affinity policy socket",
    "port-resource-request": "Port Resource Request", "port-resource-request-groups": "Port Resource Request Groups",
    "port-security": "Port Security", "port-security-groups-filtering": "Port filtering on security groups",
    "project-id": "project_id field enabled", "provider": "Provider Network", "qos": "Quality of Service",
    "qos-bw-limit-direction": "Direction for QoS bandwidth limit rule",
    "qos-bw-minimum-ingress": "Ingress direction for QoS minimum bandwidth rule", "qos-default": "QoS default policy",
    "qos-port-network-policy": "QoS port network policy ID", "qos-pps": "QoS Rule Type Packet per Second Extension",
    "qos-pps-minimum": "QoS minimum packet rate rule", "qos-rule-type-details": "Details of QoS rule types",
    "qos-rules-alias": "QoS rules alias API",
    "quota-check-limit": "Quota engine limit check",
    "quota-check-limit-default": "Quota engine limit check by default",
    "quota_details": "Quota details management support", "quotas": "Quota management support",
    "rbac-address-group": "Add address_group type to RBAC", "rbac-policies": "RBAC Policies",
    "rbac-security-groups": "Add security_group type to network RBAC",
    "revision-if-match": "If-Match constraints based on revision_number", "router": "Neutron L3 Router",
    "security-group": "security-group", "security-groups-normalized-cidr": "Normalized CIDR field for security group rules",
    "security-groups-remote-address-group": "Remote address group id field for security group rules",
    "security-groups-shared-filtering": "Security group filtering on the shared field", "segment": "Segment",
    "service-type": "Neutron Service Type Management", "sort-key-validation": "Sort keys validation",
    "sorting": "Sorting support", "standard-attr-description": "standard-attr-description",
    "standard-attr-revisions": "Resource revision numbers", "standard-attr-segment": "Standard Attribute Segment Extension",
    "standard-attr-tag": "Tag support for resources with standard attribute", "standard-attr-timestamp": "Resource timestamps",
    "stateful-security-group": "Stateful security group", "subnet-segmentid-writable": "Subnet SegmentID (writable)",
    "subnet-external-network": "Subnet belongs to an external network",
    "subnet-service-types": "Subnet service types", "subnet_allocation": "Subnet Allocation",
    "tag-creation": "Tag creation extension", "tag-ports-during-bulk-creation": "Tag Ports During Bulk Creation",
    "trunk": "Trunk Extension", "trunk-details": "Trunk port details",
    "uplink-status-propagation": "Port uplink status propagation", "vlan-transparent": "Vlantransparent",
}  # fmt: skip
UPDATED = "2026-01-01T00:00:00-00:00"


def _extension(alias: str) -> Doc:
    name = _EXTENSIONS[alias] or alias
    return {"alias": alias, "name": name, "description": name, "links": [], "updated": UPDATED}


def extensions(call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {"extensions": [_extension(alias) for alias in _EXTENSIONS]}


def extension(call: NetworkCall, ask: NetworkRequest) -> Doc:
    """One extension. Raises NeutronFault (404)."""
    alias = ask.path["alias"]
    if alias not in _EXTENSIONS:
        raise NeutronFault(404, "ExtensionNotFound", f"Extension with alias {alias} does not exist")
    return {"extension": _extension(alias)}


# ------------------------------------------------------------------------------------------------ quotas


def _visible_project(call: NetworkCall, ask: NetworkRequest) -> str:
    project = ask.path["project"]
    call.require(call.who.admin or (call.who.reader and call.who.owns(project)), "get_quota")
    return project


def quota(call: NetworkCall, ask: NetworkRequest) -> Doc:
    caps = call.store.caps(_visible_project(call, ask))
    return {"quota": {noun: _limit(caps, noun, default) for noun, default in call.settings.quotas.items()}}


def _limit(caps: Mapping[str, tuple[int, int | None]], noun: str, default: int) -> int:
    cap = caps.get(noun, (0, None))[1]
    return default if cap is None else cap


def quota_details(call: NetworkCall, ask: NetworkRequest) -> Doc:
    caps = call.store.caps(_visible_project(call, ask))
    return {
        "quota": {
            noun: {"limit": _limit(caps, noun, default), "used": caps.get(noun, (0, None))[0], "reserved": 0}
            for noun, default in call.settings.quotas.items()
        }
    }


def quota_defaults(call: NetworkCall, ask: NetworkRequest) -> Doc:
    _visible_project(call, ask)
    return {"quota": dict(call.settings.quotas)}


def quota_list(call: NetworkCall, ask: NetworkRequest) -> Doc:
    call.require(call.who.admin, "get_quota")
    return {
        "quotas": [
            {"project_id": project, "tenant_id": project} | dict(call.settings.quotas) | caps
            for project, caps in call.store.all_caps().items()
        ]
    }


def set_quota(call: NetworkCall, ask: NetworkRequest) -> Doc:
    call.require(call.who.admin, "update_quota")
    project, asked = ask.path["project"], ask.body.get("quota")
    if not isinstance(asked, dict):
        raise bad("Unable to find 'quota' in request body")
    said = {name: validators.to_int(value) for name, value in asked.items() if name not in {"force", "check_limit"}}
    if unknown := set(said) - set(call.settings.quotas):
        raise bad(f"Unrecognized attribute(s) '{', '.join(sorted(unknown))}'")
    for name, value in said.items():
        if reason := validators.within(-1, 2**31 - 1)(value):
            raise bad(f"Invalid input for {name}. Reason: {reason}.")
    used = call.store.caps(project)
    if asked.get("force") is not True:
        for name, value in said.items():
            if 0 <= value < (now := used.get(name, (0, None))[0]):
                raise bad(f"Quota limit {value} for {name} must be greater than or equal to already used {now}")
    call.store.set_caps(project, said)
    return quota(call, ask)


def drop_quota(call: NetworkCall, ask: NetworkRequest) -> None:
    call.require(call.who.admin, "delete_quota")
    call.store.drop_caps(ask.path["project"])


# ------------------------------------------------------------------------------------------------ how full


def availability(call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {"network_ip_availability": _availabilities(call, ask, ask.path["id"])[0]}


def availabilities(call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {"network_ip_availabilities": _availabilities(call, ask)}


def _availabilities(call: NetworkCall, ask: NetworkRequest, only: str | None = None) -> list[Doc]:
    call.require(call.who.admin or call.who.service, "get_network_ip_availability")
    query = listing.parse(ask.pairs, {}, "network_id", "network_name", "project_id", "ip_version")
    where = {"id": [only]} if only is not None else {}
    if "network_id" in query.filters:
        where["id"] = query.filters["network_id"]
    found = call.store.many("network", where=where)
    if only is not None and not found:
        raise not_found("network", only)
    versions = query.filters.get("ip_version", ["4", "6"])
    names, projects = query.filters.get("network_name"), query.filters.get("project_id")
    return [
        _availability(call, network, versions)
        for network in found
        if (names is None or network["name"] in names) and (projects is None or network["project_id"] in projects)
    ]


def _availability(call: NetworkCall, network: Doc, versions: Sequence[str]) -> Doc:
    subnets = [each for each in call.store.children("subnet", network["id"]) if str(each["ip_version"]) in versions]
    used = call.store.count_addresses(each["id"] for each in subnets)
    rows = [
        {
            "subnet_id": each["id"], "subnet_name": each["name"], "cidr": each["cidr"],
            "ip_version": each["ip_version"], "total_ips": pool_size(each), "used_ips": used.get(each["id"], 0),
        }
        for each in subnets
    ]  # fmt: skip
    return {
        "network_id": network["id"], "network_name": network["name"],
        "project_id": network["project_id"], "tenant_id": network["project_id"],
        "total_ips": sum(each["total_ips"] for each in rows), "used_ips": sum(each["used_ips"] for each in rows),
        "subnet_ip_availability": rows,
    }  # fmt: skip


def pool_size(subnet: Doc) -> int:
    return sum(int(ip_address(pool["end"])) - int(ip_address(pool["start"])) + 1 for pool in subnet["allocation_pools"])


# ------------------------------------------------------------------------------------------------ zones, providers


def zones(call: NetworkCall, ask: NetworkRequest) -> Doc:
    zones = [{"name": "nova", "resource": resource, "state": "available"} for resource in ("network", "router")]
    return {"availability_zones": zones}


def service_providers(call: NetworkCall, ask: NetworkRequest) -> Doc:
    """Of the types and names that are asked for."""
    routers: Doc = {"service_type": "L3_ROUTER_NAT", "name": "records", "default": True}
    asked: dict[str, set[str]] = {}
    for name, value in ask.pairs:
        if name in {"service_type", "name"}:
            asked.setdefault(name, set()).add(value)
    return {"service_providers": [routers] if all(routers[name] in values for name, values in asked.items()) else []}


# ------------------------------------------------------------------------------------------------ auto topology


def auto_topology_ready(call: NetworkCall, project: str) -> None:
    """Refuses, in Neutron's words, when a topology could not be made for the project."""
    if not (call.who.admin or (call.who.reader and call.who.owns(project))):
        raise not_found("", project)
    if default_external(call) is None:
        raise not_ready("No default router:external network.")
    if not any(subnet_pools.default_pool(call, version) for version in (4, 6)):
        raise not_ready("No default subnetpools defined.")


def default_external(call: NetworkCall) -> Doc | None:
    for network in call.store.many("network"):
        if (
            network["is_default"]
            and network["router:external"]
            and ownership.visible(call.store, call.who, "network", network)
        ):
            return network
    return None


def not_ready(reason: str) -> NeutronFault:
    text = f"Deployment error: {reason}"
    return conflict("AutoAllocationFailure", text)
