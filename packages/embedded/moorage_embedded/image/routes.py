"""Every path under `/v2` and its handler; `*` stands for one part of the path."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.responses import Response

from moorage.model.tracing import request
from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.routing import RouteTable
from moorage_embedded.image import data, discovery, images, members, metadefs, staging
from moorage_embedded.image.faults import not_found
from moorage_embedded.image.request import ImageCall

Verb: TypeAlias = Callable[[ImageCall], Awaitable[Response]]


def _metadefs(read: Verb, *, many: bool = False) -> Mapping[str, Verb]:
    """What is read, and what would write it."""
    writes = ("POST", "DELETE") if many else ("PUT", "DELETE")
    return {"GET": read, **dict.fromkeys(writes, metadefs.refuse)}


ROUTES: Mapping[str, Mapping[str, Verb]] = {
    "images": {"GET": images.index, "POST": images.create},
    "images/*": {"GET": images.show, "PATCH": images.update, "DELETE": images.delete},
    "images/*/file": {"GET": data.download, "PUT": data.upload},
    "images/*/tags/*": {"PUT": images.tag, "DELETE": images.untag},
    "images/*/members": {"GET": members.index, "POST": members.create},
    "images/*/members/*": {"GET": members.show, "PUT": members.update, "DELETE": members.delete},
    "images/*/actions/deactivate": {"POST": images.deactivate},
    "images/*/actions/reactivate": {"POST": images.reactivate},
    "images/*/import": {"POST": staging.start_import},
    "images/*/stage": {"PUT": staging.stage},
    "images/*/tasks": {"GET": discovery.image_tasks},
    "schemas/*": {"GET": discovery.schema},
    "schemas/metadefs/*": {"GET": discovery.metadef_schema},
    "metadefs/resource_types": {"GET": metadefs.resource_types},
    "metadefs/namespaces": {"GET": metadefs.index, "POST": metadefs.refuse},
    "metadefs/namespaces/*": {"GET": metadefs.show, "PUT": metadefs.refuse, "DELETE": metadefs.refuse},
    "metadefs/namespaces/*/properties": _metadefs(metadefs.properties, many=True),
    "metadefs/namespaces/*/properties/*": _metadefs(metadefs.property_),
    "metadefs/namespaces/*/objects": _metadefs(metadefs.objects, many=True),
    "metadefs/namespaces/*/objects/*": _metadefs(metadefs.object_),
    "metadefs/namespaces/*/tags": _metadefs(metadefs.tags, many=True),
    "metadefs/namespaces/*/tags/*": {**_metadefs(metadefs.tag), "POST": metadefs.refuse},
    "metadefs/namespaces/*/resource_types": {"GET": metadefs.associations, "POST": metadefs.refuse},
    "metadefs/namespaces/*/resource_types/*": {"DELETE": metadefs.refuse},
    "stores/*/*": {"DELETE": discovery.forget_from_store},
    "info/stores": {"GET": discovery.stores},
    "info/import": {"GET": discovery.import_methods},
    "tasks": {"GET": discovery.tasks},
}

_TABLE = RouteTable(ROUTES)


def find_verb(method: str, parts: tuple[str, ...]) -> Verb:
    """Raises HttpFault with 404 for no such path, and with 405 (and what is allowed) for no such method of it."""
    for path, verbs in _TABLE.matching(parts):
        if method not in verbs:
            raise HttpFault(
                405, f"The method {method} is not allowed for this resource.", {"Allow": ", ".join(sorted(verbs))}
            )
        request("image").annotate(route=f"/v2/{path}")
        return verbs[method]
    raise not_found("The resource could not be found.")
