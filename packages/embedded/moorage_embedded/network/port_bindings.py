"""`/ports/{id}/bindings`: a second binding, made beside the active one, for a move (binding-extended)."""

from moorage_embedded.network import binding, listing, validators
from moorage_embedded.network.attributes import REQUIRED, UNSET, Attr, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, conflict, not_found
from moorage_embedded.network.ports import ADRIFT, segment_of, wire_trunk
from moorage_embedded.network.request import NetworkCall, NetworkRequest, touched
from moorage_embedded.network.security_groups import default_key
from moorage_embedded.network.store import Doc

ATTRS: dict[str, Attr] = {
    "host": Attr(validators.filled(), REQUIRED, put=False),
    "vnic_type": Attr(validators.one_of(*binding.VNIC_TYPES), "normal"),
    "profile": Attr(validators.optional(validators.is_dict), UNSET, validators.none_to_dict),
    "vif_type": read_only(),
    "vif_details": read_only(),
    "status": read_only(),
    "project_id": Attr(put=False),
}


UNBOUND: Doc = {"vif_type": "unbound", "vif_details": {}}


def _port(call: NetworkCall, ask: NetworkRequest, rule: str, *, write: bool) -> Doc:
    id = ask.path["id"]
    call.require(call.who.service or (call.who.admin and not write), rule)
    port = call.store.get("port", id, lock=write)
    if port is None:
        raise not_found("port", id)
    if not port["device_owner"].startswith(("compute:", "manila:")):
        text = f"Bad port request: Invalid port {id}. Operation only valid on compute and shared filesystem ports."
        raise NeutronFault(400, "BadRequest", text)
    return port


def _all(port: Doc) -> list[Doc]:
    """An unbound port has an active binding too, on no host; one whose active binding was deleted has none."""
    inactive = [each | {"status": "INACTIVE"} for each in port["_bindings"]]
    return inactive if port.get(ADRIFT) else [_active(port), *inactive]


def _active(port: Doc) -> Doc:
    return {"host": port["binding:host_id"], "status": "ACTIVE"} | {
        name: port[f"binding:{name}"] for name in ("vnic_type", "profile", "vif_type", "vif_details")
    }


def _find(port: Doc, host: str) -> Doc:
    for each in _all(port):
        if each["host"] == host:
            return each
    text = f"Binding for port {port['id']} for host {host} could not be found."
    raise NeutronFault(404, "PortBindingNotFound", text)


def index(call: NetworkCall, ask: NetworkRequest) -> Doc:
    """A caller who may not see bindings gets an empty list, and no error."""
    if not (call.who.service or call.who.admin):
        return {"bindings": []}
    found = _all(_port(call, ask, "get_port_binding", write=False))
    return {"bindings": [listing.only(each, ask.fields) for each in found]}


def show(call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {"binding": _find(_port(call, ask, "get_port_binding", write=False), ask.path["host"])}


def create(call: NetworkCall, ask: NetworkRequest) -> Doc:
    body = ask.inner("binding")
    port = _port(call, ask, "create_port_binding", write=True)
    said = for_create("port_binding", body, ATTRS, call.who)
    if any(each["host"] == said["host"] for each in _all(port)):
        raise conflict(
            "PortBindingAlreadyExists", f"Binding for port {port['id']} on host {said['host']} already exists."
        )
    profile = {} if said["profile"] is UNSET else said["profile"]
    made = _offer(call, port, said["host"], said["vnic_type"], profile)
    port["_bindings"].append(made)
    if port.get(ADRIFT):
        _activate(call, port, made)
        made = _active(port)
    else:
        made = made | {"status": "INACTIVE"}
    call.store.put("port", touched(port))
    return {"binding": made}


def _offer(call: NetworkCall, port: Doc, host: str, vnic_type: str, profile: Doc) -> Doc:
    around = call.store.around(port["network_id"], host, default_key(port["project_id"]))
    assert around.network is not None  # a port goes with its network
    offer = binding.bound(around.network, around.agent, vnic_type, segment_of(around, port))
    if offer["vif_type"] == "binding_failed":
        text = f"Binding for port {port['id']} on host {host} could not be created or updated."
        raise NeutronFault(500, "PortBindingError", text)
    return {"host": host, "vnic_type": vnic_type, "profile": profile} | offer


def update(call: NetworkCall, ask: NetworkRequest) -> Doc:
    body, host = ask.inner("binding"), ask.path["host"]
    port = _port(call, ask, "update_port_binding", write=True)
    changes = for_update("port_binding", body, ATTRS, call.who)
    found = _find(port, host)
    wanted = found | changes
    offered = _offer(call, port, host, wanted["vnic_type"], wanted["profile"])
    if found["status"] == "ACTIVE":
        port |= {f"binding:{name}": offered[name] for name in ("vnic_type", "profile", "vif_type", "vif_details")}
        if found["vif_type"] == UNBOUND["vif_type"]:
            _comes_up(call, port)
    else:
        port["_bindings"] = [offered if each["host"] == host else each for each in port["_bindings"]]
    call.store.put("port", touched(port))
    return {"binding": offered | {"status": found["status"]}}


def activate(call: NetworkCall, ask: NetworkRequest) -> Doc:
    """Activate a binding. Raises NeutronFault: 409 when it is active, 500 for a port that cannot be bound."""
    port = _port(call, ask, "activate", write=True)
    found = _find(port, ask.path["host"])
    if found["status"] == "ACTIVE":
        text = f"Binding for port {port['id']} on host {found['host']} is already active."
        raise conflict("PortBindingAlreadyActive", text)
    if port.get(ADRIFT):
        raise NeutronFault(
            500, "HTTPInternalServerError", "Request Failed: internal server error while processing your request."
        )
    old = _active(port)
    del old["status"]
    port["_bindings"].append(old | UNBOUND)  # as Neutron does: its host and its profile stay
    _activate(call, port, found)
    call.store.put("port", touched(port))
    return _active(port)


def _activate(call: NetworkCall, port: Doc, chosen: Doc) -> None:
    """The port goes DOWN with the old host and comes up on the new one, and compute gets events."""
    port["_bindings"] = [each for each in port["_bindings"] if each["host"] != chosen["host"]]
    port["binding:host_id"] = chosen["host"]
    port.pop(ADRIFT, None)
    port |= {f"binding:{name}": chosen[name] for name in ("vnic_type", "profile", "vif_type", "vif_details")}
    _comes_up(call, port)


def _comes_up(call: NetworkCall, port: Doc) -> None:
    bound = port["binding:vif_type"] != UNBOUND["vif_type"]
    port["status"] = "ACTIVE" if bound and call.settings.ports_become_active else "DOWN"
    if port["status"] == "ACTIVE":
        call.queue_compute_event("network-vif-plugged", port)
    wire_trunk(call, port)


def delete(call: NetworkCall, ask: NetworkRequest) -> None:
    """Deleting the active binding leaves the port unbound; no other takes its place."""
    port = _port(call, ask, "delete_port_binding", write=True)
    found = _find(port, ask.path["host"])
    if found["status"] == "ACTIVE":
        port |= {
            "binding:host_id": "", "binding:profile": {}, "binding:vif_type": "unbound",
            "binding:vif_details": {}, "status": "DOWN", ADRIFT: True,
        }  # fmt: skip
        wire_trunk(call, port)
    else:
        port["_bindings"] = [each for each in port["_bindings"] if each["host"] != found["host"]]
    call.store.put("port", touched(port))
