"""Which of the resources that a request names its caller may use: to see one is not to own it.

`needed` decides it for every action that names a second resource. Statuses and sentences are those of Neutron 29.
"""

from collections.abc import Callable, Mapping

from moorage_embedded.network.faults import NeutronFault, bad, forbidden, invalid, not_found
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.request import NetworkCall
from moorage_embedded.network.store import Doc, NetworkStore

Refusal = Callable[[NetworkCall, Doc, str], NeutronFault | None]
"""Why not, of a resource that is visible; the text is the project of what names it."""


def is_shared(project: str | None, doc: Doc, action: str | None = None) -> bool:
    """Whether it is shared with the project or with all, in this way or in any."""
    return any(target in {"*", project} for each, target in doc["_open"] if action in (None, each))


def visible(store: NetworkStore, who: NetworkCaller, noun: str, doc: Doc) -> bool:
    """Own, shared, or on a visible network; a port only on an own one."""
    if who.reads(doc["project_id"]):
        return True
    if noun in {"port", "subnet"}:
        network = store.get("network", doc["network_id"])
        if network is None or noun == "port":
            return network is not None and who.reads(network["project_id"])
        return visible(store, who, "network", network)
    if noun in {"address_scope", "subnetpool"}:
        return who.reader and bool(doc["shared"])
    return who.reader and "_open" in doc and is_shared(who.project, doc)


def needed(
    call: NetworkCall,
    noun: str,
    id: str,
    use: str = "",
    *,
    project: str = "",
    known: Doc | None = None,
    lock: bool = False,
) -> Doc:
    """The named resource, for this use by something of `project`; `known`: it has been read.

    Raises NeutronFault: 404 also for one that the caller does not see, otherwise as the use says.
    """
    doc = call.store.get(noun, id, lock=lock) if known is None else known
    refused = REFUSALS[noun, use] if use else None
    if doc is None or (use not in SEEN_OR_NOT and not visible(call.store, call.who, noun, doc)):
        raise not_found(noun, id)
    if refused is not None and (fault := refused(call, doc, project)) is not None:
        raise fault
    return doc


def _for_interface(call: NetworkCall, subnet: Doc, project: str) -> NeutronFault | None:
    """A network that is shared with all is used by all, and its owner says who its gateway is; sharing it with one
    project lets that one say it.
    """
    if call.who.admin or call.who.owns(subnet["project_id"]):
        return None
    network = call.store.get("network", subnet["network_id"])
    if network is not None and ["access_as_shared", call.who.project] in network["_open"]:
        return None
    return bad(
        f"Bad router request: Cannot add interface to router because subnet {subnet['id']}"
        " is not owned by project making the request."
    )


def _external(call: NetworkCall, network: Doc, project: str) -> NeutronFault | None:
    if network["router:external"]:
        return None
    return bad(f"Bad router request: Network {network['id']} is not an external network.")


def _external_for_address(call: NetworkCall, network: Doc, project: str) -> NeutronFault | None:
    if network["router:external"]:
        return None
    return bad(f"Bad floatingip request: Network {network['id']} is not a valid external network.")


def _to_change(call: NetworkCall, port: Doc, project: str) -> NeutronFault | None:
    """What makes a port part of something changes it: it takes what a PUT of the port takes."""
    return None if call.who.writes(port["project_id"]) else forbidden("update_port")


def _for_floating_ip(call: NetworkCall, port: Doc, project: str) -> NeutronFault | None:
    if call.who.admin or port["project_id"] == project:
        return None
    return bad(
        f"Bad floatingip request: Cannot process floating IP association with Port {port['id']},"
        " since that port is owned by a different project."
    )


def _for_port(call: NetworkCall, group: Doc, project: str) -> NeutronFault | None:
    """The port's project must have it; that its caller sees it is not enough."""
    if call.who.admin or group["project_id"] == project or is_shared(project, group):
        return None
    return not_found("security_group", group["id"])


def _for_rule(call: NetworkCall, group: Doc, project: str) -> NeutronFault | None:
    return None if call.who.writes(group["project_id"]) else forbidden("create_security_group_rule")


def _for_subnet(call: NetworkCall, network: Doc, project: str) -> NeutronFault | None:
    return None if call.who.writes(network["project_id"]) else forbidden("create_subnet")


def _to_share(call: NetworkCall, doc: Doc, project: str) -> NeutronFault | None:
    if not (call.who.admin or call.who.owns(doc["project_id"])):
        return invalid("Only admins can manipulate policies on objects they do not own")
    return None if call.who.writes(doc["project_id"]) else forbidden("create_rbac_policy")


REFUSALS: Mapping[tuple[str, str], Refusal] = {
    ("network", "floating_ip"): _external_for_address,
    ("network", "gateway"): _external,
    ("network", "subnet"): _for_subnet,
    ("port", "change"): _to_change,
    ("port", "floating_ip"): _for_floating_ip,
    ("security_group", "port"): _for_port,
    ("security_group", "rule"): _for_rule,
    ("subnet", "interface"): _for_interface,
    **dict.fromkeys(((noun, "share") for noun in ("network", "security_group", "policy", "address_group")), _to_share),
}
SEEN_OR_NOT = ("port", "rule", "share", "subnet")
"""Uses that are judged of what the caller does not see, too."""
