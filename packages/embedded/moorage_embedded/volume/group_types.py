"""Group types and their specs: what groups of volumes are of.

Source: Cinder's API v3, group types and group type specs (3.11).
"""

from typing import Any

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault, empty_response, json_response
from moorage_embedded.http_kit.paging import next_links, page_of
from moorage_embedded.http_kit.values import bounded_number
from moorage_embedded.volume import listing, views
from moorage_embedded.volume.faults import bad, conflict, no_group_type
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.type_list import public_filter
from moorage_embedded.volume.validation import (
    FLAG,
    METADATA_OR_NULL,
    NAME,
    SPECS,
    TEXT_OR_NULL,
    Check,
    flag,
    obj,
    under,
)

SINCE = 11
RESERVED = "default_cgsnapshot_type"
"""The type of what were consistency groups once; every Cinder has it, and groups are not made of it."""
TYPES_MAX = 1_000
TYPES = listing.ListedResource(
    "group_type", "group_types", (), (), sorts=("id", "name", "description", "is_public", "created_at", "updated_at")
)
_TEXTS = {"description": TEXT_OR_NULL, "is_public": FLAG}
CREATE = Check(under("group_type", obj(_TEXTS | {"name": NAME, "group_specs": METADATA_OR_NULL}, "name")))
UPDATE = Check(under("group_type", obj(_TEXTS | {"name": TEXT_OR_NULL})))
ALL_SPECS = Check(under("group_specs", SPECS))
ONE_SPEC = Check(SPECS | {"minProperties": 1, "maxProperties": 1})


def _new_type(name: str, description: str | None, *, is_public: bool, specs: Doc) -> Doc:
    return {
        "id": new_uuid(),
        "name": name,
        "description": description,
        "is_public": is_public,
        "group_specs": specs,
        "created_at": stamp(),
        "updated_at": None,
    }


def reserved_group_type() -> Doc:
    """The record of the type that every service has."""
    specs = {"consistent_group_snapshot_enabled": "<is> True"}
    return _new_type(RESERVED, "Default group type for migrating cgsnapshot", is_public=True, specs=specs)


def _group_type_of(call: VolumeCall, store: VolumeStore, id: str, *, hold: bool = False) -> Doc:
    """Raises 404 also for a private one, unless an administrator asks."""
    doc = store.get("group_type", id, hold=hold)
    if doc is None or not (call.who.admin or doc["is_public"]):
        raise no_group_type(id)
    return doc


def group_type_named(call: VolumeCall, store: VolumeStore, said: str) -> Doc:
    """By its id or its name, held, so that it is there as long as a group that is made of it. Raises 404."""
    doc = store.get("group_type", said, hold=True)
    if doc is None:
        found = store.many("group_type", where={"key": said}, limit=1)
        doc = store.get("group_type", found[0]["id"], hold=True) if found else None
    if doc is None or not (call.who.admin or doc["is_public"]):
        raise no_group_type(said)
    return doc


# ---------------------------------------------------------------------------------------------------- types


async def index(call: VolumeCall) -> Response:
    call.since(SINCE)
    said = dict(call.pairs)
    most = call.context.settings.page_max
    limit = bounded_number("limit", said.get("limit", str(most)), most)
    offset = bounded_number("offset", said.get("offset", "0"), 2**31 - 1)
    order = listing.sort_of(TYPES, dict(said))
    public = public_filter(said.get("is_public", "true")) if call.who.admin else True
    docs = await call.context.read(lambda store: store.many("group_type"))
    page = page_of(
        [doc for doc in docs if public in (None, doc["is_public"])], order, said.get("marker"), limit, offset
    )
    if page is None:
        raise no_group_type(said["marker"])
    answer: Doc = {"group_types": [views.group_type_view(call, doc) for doc in page]}
    if links := next_links(f"{call.url}/group_types", call.pairs, page, limit):
        answer["group_type_links"] = links
    return json_response(answer)


async def show(call: VolumeCall) -> Response:
    """One type. Raises HttpFault (404) for `default` too: no type is what groups are of that name none."""
    call.since(SINCE)
    id = call.path("id")
    if id == "default":
        raise HttpFault(404, "Default group type can not be found.")
    doc = await call.context.read_inline(lambda store: _group_type_of(call, store, id))
    return json_response({"group_type": views.group_type_view(call, doc)})


async def create(call: VolumeCall) -> Response:
    call.since(SINCE)
    said = CREATE(await call.body())["group_type"]
    call.require(call.who.admin, "group:group_types:create")

    def work(store: VolumeStore) -> Doc:
        if store.count("group_type") >= TYPES_MAX:
            raise HttpFault(413, f"There may be {TYPES_MAX} group types.")
        _check_name(store, said["name"])
        public = flag(said.get("is_public", True))
        specs = _bounded(call, said.get("group_specs") or {})
        doc = _new_type(said["name"], said.get("description"), is_public=public, specs=specs)
        store.add("group_type", doc)
        return views.group_type_view(call, doc)

    return json_response({"group_type": await call.context.write(work)}, 202)


def _check_name(store: VolumeStore, name: str) -> None:
    store.alone("group types")
    if store.count("group_type", key=name):
        raise conflict(f"Group Type {name} already exists.")


async def update(call: VolumeCall) -> Response:
    """Change the name, the description, or who sees it. Raises HttpFault: 400 where nothing is said, 409 for a name in use."""
    call.since(SINCE)
    said = UPDATE(await call.body())["group_type"]
    call.require(call.who.admin, "group:group_types:update")
    changes = {name: said[name] for name in ("name", "description", "is_public") if said.get(name) is not None}
    if "name" in changes and not changes["name"].strip():
        raise bad("Group type name can not be empty.")
    if not changes:
        raise bad("Specify group type name, description or a combination thereof.")

    def work(store: VolumeStore) -> Doc:
        doc = _group_type_of(call, store, call.path("id"), hold=True)
        if changes.get("name", doc["name"]) != doc["name"]:
            _check_name(store, changes["name"])
        doc |= changes
        doc["is_public"] = flag(doc["is_public"])
        store.put("group_type", touched(doc))
        return views.group_type_view(call, doc)

    return json_response({"group_type": await call.context.write(work)})


async def delete(call: VolumeCall) -> Response:
    call.since(SINCE)
    call.require(call.who.admin, "group:group_types:delete")

    def work(store: VolumeStore) -> None:
        doc = _group_type_of(call, store, call.path("id"), hold=True)
        if store.count("group", type=doc["id"]):
            raise bad(
                f"Target group type is still in use. Group Type {doc['id']} deletion is not allowed with groups present"
                " with the type."
            )
        store.remove("group_type", doc["id"])

    await call.context.write(work)
    return empty_response(202)


# ---------------------------------------------------------------------------------------------------- specs


def _bounded(call: VolumeCall, specs: dict[str, Any]) -> dict[str, Any]:
    """The same. Raises 413 when it is too much."""
    if len(specs) > call.context.settings.metadata_max:
        raise HttpFault(413, f"A group type may have {call.context.settings.metadata_max} specs.")
    return specs


async def _specs_of(call: VolumeCall, rule: str) -> Doc:
    call.since(SINCE)
    call.require(call.who.admin, f"group:group_types_specs:{rule}")
    doc = await call.context.read_inline(lambda store: _group_type_of(call, store, call.path("id")))
    specs: Doc = doc["group_specs"]
    return specs


async def specs(call: VolumeCall) -> Response:
    return json_response({"group_specs": await _specs_of(call, "get_all")})


async def spec(call: VolumeCall) -> Response:
    """One spec. Raises HttpFault (404)."""
    held, key = await _specs_of(call, "get"), call.path("key")
    if key not in held:
        raise HttpFault(404, f"Group Type {call.path('id')} has no extra spec with key {key}.")
    return json_response({key: held[key]})


async def add_specs(call: VolumeCall) -> Response:
    call.since(SINCE)
    said = ALL_SPECS(await call.body())
    call.require(call.who.admin, "group:group_types_specs:create")
    await _set_specs(call, said["group_specs"])
    return json_response(said, 202)


async def set_spec(call: VolumeCall) -> Response:
    call.since(SINCE)
    said = ONE_SPEC(await call.body())
    call.require(call.who.admin, "group:group_types_specs:update")
    await _set_specs(call, said, named=call.path("key"))
    return json_response(said)


async def _set_specs(call: VolumeCall, said: Doc, *, named: str | None = None) -> None:
    def work(store: VolumeStore) -> None:
        doc = _group_type_of(call, store, call.path("id"), hold=True)
        if named not in (None, *said):
            raise bad("Request body and URI mismatch")
        doc["group_specs"] = _bounded(call, doc["group_specs"] | said)
        store.put("group_type", touched(doc))

    await call.context.write(work)


async def drop_spec(call: VolumeCall) -> Response:
    """Remove one spec. Raises HttpFault (404)."""
    call.since(SINCE)
    call.require(call.who.admin, "group:group_types_specs:delete")

    def work(store: VolumeStore) -> None:
        doc = _group_type_of(call, store, call.path("id"), hold=True)
        if call.path("key") not in doc["group_specs"]:
            raise HttpFault(404, f"Group Type {doc['id']} has no specs with key {call.path('key')}.")
        del doc["group_specs"][call.path("key")]
        store.put("group_type", touched(doc))

    await call.context.write(work)
    return empty_response(202)
