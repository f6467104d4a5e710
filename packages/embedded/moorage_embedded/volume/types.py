"""Volume types, their access, and a project's own default."""

from typing import Any

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault, empty_response, json_response
from moorage_embedded.volume import views
from moorage_embedded.volume.faults import bad, conflict
from moorage_embedded.volume.records import check_no_group_has_type, default_type, type_named, type_of
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import (
    FLAG,
    NAME,
    SPECS,
    TEXT,
    TEXT_OR_NULL,
    Check,
    Schema,
    flag,
    obj,
    under,
)

TYPES_MAX = 1_000
PROJECTS_MAX = 10_000
"""Of one private type."""
_PUBLIC = "os-volume-type-access:is_public"
CREATE = Check(
    under(
        "volume_type",
        obj({"name": NAME, "description": TEXT_OR_NULL, "extra_specs": SPECS, _PUBLIC: FLAG}, "name"),
    )
)
UPDATE = Check(under("volume_type", obj({"name": TEXT_OR_NULL, "description": TEXT_OR_NULL, "is_public": FLAG})))
EXTRA_SPECS = Check(under("extra_specs", SPECS | {"minProperties": 1}))
ONE_SPEC = Check(SPECS | {"minProperties": 1, "maxProperties": 1})
ADD = Check(under("addProjectAccess", obj({"project": TEXT}, "project")))
REMOVE = Check(under("removeProjectAccess", obj({"project": TEXT}, "project")))
DEFAULT = Check(under("default_type", obj({"volume_type": NAME}, "volume_type")))
_SIZE = {"type": ["string", "integer", "null"], "pattern": "^[0-9]{1,10}$", "minimum": 0, "maximum": 2**31 - 1}
_ENCRYPTION: dict[str, Schema] = {
    "key_size": _SIZE,
    "provider": {"type": "string", "minLength": 0, "maxLength": 255},
    "control_location": {"enum": ["front-end", "back-end"]},
    "cipher": TEXT_OR_NULL,
}
ENCRYPT = Check(under("encryption", obj(_ENCRYPTION, "provider", "control_location", more=True)))
CHANGE_ENCRYPTION = Check(under("encryption", obj(_ENCRYPTION, more=True)))


def new_type(name: str, *, description: str | None = None, is_public: bool = True, specs: Doc | None = None) -> Doc:
    return {
        "id": new_uuid(),
        "name": name,
        "description": description,
        "is_public": is_public,
        "extra_specs": specs or {},
        "projects": [],
        "qos_specs_id": None,
        "encryption": None,
        "created_at": stamp(),
        "updated_at": None,
    }


# ---------------------------------------------------------------------------------------------------- types


async def show(call: VolumeCall) -> Response:
    def work(store: VolumeStore) -> Doc:
        id = call.path("id")
        doc = default_type(call, store) if id == "default" else type_of(call, store, id)
        return views.type_view(call, doc)

    return json_response({"volume_type": await call.context.read(work)})


async def create(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:type_create")
    said = CREATE(await call.body())["volume_type"]
    name = said["name"].strip()

    def work(store: VolumeStore) -> Doc:
        if store.count("type") >= TYPES_MAX:
            raise HttpFault(413, f"There may be {TYPES_MAX} volume types.")
        _check_name(store, name)
        public = flag(said.get(_PUBLIC, True))
        specs = said.get("extra_specs") or {}
        doc = new_type(name, description=said.get("description"), is_public=public, specs=specs)
        store.add("type", doc)
        return views.type_view(call, doc, qos=False)

    return json_response({"volume_type": await call.context.write(work)})


def _check_name(store: VolumeStore, name: str) -> None:
    store.alone("volume types")
    if store.count("type", key=name):
        raise conflict(f"Volume Type {name} already exists.")


async def update(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:type_update")
    said = UPDATE(await call.body())["volume_type"]
    name = said.get("name")
    if name is not None and not name.strip():
        raise bad("Volume type name can not be empty.")
    if name is None and said.get("description") is None and said.get("is_public") is None:
        raise bad("Specify volume type name, description, is_public or a combination thereof.")

    def work(store: VolumeStore) -> Doc:
        doc = type_of(call, store, call.path("id"), hold=True)
        if name is not None and name.strip() != doc["name"]:
            if doc["name"] == call.context.settings.default_type:
                raise bad(f"The volume type {doc['name']} is what volumes are that name none; it keeps its name.")
            _check_name(store, name.strip())
            doc["name"] = name.strip()
        if said.get("description") is not None:
            doc["description"] = said["description"]
        if said.get("is_public") is not None:
            doc["is_public"] = flag(said["is_public"])
        store.put("type", touched(doc))
        return views.type_view(call, doc, qos=False, access=False)

    return json_response({"volume_type": await call.context.write(work)})


async def delete(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:type_delete")

    def work(store: VolumeStore) -> None:
        doc = type_of(call, store, call.path("id"), hold=True)
        if store.count("type") == 1:
            raise bad(f"The volume type {doc['id']} is the only currently defined volume type and cannot be deleted.")
        own = any(each["volume_type_id"] == doc["id"] for each in store.many("default_type"))
        if own or doc["name"] == call.context.settings.default_type:
            raise bad(f"The volume type {doc['id']} is a default volume type and cannot be deleted.")
        _check_unused(store, doc["id"], "Target volume type is still in use.")
        check_no_group_has_type(store, doc["id"])
        store.remove("type", doc["id"])

    await call.context.write(work)
    return empty_response(202)


def _check_unused(store: VolumeStore, id: str, why: str) -> None:
    if store.count("volume", type=id) or store.count("snapshot", type=id):
        raise bad(why)


async def act(call: VolumeCall) -> Response:
    """Who may use a private type."""
    body = await call.body()
    name = next(iter(body), "")
    if name not in {"addProjectAccess", "removeProjectAccess"}:
        raise bad(
            f"There is no such action: {name[:100]}. Verify the request body and Content-Type header and try again."
        )
    adds = name == "addProjectAccess"
    call.require(call.who.admin, f"volume_extension:volume_type_access:{name}")
    project = (ADD if adds else REMOVE)(body)[name]["project"]

    def work(store: VolumeStore) -> None:
        doc = type_of(call, store, call.path("id"), hold=True)
        if doc["is_public"]:
            raise bad("Invalid volume type: Type access modification is not applicable to public volume type.")
        if adds:
            if project in doc["projects"]:
                raise conflict(f"Volume type access for {doc['id']} / {project} combination already exists.")
            if len(doc["projects"]) >= PROJECTS_MAX:
                raise HttpFault(413, f"A volume type may be used by {PROJECTS_MAX} projects.")
            doc["projects"].append(project)
        elif project in doc["projects"]:
            doc["projects"].remove(project)
        else:
            raise HttpFault(404, f"Volume type access not found for {doc['id']} / {project} combination.")
        store.put("type", touched(doc))

    await call.context.write(work)
    return empty_response(202)


async def access(call: VolumeCall) -> Response:
    """The projects of a private type. Raises HttpFault (404) for a public type."""
    call.require(call.who.admin, "volume_extension:volume_type_access:get_all_for_type")
    doc = await call.context.read(lambda store: type_of(call, store, call.path("id")))
    if doc["is_public"]:
        raise HttpFault(404, "Access list not available for public volume types.")
    found = [{"volume_type_id": doc["id"], "project_id": project} for project in doc["projects"]]
    return json_response({"volume_type_access": found})


# ---------------------------------------------------------------------------------------------------- extra specs


def _no_spec(doc: Doc, key: str) -> HttpFault:
    return HttpFault(404, f"Volume Type {doc['id']} has no extra specs with key {key}.")


async def specs(call: VolumeCall) -> Response:
    doc = await call.context.read(lambda store: type_of(call, store, call.path("id")))
    return json_response({"extra_specs": views.visible_specs(call, doc["extra_specs"])})


async def spec(call: VolumeCall) -> Response:
    doc = await call.context.read(lambda store: type_of(call, store, call.path("id")))
    shown, key = views.visible_specs(call, doc["extra_specs"]), call.path("key")
    if key not in shown:
        raise _no_spec(doc, key)
    return json_response({key: shown[key]})


async def add_specs(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:types_extra_specs:create")
    said = EXTRA_SPECS(await call.body())
    await _set_specs(call, said["extra_specs"])
    return json_response(said)


async def set_spec(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:types_extra_specs:update")
    said = ONE_SPEC(await call.body())
    if call.path("key") not in said:
        raise bad("Request body and URI mismatch")
    await _set_specs(call, said)
    return json_response(said)


async def _set_specs(call: VolumeCall, said: dict[str, Any]) -> None:
    def work(store: VolumeStore) -> None:
        doc = type_of(call, store, call.path("id"), hold=True)
        _check_unused(store, doc["id"], "Volume Type is currently in use.")
        doc["extra_specs"] |= said
        if len(doc["extra_specs"]) > call.context.settings.metadata_max:
            raise HttpFault(413, f"A volume type may have {call.context.settings.metadata_max} extra specs.")
        both = {doc["extra_specs"].get(name) for name in ("multiattach", "cacheable")}
        if both == {"<is> True"}:
            raise bad("cacheable cannot be set with multiattach.")
        store.put("type", touched(doc))

    await call.context.write(work)


async def drop_spec(call: VolumeCall) -> Response:
    def work(store: VolumeStore) -> None:
        doc = type_of(call, store, call.path("id"), hold=True)
        call.require(call.who.admin, "volume_extension:types_extra_specs:delete")
        _check_unused(store, doc["id"], "Volume Type is currently in use.")
        if doc["extra_specs"].pop(call.path("key"), None) is None:
            raise _no_spec(doc, call.path("key"))
        store.put("type", touched(doc))

    await call.context.write(work)
    return empty_response(202)


# ---------------------------------------------------------------------------------------------------- encryption


async def encryption(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:volume_type_encryption:get")
    doc = await call.context.read(lambda store: type_of(call, store, call.path("id")))
    return json_response(_encryption_view(doc))


def _encryption_view(doc: Doc) -> Doc:
    held = doc.get("encryption")
    return {} if not held else {**held, "volume_type_id": doc["id"], "deleted": False, "deleted_at": None}


async def encryption_item(call: VolumeCall) -> Response:
    """One value of a type's encryption. Raises HttpFault (404)."""
    call.require(call.who.admin, "volume_extension:volume_type_encryption:get")
    doc = await call.context.read(lambda store: type_of(call, store, call.path("id")))
    held, key = _encryption_view(doc), call.path("key")
    if key not in held:
        raise HttpFault(404, f"Volume type encryption for type {doc['id']} does not exist.")
    return json_response({key: held[key]})


async def encrypt(call: VolumeCall) -> Response:
    """Kept and shown; no volume can be made of such a type, for this service keeps no keys."""
    call.require(call.who.admin, "volume_extension:volume_type_encryption:create")
    said = ENCRYPT(await call.body())

    def work(store: VolumeStore) -> Doc:
        doc = type_of(call, store, call.path("id"), hold=True)
        _check_unused(store, doc["id"], "Cannot create encryption specs. Volume type in use.")
        if doc.get("encryption"):
            raise bad(f"Volume type encryption for type {doc['id']} already exists.")
        now = stamp()
        held = {"encryption_id": new_uuid(), "cipher": None, "key_size": None, "created_at": now, "updated_at": None}
        doc["encryption"] = held | _encryption_of(said["encryption"])
        store.put("type", touched(doc))
        return {"volume_type_id": doc["id"], "encryption_id": held["encryption_id"]}

    ids = await call.context.write(work)
    return json_response({"encryption": said["encryption"] | ids})


def _encryption_of(said: Doc) -> Doc:
    found = {name: said[name] for name in _ENCRYPTION if name in said}
    if found.get("key_size") is not None:
        found["key_size"] = int(found["key_size"])
    return found


async def change_encryption(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:volume_type_encryption:update")
    said = CHANGE_ENCRYPTION(await call.body())

    def work(store: VolumeStore) -> None:
        doc = type_of(call, store, call.path("id"), hold=True)
        _check_unused(store, doc["id"], "Cannot update encryption specs. Volume type in use.")
        if not doc.get("encryption"):
            raise HttpFault(404, f"Volume type encryption for type {doc['id']} does not exist.")
        doc["encryption"] |= _encryption_of(said["encryption"]) | {"updated_at": stamp()}
        store.put("type", touched(doc))

    await call.context.write(work)
    return json_response(said)


async def decrypt(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:volume_type_encryption:delete")

    def work(store: VolumeStore) -> None:
        doc = type_of(call, store, call.path("id"), hold=True)
        _check_unused(store, doc["id"], "Cannot delete encryption specs. Volume type in use.")
        if not doc.get("encryption"):
            raise HttpFault(404, f"Volume type encryption for type {doc['id']} does not exist.")
        doc["encryption"] = None
        store.put("type", touched(doc))

    await call.context.write(work)
    return empty_response(202)


# ---------------------------------------------------------------------------------------------------- defaults


def _check_default(call: VolumeCall, project: str) -> None:
    call.require(call.who.admin, "volume_extension:default_set_or_update")
    if len(project) > 255:
        raise bad("The project id is too long.")


def _default_view(doc: Doc) -> Doc:
    return {"project_id": doc["id"], "volume_type_id": doc["volume_type_id"]}


async def defaults(call: VolumeCall) -> Response:
    call.since(62)
    call.require(call.who.admin, "volume_extension:default_get_all")
    docs = await call.context.read(lambda store: store.many("default_type"))
    return json_response({"default_types": [_default_view(doc) for doc in docs]})


async def show_default(call: VolumeCall) -> Response:
    """A project's default type. Raises HttpFault (404)."""
    call.since(62)
    project = call.path("project")
    _check_default(call, project)
    doc = await call.context.read(lambda store: store.get("default_type", project))
    if doc is None:
        raise HttpFault(404, f"Default type for project {project} not found.")
    return json_response({"default_type": _default_view(doc)})


async def set_default(call: VolumeCall) -> Response:
    call.since(62)
    project = call.path("project")
    _check_default(call, project)
    said = DEFAULT(await call.body())["default_type"]["volume_type"]

    def work(store: VolumeStore) -> Doc:
        try:
            chosen = type_named(call, store, said)
        except HttpFault as fault:
            raise bad(fault.message) from None
        doc = store.get("default_type", project, hold=True)
        made = {"id": project, "volume_type_id": chosen["id"], "created_at": stamp()}
        if doc is None:
            store.add("default_type", made)
        else:
            store.put("default_type", made)
        return _default_view(made)

    return json_response({"default_type": await call.context.write(work)})


async def drop_default(call: VolumeCall) -> Response:
    call.since(62)
    project = call.path("project")
    _check_default(call, project)
    await call.context.write(lambda store: store.remove("default_type", project))
    return empty_response(204)
