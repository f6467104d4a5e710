"""The list of volume types: visibility, filters, order, and paging."""

from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import json_response
from moorage_embedded.http_kit.paging import next_links, page_of
from moorage_embedded.http_kit.values import bounded_number
from moorage_embedded.volume import listing, views
from moorage_embedded.volume.faults import bad, no_type
from moorage_embedded.volume.records import sees_type
from moorage_embedded.volume.request import VolumeCall
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import FALSE, TRUE

TYPES = listing.ListedResource(
    "type",
    "volume_types",
    ("is_public", "extra_specs"),
    (),
    admin_filters=("id", "name", "description", "qos_specs_id"),
    sorts=("id", "name", "description", "is_public", "qos_specs_id", "created_at", "updated_at"),
)
FILTERS_SINCE = 52
"""From this microversion on, filters that are not for everybody are refused."""
_PAGES = ("limit", "offset", "marker", "sort", "sort_key", "sort_dir", "all_tenants")


async def index(call: VolumeCall) -> Response:
    said = dict(call.pairs)
    most = call.context.settings.page_max
    limit = bounded_number("limit", said.get("limit", str(most)), most)
    offset = bounded_number("offset", said.get("offset", "0"), 2**31 - 1)
    order = listing.sort_of(TYPES, dict(said))
    wanted = _wanted(call, {name: value for name, value in said.items() if name not in _PAGES})
    docs = await call.context.read(lambda store: _found(call, store, wanted))
    page = page_of(docs, order, said.get("marker"), limit, offset)
    if page is None:
        raise no_type(said["marker"])
    answer: Doc = {"volume_types": [views.type_view(call, doc) for doc in page]}
    if links := next_links(f"{call.url}/types", call.pairs, page, limit):
        answer["volume_type_links"] = links
    return json_response(answer)


def _wanted(call: VolumeCall, said: dict[str, str]) -> Doc:
    """What the types must be. Raises 400 for what only administrators may ask, from 3.52 on."""
    strange = [name for name in said if name not in TYPES.filters]
    if strange and not call.who.admin and call.version >= FILTERS_SINCE:
        raise bad(f"Invalid filters {', '.join(strange)} are found in query options.")
    names = (*TYPES.filters, *TYPES.admin_filters) if call.who.admin else TYPES.filters
    wanted: Doc = {name: value for name, value in said.items() if name in names}
    wanted["is_public"] = public_filter(said.get("is_public", "true")) if call.who.admin else None
    if "extra_specs" in wanted and (call.who.admin or call.version >= FILTERS_SINCE):
        wanted["extra_specs"] = listing.parse_dictionary(wanted["extra_specs"]) or {}
    else:
        wanted.pop("extra_specs", None)
    return wanted


def public_filter(said: str) -> bool | None:
    """The asked-for visibility; None: any. Raises 400."""
    word = said.strip().lower()
    if word in {"none", ""}:
        return None
    if word not in TRUE | FALSE:
        raise bad(f"Invalid is_public filter [{said}]")
    return word in TRUE


def _found(call: VolumeCall, store: VolumeStore, wanted: Doc) -> list[Doc]:
    return [doc for doc in store.many("type") if sees_type(call, doc) and _fits(call, doc, wanted)]


def _fits(call: VolumeCall, doc: Doc, wanted: Doc) -> bool:
    for name, value in wanted.items():
        if name == "is_public":
            # Private types that one's own project may use count as public ones.
            mine = bool(value) and call.who.project in doc["projects"]
            if value is not None and not mine and doc["is_public"] is not value:
                return False
        elif name == "extra_specs":
            held: dict[str, Any] = views.visible_specs(call, doc["extra_specs"])
            if any(str(held.get(key)) != str(each) for key, each in value.items()):
                return False
        elif str(doc[name]) != value:
            return False
    return True
