"""RBAC policies: which other projects may use a network, a security group, an address group or a QoS policy."""

from typing import Any

from moorage_embedded.network import networks, validators
from moorage_embedded.network.attributes import REQUIRED, UNSET, Attr, for_create, for_update, read_only
from moorage_embedded.network.faults import conflict, forbidden, invalid
from moorage_embedded.network.ownership import needed
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.security_groups import default_key
from moorage_embedded.network.store import Doc

ACTIONS = {
    "network": ("access_as_shared", "access_as_external"),
    "security_group": ("access_as_shared",),
    "qos_policy": ("access_as_shared",),
    "address_group": ("access_as_shared",),
}
USERS = {
    "security_group": ("port",),
    "qos_policy": ("port", "network"),
    "address_group": ("security_group_rule",),
}
"""What keeps a shared thing in use."""
ATTRS: dict[str, Attr] = {
    "id": read_only(),
    "project_id": Attr(put=False),
    "object_type": Attr(validators.text(), REQUIRED, put=False),
    "object_id": Attr(validators.is_uuid, REQUIRED, put=False),
    "action": Attr(validators.text(), REQUIRED, put=False),
    "target_tenant": Attr(validators.filled(), UNSET),
    "target_project": Attr(validators.filled(), UNSET),
}


def _resource_name(object_type: str) -> str:
    return "policy" if object_type == "qos_policy" else object_type


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    return [_make(call, for_create("rbac_policy", body, ATTRS, call.who)) for body in bodies]


def _make(call: NetworkCall, said: dict[str, Any]) -> Doc:
    target = said["target_tenant"] if said["target_tenant"] is not UNSET else said["target_project"]
    if target is UNSET:
        raise invalid("target_tenant is required")
    kind = said["object_type"]
    if kind not in ACTIONS:
        raise invalid(f"'{kind}' is not a valid RBAC object type")
    if said["action"] not in ACTIONS[kind]:
        raise invalid(
            f"Invalid action '{said['action']}' for object type '{kind}'. Valid actions: {', '.join(ACTIONS[kind])}"
        )
    object = needed(call, _resource_name(kind), said["object_id"], "share", lock=True)
    if target == "*" and not call.who.admin:
        raise forbidden("create_rbac_policy", "create_rbac_policy:target_tenant")
    call.charge(said["project_id"], "rbac_policy")
    policy = {
        "id": call.born(None)["id"], "project_id": said["project_id"], "tenant_id": said["project_id"],
        "object_type": kind, "object_id": object["id"], "action": said["action"],
        "target_tenant": target, "target_project": target,
    }  # fmt: skip
    if not call.store.share(_resource_name(kind), object["id"], said["action"], target):
        raise conflict("RbacPolicyInUse", "An RBAC policy already exists with those values.")
    object["_open"].append([said["action"], target])
    _put(call, kind, object)
    call.store.add("rbac_policy", policy, parent=object["id"], key=f"{object['id']}:{said['action']}:{target}")
    return policy


def _put(call: NetworkCall, kind: str, object: Doc) -> None:
    if kind == "network":
        object["router:external"] = any(action == "access_as_external" for action, _ in object["_open"])
        object["shared"] = ["access_as_shared", "*"] in object["_open"]
        touched(object)
    key = default_key(object["project_id"]) if kind == "security_group" and object["_default"] else ""
    call.store.put(_resource_name(kind), object, key=key)


def view(call: NetworkCall, policy: Doc) -> Doc:
    """Whom it is for is said under one name; both are understood."""
    return {name: value for name, value in policy.items() if name != "target_project"}


def _check_unused(call: NetworkCall, kind: str, object: Doc, then: str | None) -> None:
    """Raises 409 while a project uses what it would not see any more."""
    allowed = {target for _, target in object["_open"]} | {object["project_id"], then}
    if "*" in allowed:
        return
    for noun in USERS[kind]:
        for user in call.store.all_mentioning(noun, object["id"]):
            if user["project_id"] and user["project_id"] not in allowed and _uses(kind, user, object["id"]):
                text = (
                    f"RBAC policy on object {object['id']} cannot be removed because other objects depend on it."
                    f"\nDetails: {noun} {user['id']}"
                )
                raise conflict("RbacPolicyInUse", text)


def _uses(kind: str, user: Doc, id: str) -> bool:
    if kind == "address_group":
        return bool(user["remote_address_group_id"] == id)
    return id in user["security_groups"] if kind == "security_group" else bool(user.get("qos_policy_id") == id)


def update(call: NetworkCall, policy: Doc, body: Any) -> Doc:
    changes = for_update("rbac_policy", body, ATTRS, call.who)
    call.require(call.who.writes(policy["project_id"]), "update_rbac_policy")
    target = changes.get("target_tenant", changes.get("target_project", policy["target_tenant"]))
    if target == policy["target_tenant"]:
        return policy
    if target == "*" and not call.who.admin:
        raise forbidden("update_rbac_policy", "update_rbac_policy:target_tenant")
    said = {name: policy[name] for name in ("object_type", "object_id", "action", "project_id")}
    delete(call, policy, then=target)
    made = _make(call, said | {"target_tenant": target, "target_project": target})
    call.store.remove("rbac_policy", made["id"])
    made["id"] = policy["id"]
    call.store.add("rbac_policy", made, parent=made["object_id"], key=f"{made['object_id']}:{made['action']}:{target}")
    return made


def delete(call: NetworkCall, policy: Doc, *, then: str | None = None) -> None:
    """`then`: who may use it instead of the policy's target."""
    call.require(call.who.writes(policy["project_id"]), "delete_rbac_policy")
    kind = policy["object_type"]
    object = call.store.get(_resource_name(kind), policy["object_id"], lock=True)
    if kind == "network" and object is not None:
        if object["is_default"] and (policy["action"], policy["target_tenant"]) == ("access_as_external", "*"):
            raise conflict("RbacPolicyInUse", f"Network {object['id']} is the default external network.")
        networks.close_to(call, object, policy["action"], policy["target_tenant"], then=then)
        _put(call, kind, object)
        return
    if object is not None:
        object["_open"] = [each for each in object["_open"] if each != [policy["action"], policy["target_tenant"]]]
        _check_unused(call, kind, object, then)
        call.store.unshare(object["id"], policy["action"], policy["target_tenant"])
        _put(call, kind, object)
    call.store.remove("rbac_policy", policy["id"])
    call.charge(policy["project_id"], "rbac_policy", -1)
