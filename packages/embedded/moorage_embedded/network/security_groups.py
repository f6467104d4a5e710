"""Security groups and their rules; every project has a default group, made when it is first needed."""

from ipaddress import ip_network
from typing import Any

from moorage_embedded.network import security_group_rules, validators
from moorage_embedded.network.attributes import UNSET, Attr, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, conflict
from moorage_embedded.network.networks import COMMON
from moorage_embedded.network.ownership import needed, visible
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc, NetworkStore, Surroundings

ATTRS: dict[str, Attr] = COMMON | {
    "name": Attr(validators.text(), ""),
    "stateful": Attr(validators.is_bool, True, validators.to_bool),
    "shared": read_only(),
    "security_group_rules": read_only(),
}


def default_key(project: str) -> str:
    return f"default:{project}"


def _key(group: Doc) -> str:
    return default_key(group["project_id"]) if group["_default"] else ""


def view(store: NetworkStore, group: Doc) -> Doc:
    return view_with(group, store.children("security_group_rule", group["id"]))


def view_with(group: Doc, rules: list[Doc]) -> Doc:
    shown = {name: value for name, value in group.items() if not name.startswith("_")}
    shown["shared"] = bool(group["_open"])
    shown["security_group_rules"] = [_rule_shown(rule) for rule in rules]
    return shown


def _rule_shown(rule: Doc) -> Doc:
    return {name: value for name, value in rule.items() if not name.startswith("_")}


# ------------------------------------------------------------------------------------------------ default group


def ensure_default(call: NetworkCall, project: str) -> Doc:
    """The project's default group; created once, by the first request that needs it."""
    found = call.store.many("security_group", where={"key": [default_key(project)]})
    if found:
        return found[0]
    group = _new(call, project, "default", "Default security group", default=True)
    if not call.store.hold("default-group", project, group["id"]):  # a rival was first, and has committed by now
        return call.store.many("security_group", where={"key": [default_key(project)]})[0]
    call.store.count(project, "security_group", 1)
    _write(call, group)
    return group


def _new(call: NetworkCall, project: str, name: str, description: str, *, default: bool = False) -> Doc:
    group = call.born(project)
    return group | {
        "name": name, "description": description, "stateful": True, "revision_number": 1,
        "_default": default, "_open": [],
    }  # fmt: skip


def _write(call: NetworkCall, group: Doc) -> None:
    call.store.add("security_group", group, key=_key(group))
    rules = [_rule(call, group, "egress", ethertype) for ethertype in ("IPv4", "IPv6")]
    if group["_default"]:
        rules += [_rule(call, group, "ingress", ethertype, remote=group["id"]) for ethertype in ("IPv4", "IPv6")]
    for rule in rules:
        call.store.add("security_group_rule", rule, parent=group["id"])
    call.charge(group["project_id"], "security_group_rule", len(rules))


def _rule(call: NetworkCall, group: Doc, direction: str, ethertype: str, *, remote: str | None = None) -> Doc:
    rule = call.born(group["project_id"])
    del rule["tags"]
    return rule | {
        "security_group_id": group["id"], "direction": direction, "ethertype": ethertype, "protocol": None,
        "port_range_min": None, "port_range_max": None, "remote_ip_prefix": None, "remote_group_id": remote,
        "remote_address_group_id": None, "normalized_cidr": None, "belongs_to_default_sg": group["_default"],
        "revision_number": 1,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ on a port


def settle(call: NetworkCall, around: Surroundings, port: Doc, said: Any) -> None:
    """The groups of a port: the given ones, or the default one; none without port security or on network devices.

    Raises NeutronFault: 400, 404 or 409 when the port cannot have them.
    """
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
        raise NeutronFault(400, "PortSecurityAndIPRequiredForSecurityGroups", text)
    kinds: set[bool] = set()
    for id in wanted:
        group = needed(call, "security_group", id, "port", project=port["project_id"], known=around.others.get(id))
        kinds.add(group["stateful"])
    if len(kinds) > 1:
        text = (
            "Error Cannot apply both stateful and stateless security groups on the same port at the same time"
            " while attempting the operation."
        )
        raise conflict("SecurityGroupConflict", text)
    port["security_groups"] = wanted


# ------------------------------------------------------------------------------------------------ groups


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    made = []
    for body in bodies:
        said = for_create("security_group", body, ATTRS, call.who)
        call.require(call.who.writes(said["project_id"]), "create_security_group")
        ensure_default(call, said["project_id"])
        if said["name"].lower() == "default":
            raise conflict("SecurityGroupDefaultAlreadyExists", "Default security group already exists.")
        call.charge(said["project_id"], "security_group")
        group = _new(call, said["project_id"], said["name"], said["description"])
        group |= {"stateful": said["stateful"], "tags": said["tags"]}
        _write(call, group)
        made.append(group)
    return made


def update(call: NetworkCall, group: Doc, body: Any) -> Doc:
    changes = for_update("security_group", body, ATTRS, call.who)
    call.require(call.who.writes(group["project_id"]), "update_security_group")
    if group["_default"] and "name" in changes:
        raise conflict("SecurityGroupCannotUpdateDefault", "Updating default security group not allowed.")
    if str(changes.get("name", "")).lower() == "default":
        raise conflict("SecurityGroupDefaultAlreadyExists", "Default security group already exists.")
    if "stateful" in changes and changes["stateful"] != group["stateful"]:
        _refuse_if_used(call, group)
    return group | changes


def put(call: NetworkCall, group: Doc) -> None:
    call.store.put("security_group", group, key=_key(group))


def _refuse_if_used(call: NetworkCall, group: Doc) -> None:
    if call.store.mentioned("port", group["id"]) is not None:
        raise conflict("SecurityGroupInUse", f"Security Group {group['id']} in use.")


def delete(call: NetworkCall, group: Doc) -> None:
    call.require(call.who.writes(group["project_id"]), "delete_security_group")
    _refuse_if_used(call, group)
    if group["_default"] and not call.who.admin:
        text = "Insufficient rights for removing default security group."
        raise conflict("SecurityGroupCannotRemoveDefault", text)
    rules = call.store.children("security_group_rule", group["id"])
    for rule in rules:
        call.store.remove("security_group_rule", rule["id"])
    call.store.count(group["project_id"], "security_group_rule", -len(rules))
    call.store.drop_holds(group["id"])
    call.unshare(group["id"])
    call.store.remove("security_group", group["id"])
    call.charge(group["project_id"], "security_group", -1)


# ------------------------------------------------------------------------------------------------ rules


def create_rules(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    """Create several rules. Raises NeutronFault (400) for rules of several groups."""
    asked = [for_create("security_group_rule", body, security_group_rules.ATTRS, call.who) for body in bodies]
    if len({said["security_group_id"] for said in asked}) > 1:
        text = "Only allowed to update rules for one security profile at a time"
        raise NeutronFault(400, "SecurityGroupNotSingleGroupRules", text)
    return [_make_rule(call, said) for said in asked]


def _make_rule(call: NetworkCall, said: dict[str, Any]) -> Doc:
    group = needed(call, "security_group", said["security_group_id"], "rule", lock=True)
    security_group_rules.settle(said)
    _check_remotes(call, said)
    rule = _rule(call, group, said["direction"], said["ethertype"], remote=said["remote_group_id"])
    for name in (
        "protocol", "port_range_min", "port_range_max", "remote_ip_prefix", "remote_address_group_id", "description"
    ):  # fmt: skip
        rule[name] = said[name]
    if rule["remote_ip_prefix"]:
        rule["normalized_cidr"] = str(ip_network(rule["remote_ip_prefix"], strict=False))
    for each in call.store.children("security_group_rule", group["id"]):
        if security_group_rules.sameness(each) == security_group_rules.sameness(rule):
            text = f"Security group rule already exists. Rule id is {each['id']}."
            raise conflict("SecurityGroupRuleExists", text)
    call.charge(rule["project_id"], "security_group_rule")
    call.store.add("security_group_rule", rule, parent=group["id"])
    call.store.put("security_group", touched(group), key=_key(group))
    return rule


def _check_remotes(call: NetworkCall, said: dict[str, Any]) -> None:
    if id := said["remote_group_id"]:
        needed(call, "security_group", id)
    if id := said["remote_address_group_id"]:
        needed(call, "address_group", id, lock=True)


def rule_visible(store: NetworkStore, who: NetworkCaller, rule: Doc) -> bool:
    if who.reads(rule["project_id"]):
        return True
    group = store.get("security_group", rule["security_group_id"])
    return group is not None and visible(store, who, "security_group", group)


def update_rule(call: NetworkCall, rule: Doc, body: Any) -> Doc:
    changes = for_update("security_group_rule", body, security_group_rules.ATTRS, call.who)
    call.require(call.who.writes(rule["project_id"]), "update_security_group_rule")
    return rule | changes


def delete_rule(call: NetworkCall, rule: Doc) -> None:
    call.require(call.who.writes(rule["project_id"]), "delete_security_group_rule")
    group = call.store.get("security_group", rule["security_group_id"], lock=True)
    call.store.remove("security_group_rule", rule["id"])
    call.charge(rule["project_id"], "security_group_rule", -1)
    if group is not None:
        call.store.put("security_group", touched(group), key=_key(group))
