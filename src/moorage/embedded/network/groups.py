"""Security groups and their rules; every project has a default group, made when it is first needed."""

from ipaddress import ip_network
from typing import Any

from moorage.embedded.network import checks
from moorage.embedded.network.attributes import REQUIRED, UNSET, Attr, for_create, for_update, read_only
from moorage.embedded.network.call import Call, touched
from moorage.embedded.network.faults import Fault, bad, conflict, forbidden, not_found
from moorage.embedded.network.networks import COMMON
from moorage.embedded.network.store import Doc, Store, Surroundings
from moorage.embedded.network.who import Who

PROTOCOLS = {
    "ah": 51, "dccp": 33, "egp": 8, "esp": 50, "gre": 47, "icmp": 1, "icmpv6": 58, "igmp": 2, "ipip": 4,
    "ipv6-encap": 41, "ipv6-frag": 44, "ipv6-icmp": 58, "ipv6-nonxt": 59, "ipv6-opts": 60, "ipv6-route": 43,
    "ospf": 89, "pgm": 113, "rsvp": 46, "sctp": 132, "tcp": 6, "udp": 17, "udplite": 136, "vrrp": 112,
}  # fmt: skip
PORTED = {"tcp", "udp", "sctp", "dccp", "udplite", "6", "17", "132", "33", "136"}
ICMP = {"icmp", "icmpv6", "ipv6-icmp", "1", "58"}

ATTRS: dict[str, Attr] = COMMON | {
    "name": Attr(checks.text(), ""),
    "stateful": Attr(checks.is_bool, True, checks.to_bool),
    "shared": read_only(),
    "security_group_rules": read_only(),
}
RULE_ATTRS: dict[str, Attr] = {
    **{name: attr for name, attr in COMMON.items() if name != "tags"},
    "security_group_id": Attr(checks.is_uuid, REQUIRED, put=False),
    "direction": Attr(checks.one_of("ingress", "egress"), REQUIRED, put=False),
    "ethertype": Attr(
        checks.one_of("IPv4", "IPv6"), "IPv4",
        lambda value: {"ipv4": "IPv4", "ipv6": "IPv6"}.get(str(value).lower(), value), put=False,
    ),
    "protocol": Attr(None, None, lambda value: str(value).lower() if value is not None else None, put=False),
    "port_range_min": Attr(None, None, checks.to_int, put=False),
    "port_range_max": Attr(None, None, checks.to_int, put=False),
    "remote_ip_prefix": Attr(checks.optional(checks.text(64)), None, put=False),
    "remote_group_id": Attr(checks.optional(checks.text(64)), None, put=False),
    "remote_address_group_id": Attr(checks.one_of(None), None, put=False),
    "normalized_cidr": read_only(),
    "belongs_to_default_sg": read_only(),
}  # fmt: skip


def default_key(project: str) -> str:
    return f"default:{project}"


def _key(group: Doc) -> str:
    return default_key(group["project_id"]) if group["_default"] else ""


def visible(who: Who, group: Doc) -> bool:
    return who.reads(group["project_id"]) or any(target in {"*", who.project} for _, target in group["_open"])


def view(store: Store, group: Doc) -> Doc:
    return view_with(group, store.children("security_group_rule", group["id"]))


def view_with(group: Doc, rules: list[Doc]) -> Doc:
    shown = {name: value for name, value in group.items() if not name.startswith("_")}
    shown["shared"] = bool(group["_open"])
    shown["security_group_rules"] = [_rule_shown(rule) for rule in rules]
    return shown


def _rule_shown(rule: Doc) -> Doc:
    return {name: value for name, value in rule.items() if not name.startswith("_")}


# ------------------------------------------------------------------------------------------------ default group


def ensure_default(call: Call, project: str) -> Doc:
    """The project's default group; made, once, by whoever needs it first."""
    found = call.store.many("security_group", where={"key": [default_key(project)]})
    if found:
        return found[0]
    group = _new(call, project, "default", "Default security group", default=True)
    if not call.store.hold("default-group", project, group["id"]):  # a rival was first, and has committed by now
        return call.store.many("security_group", where={"key": [default_key(project)]})[0]
    call.store.count(project, "security_group", 1)
    _write(call, group)
    return group


def _new(call: Call, project: str, name: str, description: str, *, default: bool = False) -> Doc:
    group = call.born(project)
    return group | {
        "name": name, "description": description, "stateful": True, "revision_number": 1,
        "_default": default, "_open": [],
    }  # fmt: skip


def _write(call: Call, group: Doc) -> None:
    call.store.add("security_group", group, key=_key(group))
    rules = [_rule(call, group, "egress", ethertype) for ethertype in ("IPv4", "IPv6")]
    if group["_default"]:
        rules += [_rule(call, group, "ingress", ethertype, remote=group["id"]) for ethertype in ("IPv4", "IPv6")]
    for rule in rules:
        call.store.add("security_group_rule", rule, parent=group["id"])
    call.store.count(group["project_id"], "security_group_rule", len(rules))


def _rule(call: Call, group: Doc, direction: str, ethertype: str, *, remote: str | None = None) -> Doc:
    rule = call.born(group["project_id"])
    del rule["tags"]
    return rule | {
        "security_group_id": group["id"], "direction": direction, "ethertype": ethertype, "protocol": None,
        "port_range_min": None, "port_range_max": None, "remote_ip_prefix": None, "remote_group_id": remote,
        "remote_address_group_id": None, "normalized_cidr": None, "belongs_to_default_sg": group["_default"],
        "revision_number": 1,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ on a port


def settle(call: Call, around: Surroundings, port: Doc, said: Any) -> None:
    """The groups of a port: those said, else the default one; none without port security or on network devices."""
    owner = port["device_owner"]
    if said in (UNSET, None):
        trusted = owner.startswith("network:") or not port["port_security_enabled"]
        if trusted:
            port["security_groups"] = []
            return
        group = around.default_group
        if group is None:
            group = around.default_group = ensure_default(call, port["project_id"])
        port["security_groups"] = [group["id"]]
        return
    wanted = list(dict.fromkeys(said))
    if wanted and not port["port_security_enabled"]:
        if port.get("security_groups") == wanted:
            text = "Port has security group associated. Cannot disable port security or IP address until security group is removed."
            raise conflict("PortSecurityPortHasSecurityGroup", text)
        text = "Port security must be enabled and port must have an IP address in order to use security groups."
        raise Fault(400, "PortSecurityAndIPRequiredForSecurityGroups", text)
    for id in wanted:
        group = around.others.get(id) or call.store.get("security_group", id)
        usable = group is not None and (group["project_id"] == port["project_id"] or visible(call.who, group))
        if not usable:
            raise not_found("security_group", id)
    port["security_groups"] = wanted


# ------------------------------------------------------------------------------------------------ groups


def create(call: Call, bodies: list[Any]) -> list[Doc]:
    made = []
    for body in bodies:
        said = for_create("security_group", body, ATTRS, call.who)
        if not call.who.writes(said["project_id"]):
            raise forbidden("create_security_group")
        ensure_default(call, said["project_id"])
        if said["name"].lower() == "default":
            raise conflict("SecurityGroupDefaultAlreadyExists", "Default security group already exists.")
        call.charge(said["project_id"], "security_group")
        group = _new(call, said["project_id"], said["name"], said["description"])
        group |= {"stateful": said["stateful"], "tags": said["tags"]}
        _write(call, group)
        made.append(group)
    return made


def update(call: Call, group: Doc, body: Any) -> Doc:
    changes = for_update("security_group", body, ATTRS, call.who)
    if not call.who.writes(group["project_id"]):
        raise forbidden("update_security_group")
    if group["_default"] and "name" in changes:
        raise conflict("SecurityGroupCannotUpdateDefault", "Updating default security group not allowed.")
    if str(changes.get("name", "")).lower() == "default":
        raise conflict("SecurityGroupDefaultAlreadyExists", "Default security group already exists.")
    if "stateful" in changes and changes["stateful"] != group["stateful"]:
        _refuse_if_used(call, group)
    return group | changes


def put(call: Call, group: Doc) -> None:
    call.store.put("security_group", group, key=_key(group))


def _refuse_if_used(call: Call, group: Doc) -> None:
    if call.store.mentioned("port", group["id"]) is not None:
        raise conflict("SecurityGroupInUse", f"Security Group {group['id']} in use.")


def delete(call: Call, group: Doc) -> None:
    if not call.who.writes(group["project_id"]):
        raise forbidden("delete_security_group")
    _refuse_if_used(call, group)
    if group["_default"] and not call.who.admin:
        text = "Insufficient rights for removing default security group."
        raise conflict("SecurityGroupCannotRemoveDefault", text)
    rules = call.store.children("security_group_rule", group["id"])
    for rule in rules:
        call.store.remove("security_group_rule", rule["id"])
    call.store.count(group["project_id"], "security_group_rule", -len(rules))
    call.store.drop_holds(group["id"])
    call.store.unshare(group["id"])
    call.store.remove("security_group", group["id"])
    call.charge(group["project_id"], "security_group", -1)


# ------------------------------------------------------------------------------------------------ rules


def create_rules(call: Call, bodies: list[Any]) -> list[Doc]:
    return [_make_rule(call, for_create("security_group_rule", body, RULE_ATTRS, call.who)) for body in bodies]


def _make_rule(call: Call, said: dict[str, Any]) -> Doc:
    group = call.store.get("security_group", said["security_group_id"], lock=True)
    if group is None or not visible(call.who, group):
        raise not_found("security_group", said["security_group_id"])
    if not call.who.writes(group["project_id"]):
        raise forbidden("create_security_group_rule")
    _check_rule(said)
    if said["remote_group_id"] and call.store.get("security_group", said["remote_group_id"]) is None:
        raise not_found("security_group", said["remote_group_id"])
    rule = _rule(call, group, said["direction"], said["ethertype"], remote=said["remote_group_id"])
    for name in ("protocol", "port_range_min", "port_range_max", "remote_ip_prefix", "description"):
        rule[name] = said[name]
    if rule["remote_ip_prefix"]:
        rule["normalized_cidr"] = str(ip_network(rule["remote_ip_prefix"], strict=False))
    same = (
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_group_id",
        "normalized_cidr",
    )
    for each in call.store.children("security_group_rule", group["id"]):
        if all(each[name] == rule[name] for name in same):
            text = f"Security group rule already exists. Rule id is {each['id']}."
            raise conflict("SecurityGroupRuleExists", text)
    call.charge(rule["project_id"], "security_group_rule")
    call.store.add("security_group_rule", rule, parent=group["id"])
    call.store.put("security_group", touched(group), key=_key(group))
    return rule


def _check_rule(said: dict[str, Any]) -> None:
    protocol, low, high = said["protocol"], said["port_range_min"], said["port_range_max"]
    for port in (low, high):
        if port is not None and checks.within(0, 65535)(port):
            raise Fault(400, "SecurityGroupInvalidPortValue", f"Invalid value for port {port}")
    if protocol == "any" or protocol == "0":
        protocol = said["protocol"] = None
    if protocol is not None and protocol not in PROTOCOLS and not (protocol.isdigit() and int(protocol) <= 255):
        text = (
            f"Security group rule protocol {protocol} not supported."
            f" Only protocol values {sorted(PROTOCOLS)} and integer representations [0 to 255] are supported."
        )
        raise Fault(400, "SecurityGroupRuleInvalidProtocol", text)
    if protocol in {"ipv6-icmp", "icmpv6", "58"} and said["ethertype"] == "IPv4":
        text = f"Invalid ethertype {said['ethertype']} for protocol {protocol}."
        raise Fault(400, "SecurityGroupEthertypeConflictWithProtocol", text)
    _check_range(protocol, low, high)
    if said["remote_ip_prefix"] and said["remote_group_id"]:
        text = "Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided."
        raise Fault(400, "SecurityGroupMultipleRemoteEntites", text)
    if prefix := said["remote_ip_prefix"]:
        try:
            version = ip_network(prefix, strict=False).version
        except ValueError:
            raise bad(f"Invalid input for remote_ip_prefix. Reason: '{prefix}' is not a valid CIDR.") from None
        if said["ethertype"] != f"IPv{version}":
            text = f"Conflicting value ethertype {said['ethertype']} for CIDR {prefix}"
            raise Fault(400, "SecurityGroupRuleParameterConflict", text)


def _check_range(protocol: str | None, low: int | None, high: int | None) -> None:
    if low is None and high is None:
        return
    if protocol is None:
        raise Fault(400, "SecurityGroupProtocolRequiredWithPorts", "Must also specify protocol if port range is given.")
    if protocol in PORTED:
        if low is None or high is None or not 1 <= low <= high:
            text = "For TCP/UDP protocols, port_range_min must be <= port_range_max"
            raise Fault(400, "SecurityGroupInvalidPortRange", text)
    elif protocol in ICMP:
        for attr, field, value in (("port_range_min", "type", low), ("port_range_max", "code", high)):
            if value is not None and not 0 <= value <= 255:
                text = f"Invalid value for ICMP {field} ({attr}) {value}. It must be 0 to 255."
                raise Fault(400, "SecurityGroupInvalidIcmpValue", text)
        if low is None:
            text = f"ICMP code (port-range-max) {high} is provided but ICMP type (port-range-min) is missing."
            raise Fault(400, "SecurityGroupMissingIcmpType", text)
    else:
        text = f"Ports cannot be specified for protocol {protocol}."
        raise Fault(400, "SecurityGroupInvalidProtocolForPort", text)


def rule_visible(store: Store, who: Who, rule: Doc) -> bool:
    if who.reads(rule["project_id"]):
        return True
    group = store.get("security_group", rule["security_group_id"])
    return group is not None and visible(who, group)


def update_rule(call: Call, rule: Doc, body: Any) -> Doc:
    changes = for_update("security_group_rule", body, RULE_ATTRS, call.who)
    if not call.who.writes(rule["project_id"]):
        raise forbidden("update_security_group_rule")
    return rule | changes


def delete_rule(call: Call, rule: Doc) -> None:
    if not call.who.writes(rule["project_id"]):
        raise forbidden("delete_security_group_rule")
    group = call.store.get("security_group", rule["security_group_id"], lock=True)
    call.store.remove("security_group_rule", rule["id"])
    call.charge(rule["project_id"], "security_group_rule", -1)
    if group is not None:
        call.store.put("security_group", touched(group), key=_key(group))
