"""Get me a network: what a project without one is given, remembered by name so that asking again is no harm."""

from typing import Any

from moorage_embedded.network import networks, removal, routers, service_info, subnet_pools, subnets
from moorage_embedded.network.faults import NeutronFault, not_found
from moorage_embedded.network.request import NetworkCall, NetworkRequest
from moorage_embedded.network.store import Doc

NAME = "auto_allocated_network"
ROUTER = "auto_allocated_router"
SCOPE = "auto-allocated-topology"
ROUTER_SCOPE = "auto-allocated-router"


def get_or_make(call: NetworkCall, ask: NetworkRequest) -> Doc:
    project = ask.path["project"]
    if project in {"None", "null"}:
        project = call.who.project or ""
    if ask.fields == ["dry-run"]:
        service_info.auto_topology_ready(call, project)
        return _answer("dry-run=pass", project)
    _may(call, project, call.who.reader)
    held = call.store.holder(SCOPE, project)
    if held is None:
        service_info.auto_topology_ready(call, project)
        held = _make(call.ourselves(), project)
    return _answer(held, project)


def _answer(network: str, project: str) -> Doc:
    return {"auto_allocated_topology": {"id": network, "tenant_id": project, "project_id": project}}


def delete(call: NetworkCall, ask: NetworkRequest) -> None:
    """The project's topology goes, unless a port still uses it; nothing is fine too."""
    project = ask.path["project"]
    _may(call, project, call.who.member)
    held = call.store.holder(SCOPE, project)
    network = None if held is None else call.store.get("network", held, lock=True)
    if held is None or network is None:
        return
    ours = call.ourselves()
    router = call.store.get("router", call.store.holder(ROUTER_SCOPE, project) or "", lock=True)
    if router is not None:
        for port in routers.ports_of(call, router["id"], routers.INTERFACE):
            routers.remove_interface(ours, router, {"port_id": port["id"]})
        routers.delete(ours, router)
        call.store.drop_holds(router["id"])
    removal.delete_network(ours, network)
    call.store.drop_holds(held)


def _may(call: NetworkCall, project: str, role: bool) -> None:
    if not (call.who.admin or (role and call.who.owns(project))):
        raise not_found("auto_allocated_topology", project)


def _make(call: NetworkCall, project: str) -> str:
    network = networks.create(call, [{"name": NAME, "project_id": project}])[0]
    if not call.store.hold(SCOPE, project, network["id"]):  # a rival was first; ours goes with the transaction
        removal.delete_network(call, network)
        return call.store.holder(SCOPE, project) or network["id"]
    try:
        made = _subnets(call, project, network)
    except (
        NeutronFault
    ) as failed:  # a pool that has no room is not the service's failure here, as it is for who asks the pool
        raise service_info.not_ready("Unable to provide project private network.") from failed
    _router(call, project, made)
    return str(network["id"])


def _subnets(call: NetworkCall, project: str, network: Doc) -> list[Doc]:
    made: list[Doc] = []
    for version in (4, 6):
        if (pool := subnet_pools.default_pool(call, version)) is None:
            continue
        said: dict[str, Any] = {
            "name": f"auto_allocated_subnet_v{version}", "network_id": network["id"], "project_id": project,
            "ip_version": version, "subnetpool_id": pool["id"],
        }  # fmt: skip
        made.append(subnets.create(call, [said])[0])
    return made


def _router(call: NetworkCall, project: str, inside: list[Doc]) -> None:
    external = service_info.default_external(call)
    assert external is not None  # looked for before anything was made
    router = routers.create(
        call,
        [{"name": ROUTER, "project_id": project, "external_gateway_info": {"network_id": external["id"]}}],
    )[0]
    call.store.hold(ROUTER_SCOPE, project, router["id"])
    for subnet in inside:
        routers.add_interface(call, router, {"subnet_id": subnet["id"]})
