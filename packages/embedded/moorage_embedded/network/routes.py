"""Every path under `/v2.0` and its verbs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from moorage_embedded.http_kit.routing import RouteTable
from moorage_embedded.network import (
    address_groups,
    auto_topology,
    crud,
    port_bindings,
    qos_routes,
    routers,
    service_info,
    tags,
    trunks,
)
from moorage_embedded.network.faults import NeutronFault
from moorage_embedded.network.request import NetworkCall, NetworkRequest, Verb
from moorage_embedded.network.resources import ADDRESS_GROUP, GROUP, NOUNS, POLICY, ROUTER, TRUNK, ResourceType
from moorage_embedded.network.store import Doc


@dataclass(frozen=True)
class VerbRoute:
    """A verb, whether it writes, the status of its success, and whether it has a body."""

    verb: Verb
    writes: bool
    status: int = 200
    has_body: bool = False


def _of_resource(noun: ResourceType) -> dict[str, Mapping[str, Verb | VerbRoute]]:
    index = partial(crud.index, noun)
    return {
        noun.place: {
            "GET": VerbRoute(index, writes=True) if noun is GROUP else index,  # a project's default group is made then
            "POST": partial(crud.create, noun),
        },
        f"{noun.place}/{{id}}": {
            "GET": partial(crud.show, noun),
            "PUT": partial(crud.update, noun),
            "DELETE": partial(crud.delete, noun),
        },
    }


def _of_tags(noun: ResourceType, place: str) -> dict[str, Mapping[str, Verb | VerbRoute]]:
    """`PUT .../tags/blue` says all in its path; clients do not agree on its body, and it is not read."""
    return {
        f"{place}/{{id}}/tags": {
            "GET": partial(tags.show, noun),
            "POST": partial(tags.extend, noun),
            "PUT": partial(tags.replace, noun),
            "DELETE": partial(tags.clear, noun),
        },
        f"{place}/{{id}}/tags/{{tag}}": {
            "GET": partial(tags.check, noun),
            "PUT": VerbRoute(partial(tags.add, noun), writes=True, status=201),
            "DELETE": partial(tags.remove, noun),
        },
    }


def _subports(call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {"sub_ports": crud.find(call, TRUNK, ask.path["id"])["sub_ports"]}


ROUTES: Mapping[str, Mapping[str, Verb | VerbRoute]] = {
    **{path: verbs for noun in NOUNS for path, verbs in _of_resource(noun).items()},
    **{path: verbs for noun in NOUNS if noun.tagged for path, verbs in _of_tags(noun, noun.place).items()},
    **_of_tags(POLICY, "policies"),  # the tag extension knows a collection by its name alone
    **qos_routes.ROUTES,
    "ports/{id}/bindings": {"GET": port_bindings.index, "POST": port_bindings.create},
    "ports/{id}/bindings/{host}": {
        "GET": port_bindings.show,
        "PUT": port_bindings.update,
        "DELETE": port_bindings.delete,
    },
    "ports/{id}/bindings/{host}/activate": {"PUT": port_bindings.activate},
    "routers/{id}/add_router_interface": {"PUT": partial(crud.act, ROUTER, routers.add_interface)},
    "routers/{id}/remove_router_interface": {"PUT": partial(crud.act, ROUTER, routers.remove_interface)},
    "routers/{id}/add_extraroutes": {"PUT": partial(crud.act, ROUTER, partial(routers.change_routes, add=True))},
    "routers/{id}/remove_extraroutes": {"PUT": partial(crud.act, ROUTER, partial(routers.change_routes, add=False))},
    "address-groups/{id}/add_addresses": {
        "PUT": partial(crud.act, ADDRESS_GROUP, partial(address_groups.change, add=True))
    },
    "address-groups/{id}/remove_addresses": {
        "PUT": partial(crud.act, ADDRESS_GROUP, partial(address_groups.change, add=False))
    },
    "trunks/{id}/get_subports": {"GET": _subports},
    "trunks/{id}/add_subports": {"PUT": partial(crud.act, TRUNK, partial(trunks.change_subports, add=True))},
    "trunks/{id}/remove_subports": {"PUT": partial(crud.act, TRUNK, partial(trunks.change_subports, add=False))},
    "auto-allocated-topology/{project}": {
        "GET": VerbRoute(auto_topology.get_or_make, writes=True),
        "DELETE": auto_topology.delete,
    },
    "availability_zones": {"GET": service_info.zones},
    "extensions": {"GET": service_info.extensions},
    "extensions/{alias}": {"GET": service_info.extension},
    "network-ip-availabilities": {"GET": service_info.availabilities},
    "network-ip-availabilities/{id}": {"GET": service_info.availability},
    "quotas": {"GET": service_info.quota_list},
    "quotas/{project}": {
        "GET": service_info.quota,
        "PUT": service_info.set_quota,
        "DELETE": service_info.drop_quota,
    },
    "quotas/{project}/details": {"GET": service_info.quota_details},
    "quotas/{project}/default": {"GET": service_info.quota_defaults},
    "service-providers": {"GET": service_info.service_providers},
}
"""Where a verb alone stands, it writes unless its method is GET, and its method is why it has a body and which status."""


def _route(method: str, said: Verb | VerbRoute) -> VerbRoute:
    if isinstance(said, VerbRoute):
        return said
    return VerbRoute(said, method != "GET", 201 if method == "POST" else 200, method in {"POST", "PUT"})


def _wrong_method(method: str, allowed: list[str]) -> NeutronFault:
    return NeutronFault(405, "HTTPMethodNotAllowed", "The method is not allowed for this resource.")


TABLE = RouteTable(
    "network",
    "/v2.0",
    {path: {method: _route(method, said) for method, said in verbs.items()} for path, verbs in ROUTES.items()},
    _wrong_method,
)
