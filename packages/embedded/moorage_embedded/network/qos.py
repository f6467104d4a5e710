"""QoS policies and rules, and what a policy makes a port ask of its host (`resource_request`, in groups)."""

import uuid
from typing import Any

from moorage.model.network_providers import guaranteed_by
from moorage_embedded.network import guarantees, networks, validators
from moorage_embedded.network.attributes import REQUIRED, Attr, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, conflict, forbidden
from moorage_embedded.network.networks import COMMON
from moorage_embedded.network.ownership import is_shared
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc

RULES_MAX = 64
_AMOUNT = validators.within(0, 2**31 - 1)
_DIRECTION = Attr(validators.one_of("egress", "ingress"), "egress")
ATTRS: dict[str, Attr] = COMMON | {
    "name": Attr(validators.text(), REQUIRED),
    "shared": Attr(validators.is_bool, False, validators.to_bool),
    "is_default": Attr(validators.is_bool, False, validators.to_bool),
    "rules": read_only(),
}
RULES: dict[str, dict[str, Attr]] = {
    "bandwidth_limit": {
        "max_kbps": Attr(_AMOUNT, REQUIRED, validators.to_int),
        "max_burst_kbps": Attr(_AMOUNT, 0, validators.to_int),
        "direction": _DIRECTION,
    },
    "dscp_marking": {"dscp_mark": Attr(validators.one_of(*range(0, 58, 2)), REQUIRED, validators.to_int)},
    "minimum_bandwidth": {"min_kbps": Attr(_AMOUNT, REQUIRED, validators.to_int), "direction": _DIRECTION},
    "packet_rate_limit": {
        "max_kpps": Attr(_AMOUNT, REQUIRED, validators.to_int),
        "max_burst_kpps": Attr(_AMOUNT, 0, validators.to_int),
        "direction": _DIRECTION,
    },
    "minimum_packet_rate": {
        "min_kpps": Attr(_AMOUNT, REQUIRED, validators.to_int),
        "direction": Attr(validators.one_of("egress", "ingress", "any"), "egress"),
    },
}
# The namespace of request groups: the same port and rules give the same group id again.
_GROUPS = uuid.UUID("3f1f59b4-4a55-4e0e-9d7e-6c0f6ab1f5c5")


def view(who: NetworkCaller, policy: Doc) -> Doc:
    shown = {name: value for name, value in policy.items() if not name.startswith("_")}
    shown["shared"] = is_shared(who.project, policy)
    return shown


def resource_request(policy: Doc | None, network: Doc, port: Doc) -> Doc | None:
    """None where nothing is guaranteed. Bandwidth is the physical network's, or of what carries the tunnels."""
    if policy is None:
        return None
    parts = guaranteed_by(policy["rules"], network["_segments"][0]["physical_network"], port["binding:vnic_type"])
    groups = [_group(port, name, list(required), resources) for name, (required, resources) in parts.items()]
    if not groups:
        return None
    return {"request_groups": groups, "same_subtree": [group["id"] for group in groups]}


def _group(port: Doc, kind: str, required: list[str], resources: dict[str, int]) -> Doc:
    words = f"{port['id']}:{kind}:{sorted(required)}:{sorted(resources)}"
    return {"id": str(uuid.uuid5(_GROUPS, words)), "required": required, "resources": resources}


# ------------------------------------------------------------------------------------------------ policies


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    made = []
    for body in bodies:
        said = for_create("policy", body, ATTRS, call.who)
        if not call.who.admin and "manager" not in call.who.principal.roles:
            raise forbidden("create_policy")
        policy = call.born(said["project_id"]) | {
            name: said[name] for name in ("name", "description", "tags", "is_default")
        }
        policy |= {"rules": [], "revision_number": 1, "_open": [["access_as_shared", "*"]] if said["shared"] else []}
        _only_default(call, policy)
        if said["shared"]:
            call.store.share("policy", policy["id"], "access_as_shared", "*")
        call.store.add("policy", policy)
        made.append(policy)
    return made


def _only_default(call: NetworkCall, policy: Doc) -> None:
    if policy["is_default"] and not call.store.hold("default-policy", policy["project_id"], policy["id"]):
        text = f"A default QoS policy exists for project {policy['project_id']}."
        raise conflict("QoSPolicyDefaultAlreadyExists", text)


def _writable(call: NetworkCall, policy: Doc, rule: str) -> None:
    manages = "manager" in call.who.principal.roles and call.who.owns(policy["project_id"])
    call.require(call.who.admin or manages, rule)


def update(call: NetworkCall, policy: Doc, body: Any) -> Doc:
    changes = for_update("policy", body, ATTRS, call.who)
    _writable(call, policy, "update_policy")
    if "shared" in changes:
        is_open = ["access_as_shared", "*"] in policy["_open"]
        if changes["shared"] and not is_open:
            call.store.share("policy", policy["id"], "access_as_shared", "*")
            policy["_open"].append(["access_as_shared", "*"])
        elif is_open and not changes["shared"]:
            call.store.unshare(policy["id"], "access_as_shared", "*")
            policy["_open"].remove(["access_as_shared", "*"])
        del changes["shared"]
    if changes.get("is_default", policy["is_default"]) != policy["is_default"]:
        policy |= changes
        call.store.drop_holds(policy["id"])
        _only_default(call, policy)
    return policy | changes


def delete(call: NetworkCall, policy: Doc) -> None:
    _writable(call, policy, "delete_policy")
    for noun in ("port", "network", "floatingip"):
        if (user := call.store.mentioned(noun, policy["id"])) is not None:
            raise conflict("QosPolicyInUse", f"QoS Policy {policy['id']} is used by {noun} {user['id']}.")
    call.store.drop_holds(policy["id"])
    call.unshare(policy["id"])
    call.store.remove("policy", policy["id"])


# ------------------------------------------------------------------------------------------------ rules


def add_rule(call: NetworkCall, policy: Doc, kind: str, body: Any) -> Doc:
    _writable(call, policy, f"create_policy_{kind}_rule")
    said = for_create(f"policy_{kind}_rule", body, RULES[kind], call.who)
    if len(policy["rules"]) >= RULES_MAX:
        raise conflict("QoSRulesConflict", f"a policy has at most {RULES_MAX} rules")
    rule = {"id": str(uuid.uuid4()), "qos_policy_id": policy["id"], "type": kind} | said
    _check_rules(policy, rule)
    policy["rules"].append(rule)
    _changed(call, policy)
    return rule


def _check_rules(policy: Doc, rule: Doc) -> None:
    for each in policy["rules"]:
        if each["id"] == rule["id"] or each["type"] != rule["type"]:
            continue
        directions = {each.get("direction"), rule.get("direction")}
        if len(directions) == 1 or ("any" in directions and rule["type"] == "minimum_packet_rate"):
            text = f"Rule {rule['type']} conflicts with rule {each['id']} which already exists in QoS Policy {policy['id']}."
            raise conflict("QoSRulesConflict", text)


def find_rule(policy: Doc, kind: str, id: str) -> Doc:
    """A rule of a policy. Raises NeutronFault (404)."""
    for rule in policy["rules"]:
        if rule["id"] == id and rule["type"] == kind:
            return dict(rule)
    raise NeutronFault(404, "QosRuleNotFound", f"QoS rule {id} for policy {policy['id']} could not be found.")


def change_rule(call: NetworkCall, policy: Doc, kind: str, id: str, body: Any) -> Doc:
    _writable(call, policy, f"update_policy_{kind}_rule")
    rule = find_rule(policy, kind, id) | for_update(f"policy_{kind}_rule", body, RULES[kind], call.who)
    _check_rules(policy, rule)
    policy["rules"] = [rule if each["id"] == id else each for each in policy["rules"]]
    _changed(call, policy)
    return rule


def remove_rule(call: NetworkCall, policy: Doc, kind: str, id: str) -> None:
    _writable(call, policy, f"delete_policy_{kind}_rule")
    find_rule(policy, kind, id)
    policy["rules"] = [each for each in policy["rules"] if each["id"] != id]
    _changed(call, policy)


def _changed(call: NetworkCall, policy: Doc) -> None:
    """Write the policy, and what the ports that follow it ask for; what bound ones are guaranteed follows in placement."""
    call.store.put("policy", touched(policy))
    users = {each["id"]: each for each in call.store.many("network") if each["qos_policy_id"] == policy["id"]}
    for port in _followers(call, policy["id"], list(users)):
        network = users.get(port["network_id"]) or call.store.get("network", port["network_id"])
        assert network is not None  # a port goes with its network
        _follow(call, policy, network, port)


def _follow(call: NetworkCall, policy: Doc | None, network: Doc, port: Doc) -> None:
    request = resource_request(policy, network, port)
    inherited = network["qos_policy_id"]
    if request == port["resource_request"] and port["qos_network_policy_id"] == inherited:
        return
    port["qos_network_policy_id"] = inherited
    ask(call, port, request)
    call.store.put("port", touched(port))


def ask(call: NetworkCall, port: Doc, request: Doc | None) -> None:
    """The port asks this from now on; what a server's bound port is guaranteed is claimed, and the claim follows."""
    if request == port["resource_request"]:
        return
    if not guarantees.is_claimed(port):
        port["resource_request"] = request
        return
    change = guarantees.follow(port, request)
    if change is not None:
        call.claims[port["id"]] = change
    call.queue_compute_event("network-changed", port)


def update_network(call: NetworkCall, network: Doc, body: Any) -> Doc:
    """A network's new policy reaches the ports that have none of their own."""
    before = network["qos_policy_id"]
    network = networks.update(call, network, body)
    id = network["qos_policy_id"]
    if id != before:
        policy = call.store.get("policy", id) if id else None
        for port in call.store.many("port", where={"network": [network["id"]]}):
            if port["qos_policy_id"] is None:
                _follow(call, policy, network, port)
            else:
                call.store.put("port", touched(port | {"qos_network_policy_id": id}))
    return network


def _followers(call: NetworkCall, policy: str, users: list[str]) -> list[Doc]:
    direct = call.store.all_mentioning("port", policy)
    followers = {port["id"]: port for port in direct if port["qos_policy_id"] == policy}
    if users:
        for port in call.store.many("port", where={"network": users}):
            if port["qos_policy_id"] is None:
                followers[port["id"]] = port
    return list(followers.values())
