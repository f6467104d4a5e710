"""Ports: made alone or in bulk, bound to a host, changed, deleted."""

from typing import Any

from moorage_embedded.network import addressing, binding, port_rules, security_groups
from moorage_embedded.network.attributes import UNSET, for_create, for_update
from moorage_embedded.network.faults import NeutronFault, conflict, mac_taken, not_found
from moorage_embedded.network.ownership import needed
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.port_attributes import ATTRS, dhcp_options
from moorage_embedded.network.port_rules import OF_ROUTERS
from moorage_embedded.network.request import NetworkCall, new_mac, touched
from moorage_embedded.network.store import Doc, Surroundings

MACS_TRIED_MAX = 16
ADRIFT = "_adrift"
"""The active binding was deleted, and no other took its place: Neutron does not find such a port when it is to be changed, and activates no
binding of it; one that is made is active at once."""

__all__ = ["ATTRS", "create", "delete", "erase", "update", "view"]


def view(who: NetworkCaller, port: Doc) -> Doc:
    shown = {name: value for name, value in port.items() if not name.startswith("_")}
    if not who.admin:
        for name in ("resource_request", "hints", "trusted"):
            shown.pop(name, None)
        if not who.service:
            for name in ("binding:host_id", "binding:profile", "binding:vif_type", "binding:vif_details"):
                shown.pop(name, None)
    return shown


# ------------------------------------------------------------------------------------------------------ create


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    """All or none: one body that fails takes back the others."""
    asked = [for_create("port", body, ATTRS, call.who) for body in bodies]
    counts: dict[str, int] = {}
    for said in asked:
        counts[said["project_id"]] = counts.get(said["project_id"], 0) + 1
    seen: dict[tuple[str, str, str], Surroundings] = {}
    made = []
    for said in asked:
        key = (said["network_id"], said["project_id"], _requested_host(said))
        around = seen.get(key)
        named = _named(said)
        if around is None or not all(id in around.others for id in named):
            around = call.store.around(key[0], key[2], security_groups.default_key(key[1]), named)
            if around.network is None:
                raise not_found("network", said["network_id"])
            needed(call, "network", said["network_id"], known=around.network)
            seen[key] = around
        port_rules.may_create(call.who, around.network, said)
        port_rules.check_device(call, said, said["project_id"])
        if (n := counts.pop(said["project_id"], 0)) > 0:
            call.charge(said["project_id"], "port", n)
        made.append(_make(call, around, said))
    return made


def _requested_host(said: dict[str, Any]) -> str:
    host = said["binding:host_id"]
    return "" if host in (UNSET, None) else host


def _named(said: dict[str, Any]) -> list[str]:
    named = [] if said["security_groups"] in (UNSET, None) else list(said["security_groups"])
    if said["qos_policy_id"]:
        named.append(said["qos_policy_id"])
    return named


def _make(call: NetworkCall, around: Surroundings, said: dict[str, Any]) -> Doc:
    network = around.network
    assert network is not None  # checked by the caller
    host = _requested_host(said)
    port = call.born(said["project_id"]) | {
        name: said[name]
        for name in ("name", "network_id", "admin_state_up", "device_id", "device_owner", "description", "tags",
                     "allowed_address_pairs", "binding:vnic_type", "qos_policy_id",
                     "propagate_uplink_status", "dns_name")
    }  # fmt: skip
    port |= {name: said[name] for name in ("numa_affinity_policy", "device_profile", "hints", "trusted",
                                           "hardware_offload_type", "dns_domain") if said[name] is not None}  # fmt: skip
    port |= {
        "status": "ACTIVE" if _serves_at_once(call, said["device_owner"]) else "DOWN",
        "mac_address": new_mac() if said["mac_address"] in (UNSET, None) else said["mac_address"],
        "fixed_ips": [],
        "ip_allocation": "immediate",
        "binding:host_id": "",
        "binding:profile": {} if said["binding:profile"] in (UNSET, None) else said["binding:profile"],
        "binding:vif_type": "unbound",
        "binding:vif_details": {},
        "resource_request": None,
        "revision_number": 1,
        "_bindings": [],
    }
    port["allowed_address_pairs"] = [
        {"mac_address": port["mac_address"]} | each for each in said["allowed_address_pairs"]
    ]
    port["extra_dhcp_opts"] = dhcp_options([], said["extra_dhcp_opts"])
    secure = said["port_security_enabled"]
    port["port_security_enabled"] = network["port_security_enabled"] if secure is UNSET else secure
    addressing.give(call, around, port, host, said["fixed_ips"])
    security_groups.settle(call, around, port, said["security_groups"])
    port_rules.settle_qos(call, around, port)
    name_addresses(call, port)
    if host:
        bind(call, around, port, host)
    _insert(call, port, chosen=said["mac_address"] not in (UNSET, None))
    addressing.note_inventories(call, around, None, port)
    return port


def _serves_at_once(call: NetworkCall, owner: str) -> bool:
    """Routers are records, and serve from the moment they are written: their ports wait for no agent."""
    return owner in OF_ROUTERS and call.settings.ports_become_active


def _insert(call: NetworkCall, port: Doc, *, chosen: bool) -> None:
    for _ in range(MACS_TRIED_MAX):
        if call.store.add_port(port):
            return
        if chosen:
            break
        port["mac_address"] = new_mac()
    raise mac_taken(port["network_id"], port["mac_address"])


def name_addresses(call: NetworkCall, port: Doc) -> None:
    """`dns_assignment`: a name for each address."""
    port["dns_assignment"] = [
        {
            "ip_address": each["ip_address"],
            "hostname": (name := port["dns_name"] or "host-" + each["ip_address"].replace(".", "-").replace(":", "-")),
            "fqdn": f"{name}.{call.settings.dns_domain}",
        }
        for each in port["fixed_ips"]
    ]


# -------------------------------------------------------------------------------------------------------- bind


def segment_of(around: Surroundings, port: Doc) -> str | None:
    """That of its addresses; where it keeps some of another segment, the one that its host is wired to."""
    on = {each["id"]: each["segment_id"] for each in around.subnets}
    found = [on[each["subnet_id"]] for each in port["fixed_ips"] if on.get(each["subnet_id"])]
    wired = addressing.segments_of_host(around) if len(found) > 1 else set[str]()
    return next((each for each in found if each in wired), found[0] if found else None)


def bind(call: NetworkCall, around: Surroundings, port: Doc, host: str) -> None:
    """Make the host the port's active binding, or leave it unbound when the host is empty."""
    was_active = port["status"] == "ACTIVE"
    assert around.network is not None  # checked by the caller
    offer = dict(binding.UNBOUND)
    if host:
        offer = binding.bound(around.network, around.agent, port["binding:vnic_type"], segment_of(around, port))
    port["binding:host_id"] = host
    port["binding:vif_type"], port["binding:vif_details"] = offer["vif_type"], offer["vif_details"]
    if port["binding:vnic_type"] == "direct-physical":
        _take_mac_of_device(call, port)
    bound = binding.is_bound(port)
    port["status"] = "ACTIVE" if bound and call.settings.ports_become_active and port["admin_state_up"] else "DOWN"
    if port["status"] == "ACTIVE":
        call.queue_compute_event("network-vif-plugged", port)
    elif was_active:
        call.queue_compute_event("network-vif-unplugged", port)
    wire_trunk(call, port)


def wire_trunk(call: NetworkCall, parent: Doc) -> None:
    """Bind the subports of a trunk to where its parent is bound, and write how the trunk is: what the agent of the host
    reports to Neutron.
    """
    if "trunk_details" not in parent:
        return
    host = parent["binding:host_id"] if binding.is_bound(parent) else ""
    bound = [bind_subport(call, each["port_id"], host) for each in parent["trunk_details"]["sub_ports"]]
    trunk = call.store.get("trunk", parent["trunk_details"]["trunk_id"], lock=True)
    status = ("ACTIVE" if all(bound) else "ERROR") if parent["status"] == "ACTIVE" else "DOWN"
    if trunk is not None and trunk["status"] != status:
        call.store.put("trunk", touched(trunk | {"status": status}))


def bind_subport(call: NetworkCall, id: str, host: str) -> bool:
    """Whether it is bound now; an empty host unbinds it."""
    port = call.store.get("port", id, lock=True)
    assert port is not None  # a trunk's subport is not deleted
    if port["binding:host_id"] != host or (host and not binding.is_bound(port)):
        around = call.store.around(port["network_id"], host, security_groups.default_key(port["project_id"]))
        bind(call, around, port, host)
        call.store.put("port", touched(port))
    return binding.is_bound(port)


def _take_mac_of_device(call: NetworkCall, port: Doc) -> None:
    """A port that is a whole interface has its MAC, and gets its own back when it is released."""
    said = port["binding:profile"].get("device_mac_address") if port["binding:host_id"] else None
    port["mac_address"] = said or new_mac()
    holder = call.store.mac_holder(port["network_id"], port["mac_address"])
    if holder not in (None, port["id"]):
        raise mac_taken(port["network_id"], port["mac_address"])


# ------------------------------------------------------------------------------------------------------ update


def update(call: NetworkCall, port: Doc, body: Any) -> Doc:
    changes = for_update("port", body, ATTRS, call.who)
    if port.get(ADRIFT):
        raise not_found("port", port["id"])
    old = dict(port)
    host = changes.pop("binding:host_id", UNSET)
    new_host = port["binding:host_id"] if host is UNSET else (host or "")
    named = [*(changes.get("security_groups") or [])]
    if changes.get("qos_policy_id", port["qos_policy_id"]):
        named.append(changes.get("qos_policy_id", port["qos_policy_id"]))
    around = call.store.around(port["network_id"], new_host, security_groups.default_key(port["project_id"]), named)
    port_rules.may_update(call.who, around, port, changes)
    if changes.keys() & {"device_id", "device_owner"}:
        port_rules.check_device(call, port | changes, port["project_id"])
    fixed_ips = changes.pop("fixed_ips", UNSET)
    wanted_groups = changes.pop("security_groups", UNSET)
    _settle_profile(changes)
    if "allowed_address_pairs" in changes:
        mac = {"mac_address": changes.get("mac_address") or port["mac_address"]}
        changes["allowed_address_pairs"] = [mac | each for each in changes["allowed_address_pairs"]]
    if "extra_dhcp_opts" in changes:
        changes["extra_dhcp_opts"] = dhcp_options(port["extra_dhcp_opts"], changes["extra_dhcp_opts"])
    port |= changes
    if port["mac_address"] != old["mac_address"]:
        _change_mac(call, port, old)
    _move_addresses(call, around, port, old, new_host, fixed_ips)
    if wanted_groups is not UNSET or "port_security_enabled" in changes:
        security_groups.settle(
            call, around, port, port["security_groups"] if wanted_groups is UNSET else wanted_groups or []
        )
    if port["fixed_ips"] != old["fixed_ips"] or port["dns_name"] != old["dns_name"]:
        name_addresses(call, port)
    _rebind(call, around, port, old, new_host)
    if "qos_policy_id" in changes or "binding:vnic_type" in changes:
        port_rules.settle_qos(call, around, port)
        port_rules.may_change_type(old, port)
    addressing.note_inventories(call, around, old, port)
    return port


def _settle_profile(changes: dict[str, Any]) -> None:
    if changes.get("binding:profile", UNSET) is None:
        changes["binding:profile"] = {}


def _change_mac(call: NetworkCall, port: Doc, old: Doc) -> None:
    if port["mac_address"] is None:
        port["mac_address"] = new_mac()
    if (
        binding.is_bound(old)
        and old["device_owner"].startswith("compute:")
        and old["binding:vnic_type"] != "direct-physical"
    ):
        text = (
            f"Unable to complete operation on port {port['id']},"
            f" port is already bound, port type: {old['binding:vif_type']}, old_mac {old['mac_address']}, new_mac {port['mac_address']}."
        )
        raise conflict("PortBound", text)
    holder = call.store.mac_holder(port["network_id"], port["mac_address"])
    if holder not in (None, port["id"]):
        raise mac_taken(port["network_id"], port["mac_address"])


def _move_addresses(call: NetworkCall, around: Surroundings, port: Doc, old: Doc, host: str, fixed_ips: Any) -> None:
    """RULES §7: the same PUT binds first, and rebinds later onto another segment."""
    if fixed_ips is not UNSET and fixed_ips is not None:
        addressing.change(call, around, port, host, fixed_ips)
        return
    if not host or host == old["binding:host_id"]:
        return
    if old["fixed_ips"]:
        addressing.check_move(around, port, host)
    elif port["ip_allocation"] == "deferred" and not old["binding:host_id"]:
        port["fixed_ips"] = []
        addressing.give(call, around, port, host, UNSET)
        port["ip_allocation"] = "deferred"


def _rebind(call: NetworkCall, around: Surroundings, port: Doc, old: Doc, host: str) -> None:
    changed = any(port[name] != old[name] for name in ("binding:vnic_type", "binding:profile", "admin_state_up"))
    if host != old["binding:host_id"]:
        if any(each["host"] == host for each in port["_bindings"]):
            # Neutron 29 tries again and again to write a second row with this key, and gives up in the end.
            text = "Request Failed: internal server error while processing your request."
            raise NeutronFault(500, "HTTPInternalServerError", text)
        if not host:  # tell whoever the port belonged to
            port["status"] = "DOWN"
            if old["status"] == "ACTIVE":
                call.queue_compute_event("network-vif-unplugged", old)
        bind(call, around, port, host)
    elif host and (not binding.is_bound(port) or changed):
        bind(call, around, port, host)
    elif port["fixed_ips"] != old["fixed_ips"] or port["security_groups"] != old["security_groups"]:
        call.queue_compute_event("network-changed", port)


# ------------------------------------------------------------------------------------------------------ delete


def delete(call: NetworkCall, port: Doc) -> None:
    port_rules.may_delete(call, port)
    erase(call, port)


def erase(call: NetworkCall, port: Doc) -> None:
    """Delete without a check of permissions."""
    subnets: list[Doc] = []
    if port["fixed_ips"]:
        subnets = call.store.many("subnet", where={"id": [each["subnet_id"] for each in port["fixed_ips"]]})
        addressing.take_back_all(call, subnets, port["id"])
        leave_floating_ips(call, port["id"])
    call.store.remove("port", port["id"])
    call.charge(port["project_id"], "port", -1)
    call.queue_compute_event("network-vif-deleted", port)
    if not port["device_owner"].startswith("compute:"):
        call.segments.update(each["segment_id"] for each in subnets if each["segment_id"])


def leave_floating_ips(call: NetworkCall, port: str) -> None:
    """Floating IPs of a port that goes stay, and stand for nothing."""
    for each in call.store.many("floatingip", where={"key": [port]}):
        nothing = dict.fromkeys(("port_id", "fixed_ip_address", "router_id", "port_details", "_subnet"))
        call.store.put("floatingip", touched(each | nothing | {"status": "DOWN"}))
