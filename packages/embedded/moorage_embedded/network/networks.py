"""Networks, and the segments they are made of: which physical network, which tag."""

import secrets
from collections.abc import Iterable
from typing import Any

from moorage_embedded.network import validators
from moorage_embedded.network.attributes import REQUIRED, UNSET, Attr, admin, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, bad, conflict, invalid
from moorage_embedded.network.ownership import is_shared, needed
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc

TRIES_FOR_A_TAG = 64
TYPES = ("flat", "vlan", "vxlan", "geneve", "gre", "local")
TAGS = Attr(validators.listed(validators.text(255), 50), list, validators.to_sorted, put=False)
NAME = Attr(validators.text(), "")
DESCRIPTION = Attr(validators.text(), "")
ADMIN_STATE = Attr(validators.is_bool, True, validators.to_bool)
PROJECT = Attr(put=False)
COMMON: dict[str, Attr] = {
    "id": read_only(),
    "project_id": PROJECT,
    "description": DESCRIPTION,
    "tags": TAGS,
    "created_at": read_only(),
    "updated_at": read_only(),
    "revision_number": read_only(),
}

_SEGMENT_KEYS: dict[str, validators.Check] = {
    "provider:network_type": validators.one_of(*TYPES),
    "provider:physical_network": validators.optional(validators.text(64)),
    "provider:segmentation_id": validators.optional(validators.within(0, 2**24)),
}
ATTRS: dict[str, Attr] = COMMON | {
    "name": NAME,
    "admin_state_up": ADMIN_STATE,
    "status": read_only(),
    "subnets": read_only(),
    "shared": Attr(validators.is_bool, False, validators.to_bool, may_post=admin, may_put=admin),
    "router:external": Attr(validators.is_bool, False, validators.to_bool, may_post=admin, may_put=admin),
    "is_default": Attr(validators.is_bool, False, validators.to_bool, may_post=admin, may_put=admin),
    "port_security_enabled": Attr(validators.is_bool, True, validators.to_bool),
    "mtu": Attr(validators.within(0, 65535), UNSET, validators.to_int),
    "qos_policy_id": Attr(validators.optional(validators.is_uuid), None),
    "dns_domain": Attr(validators.line(), ""),
    "availability_zone_hints": Attr(validators.listed(validators.text()), list),
    "availability_zones": read_only(),
    "vlan_transparent": Attr(validators.optional(validators.is_bool), None, put=False),
    "ipv4_address_scope": read_only(),
    "ipv6_address_scope": read_only(),
    "l2_adjacency": read_only(),
    "provider:network_type": Attr(validators.one_of(*TYPES), UNSET, may_post=admin, may_put=admin, may_read=admin),
    "provider:physical_network": Attr(
        validators.optional(validators.text(64)), UNSET, may_post=admin, may_put=admin, may_read=admin
    ),
    "provider:segmentation_id": Attr(
        validators.optional(validators.within(0, 2**24)),
        UNSET,
        validators.to_int,
        may_post=admin,
        may_put=admin,
        may_read=admin,
    ),
    "segments": Attr(
        validators.listed(validators.keyed({}, _SEGMENT_KEYS), 100), UNSET, put=False, may_post=admin, may_read=admin
    ),
}


def shared_with(who: NetworkCaller, network: Doc) -> bool:
    """Whether the caller may plug ports into a network of another project."""
    return is_shared(who.project, network, "access_as_shared")


def view(who: NetworkCaller, network: Doc) -> Doc:
    """What the caller may see; a network of one segment shows it as `provider:*`, of several as `segments`."""
    shown = {name: value for name, value in network.items() if not name.startswith("_")}
    shown["shared"] = shared_with(who, network)
    if who.admin:
        segments = [
            {f"provider:{name}": each[name] for name in ("network_type", "physical_network", "segmentation_id")}
            for each in network["_segments"]
        ]
        if len(segments) == 1:
            shown |= segments[0]
        else:
            shown["segments"] = segments
    return shown


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    return [_make(call, for_create("network", body, ATTRS, call.who)) for body in bodies]


def _make(call: NetworkCall, said: dict[str, Any]) -> Doc:
    call.require(call.who.writes(said["project_id"]) or call.who.admin, "create_network")
    _check_mtu(call, said)
    segments = _requested_segments(said)
    call.charge(said["project_id"], "network")
    network = call.born(said["project_id"]) | {
        name: said[name]
        for name in ("name", "admin_state_up", "description", "tags", "port_security_enabled", "dns_domain",
                     "availability_zone_hints", "router:external", "is_default", "qos_policy_id")
    }  # fmt: skip
    network |= {
        "status": "ACTIVE",
        "subnets": [],
        "shared": said["shared"],
        "mtu": call.settings.mtu if said["mtu"] in (UNSET, 0) else said["mtu"],
        "availability_zones": [],
        "ipv4_address_scope": None,
        "ipv6_address_scope": None,
        "l2_adjacency": True,
        "_open": [],
        "_segments": [],
    }
    if said["vlan_transparent"] is not None:
        network["vlan_transparent"] = said["vlan_transparent"]
    if network["qos_policy_id"] is not None:
        needed(call, "policy", network["qos_policy_id"])
    for asked in segments:
        add_segment(call, network, asked)
    if said["shared"]:
        open_to(call, network, "access_as_shared", "*")
    if said["router:external"]:
        open_to(call, network, "access_as_external", "*")
    network["revision_number"] = 1
    call.store.add("network", network)
    return network


MTU_MIN = {4: 68, 6: 1280}


def check_mtu(id: str, mtu: int, versions: Iterable[int]) -> None:
    """Raises 409 for an MTU below what IP needs on a network with subnets of these versions."""
    for version in versions:
        if mtu < MTU_MIN[version]:
            text = f"MTU of {id} is not valid, subnet requires a minimum of {MTU_MIN[version]}"
            raise conflict("NetworkMTUSubnetConflict", text)


def _check_mtu(call: NetworkCall, said: dict[str, Any]) -> None:
    if said.get("mtu", UNSET) is not UNSET and said["mtu"] > call.settings.mtu:
        raise invalid(f"Requested MTU is too big, maximum is {call.settings.mtu}")


def _requested_segments(said: dict[str, Any]) -> list[dict[str, Any]]:
    """What the body asks of segments, in one form; one empty ask is a tenant network."""
    single = {
        name: said[f"provider:{name}"]
        for name in ("network_type", "physical_network", "segmentation_id")
        if said[f"provider:{name}"] is not UNSET
    }
    if said["segments"] is UNSET:
        return [single]
    if single:
        raise bad("Plural and singular provider attributes cannot be used together.")
    return [{name.removeprefix("provider:"): value for name, value in each.items()} for each in said["segments"]]


def add_segment(
    call: NetworkCall, network: Doc, asked: dict[str, Any], *, name: str | None = None, description: str = ""
) -> Doc:
    """Check and hold a segment's tag, and write its record; the network's own document is the caller's to write."""
    kind = asked.get("network_type") or call.settings.network_type
    physical, tag = asked.get("physical_network"), asked.get("segmentation_id")
    if not asked.get("network_type") and (physical is not None or tag is not None):
        raise invalid("network_type required")
    if kind in {"flat", "vlan"} and not physical:
        raise invalid(f"physical_network required for {kind} provider network")
    if kind in {"vxlan", "geneve", "gre", "local"} and physical:
        raise invalid(f"provider:physical_network specified for {kind} network")
    if kind in {"flat", "local"} and tag is not None:
        raise invalid(f"segmentation_id prohibited for {kind} provider network")
    segment = call.born(network["project_id"])
    del segment["tags"]
    segment |= {
        "network_id": network["id"],
        "network_type": kind,
        "physical_network": physical,
        "segmentation_id": _hold_tag(call, segment["id"], kind, physical, tag),
        "name": name,
        "description": description,
    }
    call.store.add("segment", segment, parent=network["id"])
    network["_segments"].append(
        {key: segment[key] for key in ("id", "network_type", "physical_network", "segmentation_id")}
    )
    return segment


def _hold_tag(call: NetworkCall, owner: str, kind: str, physical: str | None, tag: int | None) -> int | None:
    if kind == "local":
        return None
    scope = f"{kind}:{physical or ''}"
    if kind == "flat":
        if not call.store.hold(scope, "flat", owner):
            raise conflict(
                "FlatNetworkInUse", f"Unable to create the flat network. Physical network {physical} is in use."
            )
        return None
    if tag is None:
        return _any_tag(call, owner, scope, vlan=kind == "vlan")
    last = 4094 if kind == "vlan" else 2**24 - 1
    if not 1 <= tag <= last:
        raise invalid(f"segmentation_id out of range (1 through {last})")
    if not call.store.hold(scope, str(tag), owner):
        if kind == "vlan":
            message = f"The VLAN {tag} on physical network {physical} is in use."
            raise conflict("VlanIdInUse", f"Unable to create the network. {message}")
        raise conflict("TunnelIdInUse", f"Unable to create the network. The tunnel ID {tag} is in use.")
    return tag


def _any_tag(call: NetworkCall, owner: str, scope: str, *, vlan: bool) -> int:
    settings = call.settings
    first, last = (settings.vlan_first, settings.vlan_last) if vlan else (1, settings.tunnel_last)
    for _ in range(TRIES_FOR_A_TAG):
        tag = first + secrets.randbelow(last - first + 1)
        if call.store.hold(scope, str(tag), owner):
            return tag
    taken = call.store.held(scope)
    for tag in range(first, last + 1):
        if str(tag) not in taken and call.store.hold(scope, str(tag), owner):
            return tag
    raise NeutronFault(
        503, "NoNetworkAvailable", "Unable to create the network. No project network is available for allocation."
    )


def open_to(call: NetworkCall, network: Doc, action: str, target: str, *, policy: str | None = None) -> None:
    """Share, and keep the RBAC policy that says so."""
    if not call.store.share("network", network["id"], action, target):
        raise conflict(
            "RbacPolicyExists" if policy else "RbacPolicyInUse", "An RBAC policy already exists with those values."
        )
    network["_open"].append([action, target])
    record = call.born(network["project_id"])
    if policy is not None:
        record["id"] = policy
    del record["tags"], record["description"], record["created_at"], record["updated_at"], record["revision_number"]
    record |= {
        "object_id": network["id"], "object_type": "network", "action": action,
        "target_tenant": target, "target_project": target,
    }  # fmt: skip
    call.store.count(network["project_id"], "rbac_policy", 1)
    call.store.add("rbac_policy", record, parent=network["id"], key=f"{network['id']}:{action}:{target}")


def close_to(call: NetworkCall, network: Doc, action: str, target: str, *, then: str | None = None) -> None:
    """Stop sharing. Refused while projects use it that may not any more. `then`: who may use it instead of the target."""
    rest = [each for each in network["_open"] if each != [action, target]]
    kept = [*rest, [action, then]] if then else rest
    if action == "access_as_shared":
        _check_no_other_ports(call, network, kept)
    else:
        _check_no_other_gateways(call, network, kept)
    network["_open"] = rest
    call.store.unshare(network["id"], action, target)
    for policy in call.store.many("rbac_policy", where={"key": [f"{network['id']}:{action}:{target}"]}):
        call.store.remove("rbac_policy", policy["id"])
        call.store.count(policy["project_id"], "rbac_policy", -1)


def _check_no_other_ports(call: NetworkCall, network: Doc, rest: list[list[str]]) -> None:
    allowed = {target for action, target in rest if action == "access_as_shared"} | {network["project_id"]}
    if "*" in allowed:
        return
    for port in call.store.many("port", where={"network": [network["id"]]}):
        if port["project_id"] not in allowed and port["project_id"]:
            raise conflict(
                "InvalidSharedSetting",
                f"Unable to reconfigure sharing settings for network {network['name']}."
                " Multiple projects are using it.",
            )


def _check_no_other_gateways(call: NetworkCall, network: Doc, rest: list[list[str]]) -> None:
    allowed = {target for action, target in rest if action == "access_as_external"} | {network["project_id"]}
    if "*" in allowed:
        return
    routers = call.store.all_mentioning("router", network["id"])
    doors = [each for each in routers if (each["external_gateway_info"] or {}).get("network_id") == network["id"]]
    for each in [*doors, *call.store.many("floatingip", where={"parent": [network["id"]]})]:
        if each["project_id"] not in allowed:
            text = (
                f"RBAC policy on object {network['id']} cannot be removed because other objects depend on it."
                f"\nDetails: {each['id']}"
            )
            raise conflict("RbacPolicyInUse", text)


def update(call: NetworkCall, network: Doc, body: Any) -> Doc:
    changes = for_update("network", body, ATTRS, call.who)
    _check_mtu(call, changes)
    if "mtu" in changes:
        changes["mtu"] = changes["mtu"] or call.settings.mtu
        check_mtu(
            network["id"], changes["mtu"], {each["ip_version"] for each in call.store.children("subnet", network["id"])}
        )
    for name, action in (("shared", "access_as_shared"), ("router:external", "access_as_external")):
        if name in changes:
            is_open = [action, "*"] in network["_open"]
            if changes[name] and not is_open:
                open_to(call, network, action, "*")
            elif is_open and not changes[name]:
                close_to(call, network, action, "*")
    if any(name.startswith("provider:") for name in changes):
        _retag(call, network, changes)
    if changes.get("qos_policy_id"):
        needed(call, "policy", changes["qos_policy_id"])
    network |= {name: value for name, value in changes.items() if not name.startswith("provider:")}
    return network


def _retag(call: NetworkCall, network: Doc, changes: dict[str, Any]) -> None:
    """Neutron lets only the tag of an unbound VLAN network change."""
    segments = network["_segments"]
    others = {name for name in changes if name.startswith("provider:")} - {"provider:segmentation_id"}
    if others or len(segments) != 1 or segments[0]["network_type"] != "vlan":
        raise invalid("Plugin does not support updating provider network attributes")
    if call.store.first_port(("network", [network["id"]])):
        raise invalid("Plugin does not support updating the segmentation ID of a network with bound ports")
    segment = segments[0]
    call.store.drop_holds(segment["id"])
    tag = _hold_tag(call, segment["id"], "vlan", segment["physical_network"], changes["provider:segmentation_id"])
    segment["segmentation_id"] = tag
    record = call.store.get("segment", segment["id"], lock=True)
    assert record is not None  # the network names it
    call.store.put("segment", touched(record | {"segmentation_id": tag}))


__all__ = ["ATTRS", "COMMON", "REQUIRED", "create", "update", "view"]
