"""Which verb a method and a path mean. Nouns share five verbs; the rest is listed here, one line each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from moorage.model.tracing import request
from moorage_embedded.network import (
    address_groups,
    auto_topology,
    crud,
    listing,
    port_bindings,
    qos_routes,
    routers,
    service_info,
    tags,
    trunks,
)
from moorage_embedded.network.faults import NeutronFault, bad
from moorage_embedded.network.request import NetworkCall
from moorage_embedded.network.resources import ADDRESS_GROUP, BY_PATH, GROUP, POLICY, ROUTER, TRUNK, ResourceType


class RequestReader(Protocol):
    """What of a request a verb may read."""

    @property
    def method(self) -> str: ...
    @property
    def parts(self) -> tuple[str, ...]: ...
    @property
    def pairs(self) -> list[tuple[str, str]]: ...
    @property
    def body(self) -> Any: ...
    @property
    def if_match(self) -> str | None: ...
    @property
    def url(self) -> str: ...


Verb: TypeAlias = Callable[[NetworkCall, Any], Any]


@dataclass(frozen=True)
class VerbRoute:
    """A verb, whether it writes, and the status of its success."""

    verb: Verb
    writes: bool = False
    status: int = 200


def _fields(ask: RequestReader) -> list[str]:
    return [value for name, value in ask.pairs if name == "fields"]


def _resource_routes(noun: ResourceType) -> dict[tuple[str, int], VerbRoute]:
    """Keyed by method and by how many parts follow the noun's path."""
    skip = noun.place.count("/") + 1
    return {
        ("GET", 0): VerbRoute(lambda call, ask: crud.listed(call, noun, ask.pairs, ask.url), writes=noun is GROUP),
        ("POST", 0): VerbRoute(lambda call, ask: crud.create(call, noun, ask.body), True, 201),
        ("GET", 1): VerbRoute(lambda call, ask: crud.show(call, noun, ask.parts[skip], _fields(ask))),
        ("PUT", 1): VerbRoute(lambda call, ask: crud.update(call, noun, ask.parts[skip], ask.body, ask.if_match), True),
        ("DELETE", 1): VerbRoute(lambda call, ask: crud.delete(call, noun, ask.parts[skip], ask.if_match), True, 204),
    }


def _tag_routes(noun: ResourceType, place: str) -> dict[tuple[str, int], VerbRoute]:
    skip = place.count("/") + 1
    return {
        ("GET", 2): VerbRoute(lambda call, ask: tags.show(call, noun, ask.parts[skip])),
        ("POST", 2): VerbRoute(lambda call, ask: tags.extend(call, noun, ask.parts[skip], ask.body), True, 201),
        ("PUT", 2): VerbRoute(lambda call, ask: tags.replace(call, noun, ask.parts[skip], ask.body), True),
        ("DELETE", 2): VerbRoute(lambda call, ask: tags.clear(call, noun, ask.parts[skip]), True, 204),
        ("GET", 3): VerbRoute(
            lambda call, ask: tags.check(call, noun, ask.parts[skip], ask.parts[skip + 2]), status=204
        ),
        ("PUT", 3): VerbRoute(lambda call, ask: _tagged(call, noun, ask, skip), True, 201),
        ("DELETE", 3): VerbRoute(
            lambda call, ask: tags.remove(call, noun, ask.parts[skip], ask.parts[skip + 2]), True, 204
        ),
    }


def _tagged(call: NetworkCall, noun: ResourceType, ask: RequestReader, skip: int) -> dict[str, Any]:
    tags.add(call, noun, ask.parts[skip], ask.parts[skip + 2])
    return {}


_NOUN_ROUTES = {path: _resource_routes(noun) for path, noun in BY_PATH.items()}
_TAG_ROUTES = {path: _tag_routes(noun, path) for path, noun in BY_PATH.items() if noun.tagged}
_TAG_ROUTES["policies"] = _tag_routes(POLICY, "policies")
# The tag extension knows a collection by its name alone.

_BINDINGS: dict[tuple[str, int], VerbRoute] = {
    ("GET", 3): VerbRoute(
        lambda call, ask: {
            "bindings": [listing.only(b, _fields(ask)) for b in port_bindings.listed(call, ask.parts[1])]
        }
    ),
    ("POST", 3): VerbRoute(
        lambda call, ask: {"binding": port_bindings.create(call, ask.parts[1], _inner(ask, "binding"))}, True, 201
    ),
    ("GET", 4): VerbRoute(lambda call, ask: {"binding": port_bindings.show(call, ask.parts[1], ask.parts[3])}),
    ("PUT", 4): VerbRoute(
        lambda call, ask: {"binding": port_bindings.update(call, ask.parts[1], ask.parts[3], _inner(ask, "binding"))},
        True,
    ),
    ("DELETE", 4): VerbRoute(lambda call, ask: port_bindings.delete(call, ask.parts[1], ask.parts[3]), True, 204),
}
_ACTIVATE = VerbRoute(lambda call, ask: port_bindings.activate(call, ask.parts[1], ask.parts[3]), True)


def _inner(ask: RequestReader, name: str) -> Any:
    if name not in ask.body:
        raise bad(f"Unable to find '{name}' in request body")
    return ask.body[name]


def _auto_topology(call: NetworkCall, ask: RequestReader) -> Any:
    project = ask.parts[1]
    if project in {"None", "null"}:
        project = call.who.project or ""
    if _fields(ask) == ["dry-run"]:
        service_info.auto_topology_ready(call, project)
        return {"auto_allocated_topology": {"id": "dry-run=pass", "tenant_id": project, "project_id": project}}
    return {"auto_allocated_topology": auto_topology.get_or_make(call, project)}


def _drop_auto_topology(call: NetworkCall, ask: RequestReader) -> Any:
    auto_topology.delete(call, ask.parts[1])
    return None


_AUTO_TOPOLOGY = {"GET": VerbRoute(_auto_topology, True), "DELETE": VerbRoute(_drop_auto_topology, True, 204)}


def _router(call: NetworkCall, ask: RequestReader) -> Any:
    return crud.find(call, ROUTER, ask.parts[1], lock=True)


def _trunk(call: NetworkCall, ask: RequestReader) -> Any:
    return crud.find(call, TRUNK, ask.parts[1], lock=True)


def _address_group(call: NetworkCall, ask: RequestReader) -> Any:
    return crud.find(call, ADDRESS_GROUP, ask.parts[1], lock=True)


_ACTIONS: dict[tuple[str, str, str], VerbRoute] = {
    ("PUT", "routers", "add_router_interface"): VerbRoute(
        lambda call, ask: routers.add_interface(call, _router(call, ask), ask.body), True
    ),
    ("PUT", "routers", "remove_router_interface"): VerbRoute(
        lambda call, ask: routers.remove_interface(call, _router(call, ask), ask.body), True
    ),
    ("PUT", "routers", "add_extraroutes"): VerbRoute(
        lambda call, ask: routers.change_routes(call, _router(call, ask), ask.body, add=True), True
    ),
    ("PUT", "routers", "remove_extraroutes"): VerbRoute(
        lambda call, ask: routers.change_routes(call, _router(call, ask), ask.body, add=False), True
    ),
    ("PUT", "address-groups", "add_addresses"): VerbRoute(
        lambda call, ask: address_groups.change(call, _address_group(call, ask), ask.body, add=True), True
    ),
    ("PUT", "address-groups", "remove_addresses"): VerbRoute(
        lambda call, ask: address_groups.change(call, _address_group(call, ask), ask.body, add=False), True
    ),
    ("GET", "trunks", "get_subports"): VerbRoute(
        lambda call, ask: {"sub_ports": crud.find(call, TRUNK, ask.parts[1])["sub_ports"]}
    ),
    ("PUT", "trunks", "add_subports"): VerbRoute(
        lambda call, ask: trunks.change_subports(call, _trunk(call, ask), ask.body, add=True), True
    ),
    ("PUT", "trunks", "remove_subports"): VerbRoute(
        lambda call, ask: trunks.change_subports(call, _trunk(call, ask), ask.body, add=False), True
    ),
}


_OTHERS: dict[tuple[str, str, int], VerbRoute] = {
    ("GET", "extensions", 0): VerbRoute(lambda call, ask: service_info.extensions()),
    ("GET", "extensions", 1): VerbRoute(lambda call, ask: service_info.extension(ask.parts[1])),
    ("GET", "availability_zones", 0): VerbRoute(lambda call, ask: service_info.zones()),
    ("GET", "service-providers", 0): VerbRoute(lambda call, ask: service_info.service_providers(ask.pairs)),
    ("GET", "quotas", 0): VerbRoute(lambda call, ask: service_info.quota_list(call)),
    ("GET", "quotas", 1): VerbRoute(lambda call, ask: service_info.quota(call, ask.parts[1])),
    ("PUT", "quotas", 1): VerbRoute(lambda call, ask: service_info.set_quota(call, ask.parts[1], ask.body), True),
    ("DELETE", "quotas", 1): VerbRoute(lambda call, ask: service_info.drop_quota(call, ask.parts[1]), True, 204),
    ("GET", "network-ip-availabilities", 0): VerbRoute(
        lambda call, ask: {"network_ip_availabilities": service_info.availabilities(call, ask.pairs)}
    ),
    ("GET", "network-ip-availabilities", 1): VerbRoute(
        lambda call, ask: {"network_ip_availability": service_info.availabilities(call, ask.pairs, ask.parts[1])[0]}
    ),
}
_QUOTA_ASIDES: dict[str, Verb] = {
    "details.json": lambda call, ask: service_info.quota_details(call, ask.parts[1]),
    "details": lambda call, ask: service_info.quota_details(call, ask.parts[1]),
    "default": lambda call, ask: service_info.quota_defaults(call, ask.parts[1]),
}


def find_route(method: str, parts: tuple[str, ...]) -> VerbRoute:
    """The route. Raises NeutronFault: 404 for an unknown path, 405 for a method that the path does not have."""
    head = "/".join(parts[:2]) if parts[0] == "qos" else parts[0]
    rest = len(parts) - (2 if parts[0] == "qos" else 1)
    found = _find(method, head, parts, rest)
    if found is not None:
        request("network").annotate(route=f"/v2.0/{head}{'/*' * rest}")
        return found
    if any(_find(other, head, parts, rest) for other in ("GET", "POST", "PUT", "DELETE")):
        raise NeutronFault(405, "HTTPMethodNotAllowed", "The method is not allowed for this resource.")
    raise NeutronFault(404, "HTTPNotFound", "The resource could not be found.")


def _find(method: str, head: str, words: tuple[str, ...], rest: int) -> VerbRoute | None:
    parts = list(words)
    if head in _NOUN_ROUTES and (found := _NOUN_ROUTES[head].get((method, rest))) is not None:
        return found
    if head in _TAG_ROUTES and rest in {2, 3} and parts[len(parts) - rest + 1] == "tags":
        return _TAG_ROUTES[head].get((method, rest))
    if head == "ports" and len(parts) >= 3 and parts[2] == "bindings":
        if len(parts) == 5 and parts[4] == "activate" and method == "PUT":
            return _ACTIVATE
        return _BINDINGS.get((method, len(parts)))
    if rest == 2 and (method, head, parts[2]) in _ACTIONS:
        return _ACTIONS[method, head, parts[2]]
    if head == "quotas" and rest == 2 and method == "GET" and parts[2] in _QUOTA_ASIDES:
        return VerbRoute(_QUOTA_ASIDES[parts[2]])
    if head == "auto-allocated-topology" and rest == 1:
        return _AUTO_TOPOLOGY.get(method)
    if parts[0] == "qos" and (of_rule := qos_routes.find(method, words)) is not None:
        return VerbRoute(*of_rule)
    return _OTHERS.get((method, head, rest))
