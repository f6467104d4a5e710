"""Every path under `/v2` and its handlers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.routing import RouteTable
from moorage_embedded.image import data, discovery, images, members, metadef_parts, metadefs, staging, tasks
from moorage_embedded.image.request import ImageCall

Verb: TypeAlias = Callable[[ImageCall], Awaitable[Response]]


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
    "images/{id}/tasks": {"GET": tasks.of_image},
    "schemas/{name}": {"GET": discovery.schema},
    "schemas/metadefs/{name}": {"GET": discovery.metadef_schema},
    "metadefs/resource_types": {"GET": metadef_parts.resource_types},
    "metadefs/namespaces": {"GET": metadefs.index, "POST": metadefs.create},
    "metadefs/namespaces/{namespace}": {"GET": metadefs.show, "PUT": metadefs.update, "DELETE": metadefs.delete},
    "metadefs/namespaces/{namespace}/properties": {
        "GET": metadef_parts.properties,
        "POST": metadef_parts.create_property,
        "DELETE": metadefs.delete_properties,
    },
    "metadefs/namespaces/{namespace}/properties/{name}": {
        "GET": metadef_parts.property_,
        "PUT": metadef_parts.update_property,
        "DELETE": metadef_parts.delete_property,
    },
    "metadefs/namespaces/{namespace}/objects": {
        "GET": metadef_parts.objects,
        "POST": metadef_parts.create_object,
        "DELETE": metadefs.delete_objects,
    },
    "metadefs/namespaces/{namespace}/objects/{name}": {
        "GET": metadef_parts.object_,
        "PUT": metadef_parts.update_object,
        "DELETE": metadef_parts.delete_object,
    },
    "metadefs/namespaces/{namespace}/tags": {
        "GET": metadef_parts.tags,
        "POST": metadef_parts.create_tags,
        "DELETE": metadefs.delete_tags,
    },
    "metadefs/namespaces/{namespace}/tags/{name}": {
        "GET": metadef_parts.tag,
        "POST": metadef_parts.create_tag,
        "PUT": metadef_parts.update_tag,
        "DELETE": metadef_parts.delete_tag,
    },
    "metadefs/namespaces/{namespace}/resource_types": {
        "GET": metadef_parts.associations,
        "POST": metadef_parts.associate,
    },
    "metadefs/namespaces/{namespace}/resource_types/{name}": {"DELETE": metadef_parts.disassociate},
    "stores/{store}/{id}": {"DELETE": discovery.forget_from_store},
    "info/stores": {"GET": discovery.stores},
    "info/import": {"GET": discovery.import_methods},
    "tasks": {"GET": tasks.index, "POST": tasks.create},
    "tasks/{id}": {"GET": tasks.show, "DELETE": tasks.delete},
}


def _wrong_method(method: str, allowed: list[str]) -> HttpFault:
    return HttpFault(405, f"The method {method} is not allowed for this resource.", {"Allow": ", ".join(allowed)})


TABLE = RouteTable("image", "/v2", ROUTES, _wrong_method)
