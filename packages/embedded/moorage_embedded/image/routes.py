"""Every path under `/v2` and its handlers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.routing import RouteTable
from moorage_embedded.image import data, discovery, images, members, metadefs, staging
from moorage_embedded.image.request import ImageCall

Verb: TypeAlias = Callable[[ImageCall], Awaitable[Response]]


def _metadefs(read: Verb, *, many: bool = False) -> Mapping[str, Verb]:
    """What is read, and what would write it."""
    writes = ("POST", "DELETE") if many else ("PUT", "DELETE")
    return {"GET": read, **dict.fromkeys(writes, metadefs.refuse)}


ROUTES: Mapping[str, Mapping[str, Verb]] = {
    "images": {"GET": images.index, "POST": images.create},
    "images/{id}": {"GET": images.show, "PATCH": images.update, "DELETE": images.delete},
    "images/{id}/file": {"GET": data.download, "PUT": data.upload},
    "images/{id}/tags/{tag}": {"PUT": images.tag, "DELETE": images.untag},
    "images/{id}/members": {"GET": members.index, "POST": members.create},
    "images/{id}/members/{member}": {"GET": members.show, "PUT": members.update, "DELETE": members.delete},
    "images/{id}/actions/deactivate": {"POST": images.deactivate},
    "images/{id}/actions/reactivate": {"POST": images.reactivate},
    "images/{id}/import": {"POST": staging.start_import},
    "images/{id}/stage": {"PUT": staging.stage},
    "images/{id}/tasks": {"GET": discovery.image_tasks},
    "schemas/{name}": {"GET": discovery.schema},
    "schemas/metadefs/{name}": {"GET": discovery.metadef_schema},
    "metadefs/resource_types": {"GET": metadefs.resource_types},
    "metadefs/namespaces": {"GET": metadefs.index, "POST": metadefs.refuse},
    "metadefs/namespaces/{namespace}": {"GET": metadefs.show, "PUT": metadefs.refuse, "DELETE": metadefs.refuse},
    "metadefs/namespaces/{namespace}/properties": _metadefs(metadefs.properties, many=True),
    "metadefs/namespaces/{namespace}/properties/{name}": _metadefs(metadefs.property_),
    "metadefs/namespaces/{namespace}/objects": _metadefs(metadefs.objects, many=True),
    "metadefs/namespaces/{namespace}/objects/{name}": _metadefs(metadefs.object_),
    "metadefs/namespaces/{namespace}/tags": _metadefs(metadefs.tags, many=True),
    "metadefs/namespaces/{namespace}/tags/{name}": {**_metadefs(metadefs.tag), "POST": metadefs.refuse},
    "metadefs/namespaces/{namespace}/resource_types": {"GET": metadefs.associations, "POST": metadefs.refuse},
    "metadefs/namespaces/{namespace}/resource_types/{name}": {"DELETE": metadefs.refuse},
    "stores/{store}/{id}": {"DELETE": discovery.forget_from_store},
    "info/stores": {"GET": discovery.stores},
    "info/import": {"GET": discovery.import_methods},
    "tasks": {"GET": discovery.tasks},
}


def _wrong_method(method: str, allowed: list[str]) -> HttpFault:
    return HttpFault(405, f"The method {method} is not allowed for this resource.", {"Allow": ", ".join(allowed)})


TABLE = RouteTable("image", "/v2", ROUTES, _wrong_method)
