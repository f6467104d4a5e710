"""Namespaces of metadata definitions: which properties images, flavors and volumes may have, for dashboards to offer.

Administrators write them over HTTP; those of the operator's files (`metadef_files`) are there too, and read-only.  Whoever reads sees
the public ones and those of the own project; administrators see all.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.responses import Response

from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.http_kit.bodies import JsonBody
from moorage_embedded.http_kit.paging import page_url
from moorage_embedded.http_kit.values import bounded_number
from moorage_embedded.image import metadef_store
from moorage_embedded.image.faults import bad, conflict, forbidden, not_allowed, not_found, read_only
from moorage_embedded.image.metadef_records import (
    PRIVATE,
    PUBLIC,
    Json,
    MetadefNamespace,
    NamespaceContents,
    NamespaceHeader,
    href,
    namespace_view,
    object_view,
    prefix_of,
    prefixed,
    without_nulls,
)
from moorage_embedded.image.metadef_schemas import body_of
from moorage_embedded.image.request import ImageCall, fine, now, second
from moorage_embedded.image.store import ImageTables

T = TypeVar("T")
PATH = "/v2/metadefs/namespaces"
NO_RESOURCE = "The resource could not be found."
SORT_KEYS = {"id": "name", "namespace": "name", "created_at": "born"} | {
    name: name for name in ("display_name", "description", "visibility", "owner", "protected", "updated_at")
}
BODY = JsonBody(
    too_large="Request is too large: the limit is {limit} bytes.",
    malformed="Malformed JSON in request body.",
    empty="Body expected in request.",
    nul="A text may not hold the character NUL.",
    not_an_object="The body must be a JSON object.",
)

# ----------------------------------------------------------------------------------------------- what all of them share


async def body(call: ImageCall, kind: str, readonly: tuple[str, ...] = ("created_at", "updated_at")) -> Json:
    """What was sent to make or change one. Raises HttpFault (400, 403, 413)."""
    said: Json = await BODY.read(call.request, call.context.settings.body_max_bytes)
    for name in readonly:
        if name in said:
            raise read_only(name)
    if (reason := body_of(kind).reason(said)) is not None:
        raise bad(f"Provided object does not match schema '{kind}': {reason}")
    if said.get("name", said.get("namespace")) == "":
        raise bad(f"Provided object does not match schema '{kind}': a name has one character at least")
    return said


def query_value(call: ImageCall, name: str) -> str | None:
    return next((value for key, value in call.pairs if key == name), None)


def limit_of(call: ImageCall) -> int:
    """How many a page has. Raises HttpFault (400)."""
    asked, settings = query_value(call, "limit"), call.context.settings
    return settings.page_default if asked is None else bounded_number("limit", asked, settings.page_max)


def descends(call: ImageCall) -> bool:
    way = query_value(call, "sort_dir") or "desc"
    if way not in {"asc", "desc"}:
        raise bad(f"Invalid sort direction: {way}")
    return way == "desc"


def sees(call: ImageCall, header: NamespaceHeader) -> bool:
    who = call.who
    return who.admin or (who.reader and (header.visibility == PUBLIC or who.owns(header.owner)))


def _found(call: ImageCall, store: ImageTables, *, hold: bool = False) -> MetadefNamespace | None:
    """The path's namespace if the caller sees it."""
    name = call.path("namespace")
    found = call.context.metadefs.get(name) or metadef_store.show(store.tx, name, hold=hold)
    return found if found is not None and sees(call, found.header) else None


async def seen(call: ImageCall, missing: str = "Namespace {} not found") -> MetadefNamespace:
    """The path's namespace. Raises HttpFault (404)."""
    found = await call.context.read(lambda store: _found(call, store))
    if found is None:
        raise not_found(missing.format(call.path("namespace")))
    return found


async def change(call: ImageCall, action: str, work: Callable[[MetadefNamespace], T]) -> T:
    """Change the path's namespace and write it. Raises HttpFault: 404, 403, 409, 413, and what `work` raises."""
    name = call.path("namespace")

    def write(store: ImageTables) -> T:
        namespace = _changeable(call, store, action)
        types = {each["name"] for each in namespace.header.associations}
        done = work(namespace)
        metadef_store.add_resource_types(
            store.tx, {each["name"] for each in namespace.header.associations} - types, second(now())
        )
        if not metadef_store.put(store.tx, name, namespace):
            raise conflict(
                "Invalid update. It would result in a duplicate metadata definition namespace with the same name of"
                f" {namespace.header.name}"
            )
        return done

    return await call.context.write(write)


def _changeable(call: ImageCall, store: ImageTables, action: str) -> MetadefNamespace:
    found = _found(call, store, hold=True)
    if found is None:
        raise not_found(f"Namespace {call.path('namespace')} not found")
    if not call.who.admin:
        raise not_allowed(action)
    if found.from_file:
        raise forbidden(
            f"The metadata definition namespace {found.header.name} is a file of the operator: change it there, and"
            " start the service again."
        )
    return found


def check_unprotected(namespace: MetadefNamespace, what: str) -> None:
    """Raises HttpFault (403): of a protected namespace nothing is deleted."""
    if namespace.header.protected:
        raise forbidden(f"Metadata definition {what} is protected and cannot be deleted.")


def property_value(said: Json) -> Json:
    """A property as it is kept: its default is a text, whatever its type is."""
    default = said.get("default")
    return said | {"default": str(default)} if isinstance(default, bool | int | float) else said


def object_record(said: Json, created_at: str) -> Json:
    """An object as it is kept."""
    record: Json = {name: said[name] for name in ("name", "description", "required") if name in said}
    if "properties" in said:
        record["properties"] = {name: property_value(each) for name, each in said["properties"].items()}
    return record | {"created_at": created_at, "updated_at": second(now())}


def check_distinct(names: list[str], taken: Callable[[str], str]) -> None:
    """Raises HttpFault (409) with what `taken` says of a name that is there twice."""
    for name in names:
        if names.count(name) > 1:
            raise conflict(taken(name))


# ----------------------------------------------------------------------------------------------------------- namespaces


def _headers(call: ImageCall, store: ImageTables) -> list[NamespaceHeader]:
    files = [each.header for each in call.context.metadefs.values()]
    found = [each for each in (*files, *metadef_store.headers(store.tx)) if sees(call, each)]
    visibility, types = query_value(call, "visibility"), query_value(call, "resource_types")
    if visibility:
        found = [each for each in found if each.visibility == visibility]
    if types is not None:
        wanted = set(types.split(","))
        found = [each for each in found if wanted & {assoc["name"] for assoc in each.associations}]
    return found


async def index(call: ImageCall) -> Response:
    """The newest first, unless `sort_key` and `sort_dir` say else. Raises HttpFault: 400, 403, 404 for the marker."""
    if not call.who.reader:
        raise not_allowed("get_metadef_namespaces")
    limit, key = limit_of(call), query_value(call, "sort_key") or "created_at"
    if query_value(call, "visibility") not in (None, "", PUBLIC, PRIVATE):
        raise bad(f"Invalid visibility value: {query_value(call, 'visibility')}")
    if key not in SORT_KEYS:
        raise bad(f"Invalid sort key: {key}")
    down, marker = descends(call), query_value(call, "marker")
    found = await call.context.read(lambda store: _headers(call, store))
    found.sort(key=lambda each: each.name)
    for column in ("born", SORT_KEYS[key]):
        found.sort(key=lambda each, column=column: str(getattr(each, column) or ""), reverse=down)  # type: ignore[misc]
    if marker:
        place = next((place for place, each in enumerate(found) if each.name == marker), None)
        if place is None:
            raise not_found(f"Metadata definition namespace={marker} was not found.")
        found = found[place + 1 :]
    page = found[:limit]
    answer: Json = {
        "namespaces": [namespace_view(each) for each in page],
        "first": page_url(PATH, call.pairs, None),
        "schema": "/v2/schemas/metadefs/namespaces",
    }
    if page and len(page) == limit:
        answer["next"] = page_url(PATH, call.pairs, page[-1].name)
    return json_response(answer)


async def show(call: ImageCall) -> Response:
    """A namespace with all that is in it; with `resource_type`, as it is for that type."""
    namespace = await seen(call, "Metadata definition namespace={} was not found." if call.who.reader else NO_RESOURCE)
    header, contents = namespace.header, namespace.contents
    shown = namespace_view(header)
    prefix = prefix_of(header, query_value(call, "resource_type") or "") or ""
    if contents.properties:
        shown["properties"] = prefixed(contents.properties, prefix)
    if contents.objects:
        shown["objects"] = [_prefixed_object(object_view(header.name, each), prefix) for each in contents.objects]
    if contents.tags:
        shown["tags"] = [{"name": each["name"]} for each in contents.tags]
    return json_response(shown)


def _prefixed_object(shown: Json, prefix: str) -> Json:
    required = [prefix + name for name in shown["required"]]
    return shown | {"properties": prefixed(shown["properties"], prefix), "required": required}


def _new_namespace(call: ImageCall, said: Json) -> MetadefNamespace:
    """Raises HttpFault (409) for two parts of one name."""
    moment = now()
    at = second(moment)
    stamps = {"created_at": at, "updated_at": at}
    header = NamespaceHeader(
        name=said["namespace"],
        owner=said.get("owner") or call.who.project or "",
        visibility=said.get("visibility") or PRIVATE,
        protected=said.get("protected", False),
        born=fine(moment),
        display_name=said.get("display_name"),
        description=said.get("description"),
        associations=[association_record(each) | stamps for each in said.get("resource_type_associations", [])],
        **stamps,
    )
    contents = NamespaceContents(
        {name: property_value(each) for name, each in said.get("properties", {}).items()},
        [object_record(each, at) for each in said.get("objects", [])],
        [{"name": each["name"]} | stamps for each in said.get("tags", [])],
    )
    check_distinct([each["name"] for each in header.associations], lambda name: association_taken(header.name, name))
    check_distinct([each["name"] for each in contents.objects], lambda name: object_taken(header.name, name))
    check_distinct([each["name"].casefold() for each in contents.tags], lambda name: tag_taken(header.name, name))
    return MetadefNamespace(header, contents)


def association_record(said: Json) -> Json:
    return {name: said[name] for name in ("name", "prefix", "properties_target") if name in said}


def association_taken(namespace: str, name: str) -> str:
    return (
        f"The metadata definition resource-type association of resource-type={name} to namespace={namespace} already"
        " exists."
    )


def object_taken(namespace: str, name: str) -> str:
    return f"A metadata definition object with name={name} already exists in namespace={namespace}."


def tag_taken(namespace: str, name: str) -> str:
    return (
        f"A metadata tag with name={name} already exists in namespace={namespace}. (Please note that metadata tag names"
        " are case insensitive)."
    )


async def create(call: ImageCall) -> Response:
    """A namespace, with definitions or without. Raises HttpFault: 400, 403, 409, 413."""
    if not call.who.admin:
        raise not_allowed("add_metadef_namespace")
    said = await body(call, "namespace", ("self", "schema", "created_at", "updated_at"))
    namespace = _new_namespace(call, said)
    header = namespace.header

    def work(store: ImageTables) -> bool:
        if header.name in call.context.metadefs or not metadef_store.add(store.tx, namespace):
            return False
        types = {each["name"] for each in header.associations}
        metadef_store.add_resource_types(store.tx, types, header.created_at)
        return True

    if not await call.context.write(work):
        raise conflict(f"The metadata definition namespace={header.name} already exists.")
    parts = {
        name: said[name] for name in ("resource_type_associations", "properties", "objects", "tags") if name in said
    }
    return json_response(namespace_view(header) | parts, 201, {"Location": call.context.public_url + href(header.name)})


async def update(call: ImageCall) -> Response:
    """What a namespace says of itself, all of it; the definitions in it stay. Raises HttpFault: 400, 403, 404, 409."""
    said = await body(call, "namespace", ("self", "schema", "created_at", "updated_at"))

    def work(namespace: MetadefNamespace) -> Json:
        header = namespace.header
        if said["namespace"] in call.context.metadefs:
            raise conflict(f"The metadata definition namespace={said['namespace']} already exists.")
        header.name = said["namespace"]
        header.display_name, header.description = said.get("display_name"), said.get("description")
        header.visibility = said.get("visibility") or PRIVATE
        header.protected = said.get("protected", False)
        header.owner = said.get("owner") or call.who.project or ""
        header.updated_at = second(now())
        return without_nulls(namespace_view(header) | {"resource_type_associations": None})

    return json_response(await change(call, "modify_metadef_namespace", work))


async def delete(call: ImageCall) -> Response:
    def work(store: ImageTables) -> None:
        namespace = _changeable(call, store, "delete_metadef_namespace")
        check_unprotected(namespace, f"namespace {namespace.header.name}")
        metadef_store.remove(store.tx, namespace.header.name)

    await call.context.write(work)
    return empty_response()


def _emptied(part: str) -> Callable[[ImageCall], Awaitable[Response]]:
    """Deletes all objects, properties or tags of a namespace."""

    async def delete_all(call: ImageCall) -> Response:
        def work(namespace: MetadefNamespace) -> None:
            check_unprotected(namespace, f"namespace {namespace.header.name}")
            getattr(namespace.contents, part).clear()

        await change(call, "delete_metadef_namespace", work)
        return empty_response()

    return delete_all


delete_objects, delete_properties, delete_tags = _emptied("objects"), _emptied("properties"), _emptied("tags")
