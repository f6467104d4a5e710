"""What is in a namespace of metadata definitions: objects, properties, tags, and the resource types it is associated with."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.image import metadef_store
from moorage_embedded.image.faults import bad, conflict, not_allowed, not_found
from moorage_embedded.image.metadef_records import (
    RESOURCE_TYPES,
    Json,
    MetadefNamespace,
    object_view,
    prefix_of,
    without_nulls,
)
from moorage_embedded.image.metadef_schemas import body_of
from moorage_embedded.image.metadefs import (
    association_record,
    association_taken,
    body,
    change,
    check_distinct,
    check_unprotected,
    descends,
    limit_of,
    object_record,
    object_taken,
    property_value,
    query_value,
    seen,
    tag_taken,
)
from moorage_embedded.image.request import ImageCall, now, second

TRUE = {"1", "t", "true", "on", "y", "yes"}
BORN = "1970-01-01T00:00:00Z"
"""When the types were made that there are from the start."""


def _place(records: Sequence[Json], name: str, missing: str) -> int:
    """Where the record of this name is. Raises HttpFault (404)."""
    for place, each in enumerate(records):
        if each["name"] == name:
            return place
    raise not_found(missing)


def _duplicate(kind: str, namespace: MetadefNamespace, name: str) -> str:
    return (
        f"Invalid update. It would result in a duplicate metadata definition {kind} with the same name={name} in"
        f" namespace={namespace.header.name}."
    )


# -------------------------------------------------------------------------------------------------------------- objects


async def objects(call: ImageCall) -> Response:
    namespace = await seen(call)
    found = [object_view(namespace.header.name, each) for each in namespace.contents.objects]
    return json_response({"objects": found, "schema": "v2/schemas/metadefs/objects"})


async def object_(call: ImageCall) -> Response:
    namespace, name = await seen(call), call.path("name")
    found = namespace.contents.objects
    return json_response(
        object_view(namespace.header.name, found[_place(found, name, f"Could not find metadata object {name}")])
    )


async def create_object(call: ImageCall) -> Response:
    said = await body(call, "object", ("self", "schema", "created_at", "updated_at"))

    def work(namespace: MetadefNamespace) -> Json:
        if any(each["name"] == said["name"] for each in namespace.contents.objects):
            raise conflict(object_taken(namespace.header.name, said["name"]))
        record = object_record(said, second(now()))
        namespace.contents.objects.append(record)
        return object_view(namespace.header.name, record)

    return json_response(await change(call, "add_metadef_object", work), 201)


async def update_object(call: ImageCall) -> Response:
    name, said = call.path("name"), await body(call, "object", ("self", "schema", "created_at", "updated_at"))

    def work(namespace: MetadefNamespace) -> Json:
        found = namespace.contents.objects
        place = _place(found, name, f"Could not find metadata object {name}")
        if said["name"] != name and any(each["name"] == said["name"] for each in found):
            raise conflict(_duplicate("object", namespace, said["name"]))
        found[place] = object_record(said, found[place]["created_at"])
        return object_view(namespace.header.name, found[place])

    return json_response(await change(call, "modify_metadef_object", work))


async def delete_object(call: ImageCall) -> Response:
    name = call.path("name")

    def work(namespace: MetadefNamespace) -> None:
        found = namespace.contents.objects
        place = _place(found, name, f"Could not find metadata object {name}")
        check_unprotected(namespace, f"object {name}")
        del found[place]

    await change(call, "delete_metadef_object", work)
    return empty_response()


# ----------------------------------------------------------------------------------------------------------- properties


async def properties(call: ImageCall) -> Response:
    return json_response({"properties": (await seen(call)).contents.properties})


async def property_(call: ImageCall) -> Response:
    """With `resource_type` it is asked for by its name with the prefix."""
    namespace, name = await seen(call), call.path("name")
    resource_type = query_value(call, "resource_type")
    if resource_type:
        prefix = prefix_of(namespace.header, resource_type)
        if prefix is None:
            raise not_found(
                f"The metadata definition resource-type association of resource-type={resource_type} to"
                f" namespace={namespace.header.name}, was not found."
            )
        if not prefix or not name.startswith(prefix):
            raise not_found(
                f"Property {name} does not start with the expected resource type association prefix of '{prefix}'."
            )
        name = name.removeprefix(prefix)
    if name not in namespace.contents.properties:
        raise not_found(f"Could not find property {name}")
    return json_response(namespace.contents.properties[name] | {"name": name})


async def create_property(call: ImageCall) -> Response:
    said = property_value(await _property(call))

    def work(namespace: MetadefNamespace) -> None:
        if said["name"] in namespace.contents.properties:
            raise conflict(
                f"A metadata definition property with name={said['name']} already exists in"
                f" namespace={namespace.header.name}."
            )
        namespace.contents.properties[said["name"]] = said

    await change(call, "add_metadef_property", work)
    return json_response(said, 201)


async def _property(call: ImageCall) -> Json:
    said = await body(call, "property")
    if "name" not in said:
        raise bad("Provided object does not match schema 'property': 'name' is a required property")
    return said


async def update_property(call: ImageCall) -> Response:
    name, said = call.path("name"), property_value(await _property(call))

    def work(namespace: MetadefNamespace) -> None:
        found = namespace.contents.properties
        if name not in found:
            raise not_found(f"Could not find property {name}")
        if said["name"] != name and said["name"] in found:
            raise conflict(_duplicate("property", namespace, said["name"]))
        changed = {said["name"] if each == name else each: said if each == name else found[each] for each in found}
        namespace.contents.properties = changed

    await change(call, "modify_metadef_property", work)
    return json_response(said)


async def delete_property(call: ImageCall) -> Response:
    name = call.path("name")

    def work(namespace: MetadefNamespace) -> None:
        if name not in namespace.contents.properties:
            raise not_found(f"Could not find property {name}")
        check_unprotected(namespace, f"property {name}")
        del namespace.contents.properties[name]

    await change(call, "remove_metadef_property", work)
    return empty_response()


# ----------------------------------------------------------------------------------------------------------------- tags


async def tags(call: ImageCall) -> Response:
    """The newest first, unless `sort_key` and `sort_dir` say else. Raises HttpFault: 400, 404."""
    namespace, down = await seen(call), descends(call)
    limit, marker = query_value(call, "limit"), query_value(call, "marker")
    found = list(namespace.contents.tags)  # the oldest first: tags are added at the end
    if query_value(call, "sort_key") in {"name", "id"}:
        found.sort(key=lambda each: str(each["name"]))
    if down:
        found.reverse()
    if marker:
        found = found[_place(found, marker, f"Could not find metadata tag {marker}") + 1 :]
    page = found[: limit_of(call)] if limit else found
    return json_response({"tags": [{"name": each["name"]} for each in page]})


async def tag(call: ImageCall) -> Response:
    found, name = (await seen(call)).contents.tags, call.path("name")
    return json_response(found[_place(found, name, f"Could not find metadata tag {name}")])


def _has_tag(records: Sequence[Json], name: str) -> bool:
    return any(each["name"].casefold() == name.casefold() for each in records)


def _new_tag(name: str) -> Json:
    at = second(now())
    return {"name": name, "created_at": at, "updated_at": at}


async def create_tag(call: ImageCall) -> Response:
    name = call.path("name")
    if (reason := body_of("tag").reason({"name": name})) is not None:
        raise bad(f"Provided object does not match schema 'tag': {reason}")

    def work(namespace: MetadefNamespace) -> Json:
        if _has_tag(namespace.contents.tags, name):
            raise conflict(tag_taken(namespace.header.name, name))
        namespace.contents.tags.append(_new_tag(name))
        return namespace.contents.tags[-1]

    return json_response(await change(call, "add_metadef_tag", work), 201)


async def create_tags(call: ImageCall) -> Response:
    """All tags at once: in place of those there are, or with `X-Openstack-Append` in addition to them."""
    said = [each["name"] for each in (await body(call, "tags")).get("tags", [])]
    append = call.request.headers.get("x-openstack-append", "").strip().lower() in TRUE

    def work(namespace: MetadefNamespace) -> None:
        if not said:
            return
        kept = namespace.contents.tags if append else []
        every = [*kept, *(_new_tag(name) for name in said)]
        check_distinct([each["name"].casefold() for each in every], lambda name: tag_taken(namespace.header.name, name))
        namespace.contents.tags = every

    await change(call, "add_metadef_tags", work)
    return json_response({"tags": [{"name": name} for name in said]}, 201)


async def update_tag(call: ImageCall) -> Response:
    name, said = call.path("name"), await body(call, "tag")

    def work(namespace: MetadefNamespace) -> Json:
        found = namespace.contents.tags
        place = _place(found, name, f"Could not find metadata tag {name}")
        if _has_tag([*found[:place], *found[place + 1 :]], said["name"]):
            raise conflict(tag_taken(namespace.header.name, said["name"]))
        found[place] |= {"name": said["name"], "updated_at": second(now())}
        return found[place]

    return json_response(await change(call, "modify_metadef_tag", work))


async def delete_tag(call: ImageCall) -> Response:
    name = call.path("name")

    def work(namespace: MetadefNamespace) -> None:
        place = _place(namespace.contents.tags, name, f"Could not find metadata tag {name}")
        check_unprotected(namespace, f"tag {name}")
        del namespace.contents.tags[place]

    await change(call, "delete_metadef_tag", work)
    return empty_response()


# ------------------------------------------------------------------------------------------------------- resource types


async def resource_types(call: ImageCall) -> Response:
    """Every type that there is from the start, or that a namespace was ever associated with."""
    if not call.who.reader:
        raise not_allowed("list_metadef_resource_types")
    found = dict.fromkeys(RESOURCE_TYPES, BORN)
    for namespace in call.context.metadefs.values():
        for each in namespace.header.associations:
            found.setdefault(each["name"], namespace.header.created_at)
    found = await call.context.read(lambda store: metadef_store.all_resource_types(store.tx)) | found
    rows = [{"name": name, "created_at": at, "updated_at": at} for name, at in sorted(found.items())]
    return json_response({"resource_types": rows})


async def associations(call: ImageCall) -> Response:
    return json_response({"resource_type_associations": (await seen(call)).header.associations})


async def associate(call: ImageCall) -> Response:
    said = association_record(await body(call, "resource_type"))

    def work(namespace: MetadefNamespace) -> Json:
        if prefix_of(namespace.header, said["name"]) is not None:
            raise conflict(association_taken(namespace.header.name, said["name"]))
        at = second(now())
        record: dict[str, Any] = without_nulls(said) | {"created_at": at, "updated_at": at}
        namespace.header.associations.append(record)
        return record

    return json_response(await change(call, "add_metadef_resource_type_association", work), 201)


async def disassociate(call: ImageCall) -> Response:
    name = call.path("name")

    def work(namespace: MetadefNamespace) -> None:
        found = namespace.header.associations
        place = _place(found, name, f"Failed to find resource type {name} to delete")
        check_unprotected(namespace, f"resource-type-association {name}")
        del found[place]

    await change(call, "remove_metadef_resource_type_association", work)
    return empty_response()
