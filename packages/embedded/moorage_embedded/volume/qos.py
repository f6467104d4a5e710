"""QoS specs: what a consumer (hypervisor, back end) is to guarantee to volumes of the types they are associated with.

They are kept, associated and shown; a connection carries those of the front end, and the back end of files guarantees nothing.
"""

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault, empty_response, json_response
from moorage_embedded.http_kit.paging import next_links, page_of
from moorage_embedded.http_kit.values import bounded_number
from moorage_embedded.volume import listing, views
from moorage_embedded.volume.faults import bad, conflict
from moorage_embedded.volume.records import type_of
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import NAME, Check, Schema, flag, under

CONSUMERS = ("back-end", "front-end", "both")
SPECS_MAX = 1_000
SPECS = listing.ListedResource(
    "qos", "qos_specs", ("id", "name", "consumer"), (), sorts=("id", "name", "consumer", "created_at", "updated_at")
)
_VALUE: Schema = {"type": "string", "maxLength": 255}
_CONSUMER: Schema = {"enum": list(CONSUMERS)}
_KEYS = {r"^[a-zA-Z0-9\-_:. /]{1,255}$": _VALUE}


def _specs(*required: str, **named: Schema) -> Schema:
    return {
        "type": "object",
        "properties": named,
        "required": list(required),
        "patternProperties": _KEYS,
        "additionalProperties": False,
    }


CREATE = Check(under("qos_specs", _specs("name", name=NAME, consumer=_CONSUMER)))
UPDATE = Check(under("qos_specs", _specs(consumer=_CONSUMER)))
UNSET = Check(under("keys", {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 255}}))


def _no_such(id: str) -> HttpFault:
    return HttpFault(404, f"No such QoS spec {id}.")


def _find(store: VolumeStore, id: str, *, hold: bool = False) -> Doc:
    doc = store.get("qos", id, hold=hold)
    if doc is None:
        raise _no_such(id)
    return doc


def _view(doc: Doc) -> Doc:
    return {name: doc[name] for name in ("id", "name", "consumer", "specs")}


def _full(call: VolumeCall, doc: Doc) -> Response:
    return json_response({"qos_specs": _view(doc), "links": views.links(call, "qos-specs", doc["id"])})


async def index(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:qos_specs_manage:get_all")
    said, most = dict(call.pairs), call.context.settings.page_max
    limit = bounded_number("limit", said.get("limit", str(most)), most)
    offset = bounded_number("offset", said.get("offset", "0"), 2**31 - 1)
    order = listing.sort_of(SPECS, dict(said))
    docs = await call.context.read(lambda store: store.many("qos"))
    docs = [doc for doc in docs if all(doc[name] == said[name] for name in SPECS.filters if name in said)]
    page = page_of(docs, order, said.get("marker"), limit, offset)
    if page is None:
        raise _no_such(said["marker"])
    answer: Doc = {"qos_specs": [_view(doc) for doc in page]}
    if links := next_links(f"{call.url}/qos-specs", call.pairs, page, limit):
        answer["qos_specs_links"] = links
    return json_response(answer)


async def create(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:qos_specs_manage:create")
    said = dict(CREATE(await call.body())["qos_specs"])
    name, consumer = said.pop("name").strip(), said.pop("consumer", "back-end")

    def work(store: VolumeStore) -> Doc:
        store.alone("volume qos")
        if store.count("qos", key=name):
            raise conflict(f"QoS Specs {name} already exists.")
        if store.count("qos") >= SPECS_MAX:
            raise HttpFault(413, f"There may be {SPECS_MAX} QoS specs.")
        doc = {"id": new_uuid(), "name": name, "consumer": consumer, "specs": said, "created_at": stamp()}
        store.add("qos", doc)
        return doc

    return _full(call, await call.context.write(work))


async def show(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:qos_specs_manage:get")
    return _full(call, await call.context.read(lambda store: _find(store, call.path("id"))))


async def update(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:qos_specs_manage:update")
    said = UPDATE(await call.body())

    def work(store: VolumeStore) -> None:
        doc = _find(store, call.path("id"), hold=True)
        changed = dict(said["qos_specs"])
        doc["consumer"] = changed.pop("consumer", doc["consumer"])
        doc["specs"] |= changed
        if len(doc["specs"]) > call.context.settings.metadata_max:
            raise HttpFault(413, f"There may be {call.context.settings.metadata_max} keys.")
        store.put("qos", touched(doc))

    await call.context.write(work)
    return json_response(said)


async def delete(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:qos_specs_manage:delete")
    force = flag(dict(call.pairs).get("force", False))

    def work(store: VolumeStore) -> None:
        doc = _find(store, call.path("id"), hold=True)
        used = _types(store, doc["id"])
        if used and not force:
            raise bad("Qos specs still in use.")
        for each in used:
            _associate(store, each["id"], None)
        store.remove("qos", doc["id"])

    await call.context.write(work)
    return empty_response(202)


async def delete_keys(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:qos_specs_manage:delete")
    keys = UNSET(await call.body())["keys"]

    def work(store: VolumeStore) -> None:
        doc = _find(store, call.path("id"), hold=True)
        for key in keys:
            if key not in doc["specs"]:
                raise HttpFault(404, f"QoS spec {doc['id']} has no spec with key {key}.")
            del doc["specs"][key]
        store.put("qos", touched(doc))

    await call.context.write(work)
    return empty_response(202)


def _types(store: VolumeStore, qos: str) -> list[Doc]:
    return [doc for doc in store.many("type") if doc["qos_specs_id"] == qos]


def _associate(store: VolumeStore, type: str, qos: str | None) -> None:
    doc = store.get("type", type, hold=True)
    if doc is not None:
        doc["qos_specs_id"] = qos
        store.put("type", touched(doc))


async def associations(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:qos_specs_manage:get_all")

    def work(store: VolumeStore) -> list[Doc]:
        found = _types(store, _find(store, call.path("id"))["id"])
        return [{"association_type": "volume_type", "name": each["name"], "id": each["id"]} for each in found]

    return json_response({"qos_associations": await call.context.read(work)})


async def associate(call: VolumeCall) -> Response:
    """`associate` and `disassociate`, as the path says, with the type in the query."""
    call.require(call.who.admin, "volume_extension:qos_specs_manage:update")
    type = dict(call.pairs).get("vol_type_id")
    if not type:
        raise bad("Volume Type id must not be None.")

    def work(store: VolumeStore) -> None:
        doc = _find(store, call.path("id"))
        held = type_of(call, store, type)["qos_specs_id"]
        if call.parts[2] == "disassociate":
            if held == doc["id"]:
                _associate(store, type, None)
            return
        if held not in (None, doc["id"]):
            raise bad(f"Invalid volume type: Type {type} is already associated with another qos specs: {held}")
        _associate(store, type, doc["id"])

    await call.context.write(work)
    return empty_response(202)


async def disassociate_all(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:qos_specs_manage:update")

    def work(store: VolumeStore) -> None:
        for each in _types(store, _find(store, call.path("id"))["id"]):
            _associate(store, each["id"], None)

    await call.context.write(work)
    return empty_response(202)
