"""What a list's query string asks for: filters, sorting and the page; in SQL where that is all it needs, else over the records."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import msgspec
from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, json_response
from moorage_embedded.http_kit.paging import next_links, page_of, sort_order, split_sort
from moorage_embedded.http_kit.values import bounded_number, moment_of
from moorage_embedded.volume.faults import bad, invalid_input
from moorage_embedded.volume.request import VolumeCall
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import TRUE, flag, strict_flag

QUERY_MAX = 100
SORT_KEYS_MAX = 8
FILTERS_REFUSED_SINCE = 31
"""From this microversion on, what is no filter for everybody is refused."""
OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "neq": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
}


@dataclass(frozen=True)
class ListedResource:
    """What is listed, and by what."""

    name: str
    plural: str
    filters: tuple[str, ...]
    """What everybody may filter by."""
    columns: tuple[tuple[str, str], ...]
    """Filter → column."""
    admin_filters: tuple[str, ...] = ()
    sorts: tuple[str, ...] = ()
    added: tuple[tuple[str, int], ...] = ()
    """Filter → the microversion it came with."""
    counted: bool = True
    linked: bool = True
    """A page says where the next one is."""
    rule: str = ""
    """What who may not list is told."""
    since: int = 0
    """The microversion that it came with."""
    links: str = ""
    """What the links to the next page are called, where it is not the plural with `_links`."""
    by_member: bool = False
    """Where filters are not refused every member is one, and what is no member finds nothing; `all_tenants` needs no value."""
    options: tuple[str, ...] = ()
    """Parameters that are no filters."""
    queried_since: int = 0
    """Before this microversion the query string is ignored."""


VOLUMES = ListedResource(
    "volume",
    "volumes",
    (
        "name", "status", "metadata", "bootable", "migration_status", "availability_zone", "group_id", "size",
        "created_at", "updated_at", "consumes_quota", "glance_metadata",
    ),
    (
        ("name", "key"), ("status", "status"), ("project_id", "project"), ("volume_type_id", "type"), ("id", "id"),
        ("group_id", "member_of"),
    ),
    admin_filters=(
        "id", "project_id", "user_id", "host", "snapshot_id", "source_volid", "multiattach", "attach_status", "encrypted",
        "volume_type_id", "image_metadata", "service_uuid", "description",
    ),
    sorts=(
        "id", "status", "size", "availability_zone", "name", "bootable", "created_at", "updated_at", "host", "user_id",
        "project_id", "volume_type_id", "attach_status", "description", "launched_at", "migration_status", "multiattach",
        "snapshot_id", "source_volid",
    ),
    added=(("glance_metadata", 4), ("group_id", 10), ("created_at", 60), ("updated_at", 60), ("consumes_quota", 65)),
    rule="volume:get_all",
)  # fmt: skip
SNAPSHOTS = ListedResource(
    "snapshot",
    "snapshots",
    ("name", "status", "volume_id", "metadata", "availability_zone", "consumes_quota"),
    (("name", "key"), ("status", "status"), ("volume_id", "parent"), ("project_id", "project"), ("id", "id")),
    admin_filters=("id", "project_id", "user_id", "size", "description"),
    sorts=(
        "id", "status", "volume_id", "size", "name", "description", "created_at", "updated_at", "user_id", "project_id"
    ),
    added=(("metadata", 22), ("consumes_quota", 65)),
    rule="volume:get_all_snapshots",
)  # fmt: skip
ATTACHMENTS = ListedResource(
    "attachment",
    "attachments",
    ("volume_id", "status", "instance_id", "attach_status"),
    (
        ("volume_id", "parent"), ("status", "status"), ("attach_status", "status"), ("instance_id", "key"),
        ("project_id", "project"),
    ),
    admin_filters=("project_id",),
    sorts=("id", "volume_id", "created_at", "updated_at", "attach_status", "attached_at"),
    counted=False, linked=False, rule="volume:attachment_get_all", since=27,
)  # fmt: skip
TRANSFERS = ListedResource(
    "transfer", "transfers", ("name", "volume_id", "all_tenants"), (("name", "key"), ("volume_id", "parent")),
    sorts=("id", "name", "created_at"), counted=False, rule="volume:get_all_transfers",
)  # fmt: skip

_OF_GROUPS = (
    "id",
    "name",
    "description",
    "status",
    "project_id",
    "user_id",
    "group_type_id",
    "created_at",
    "updated_at",
)
GROUPS = ListedResource(
    "group",
    "groups",
    ("name",),
    (("name", "key"), ("status", "status"), ("project_id", "project"), ("group_type_id", "type"), ("id", "id")),
    sorts=(*_OF_GROUPS, "availability_zone", "host", "group_snapshot_id", "source_group_id", "replication_status"),
    counted=False, rule="group:get_all", since=13, links="group_links", by_member=True, options=("list_volume",),
)  # fmt: skip
GROUP_SNAPSHOTS = ListedResource(
    "group_snapshot",
    "group_snapshots",
    ("name", "status", "group_id"),
    (
        ("name", "key"), ("status", "status"), ("group_id", "parent"), ("project_id", "project"), ("id", "id"),
        ("group_type_id", "type"),
    ),
    sorts=(*_OF_GROUPS, "group_id"),
    counted=False, rule="group:get_all_group_snapshots", since=14, links="group_snapshot_links", by_member=True,
    queried_since=29,
)  # fmt: skip


@dataclass
class VolumeQuery:
    where: dict[str, Any] = field(default_factory=dict)
    """Columns and values."""
    rest: dict[str, str] = field(default_factory=dict)
    """Filters that the records are asked for one by one."""
    sort: list[tuple[str, bool]] = field(default_factory=list)
    """Member, and whether it descends."""
    marker: str | None = None
    limit: int = 0
    offset: int = 0
    count: bool = False
    limited: bool = False

    @property
    def plain(self) -> bool:
        return not self.rest and self.sort == [("created_at", True)]


ShowPage: TypeAlias = Callable[[VolumeCall, VolumeStore, Sequence[Doc], bool], list[Doc]]
"""Documents as the caller sees them; True: with details."""
ListVerb: TypeAlias = Callable[[VolumeCall], Awaitable[Response]]


@dataclass(frozen=True)
class ListPage:
    docs: Sequence[Doc]
    total: int | None = None


def either(words: Iterable[str]) -> str:
    return " or ".join(words)


def all_tenants(pairs: Sequence[tuple[str, str]]) -> bool:
    said = dict(pairs).get("all_tenants")
    return said is not None and said.strip().lower() in TRUE


def query_of(call: VolumeCall, noun: ListedResource) -> VolumeQuery:
    """Raises 400 for what cannot be understood."""
    if len(call.pairs) > QUERY_MAX:
        raise bad(f"There may be {QUERY_MAX} query parameters at most.")
    said = dict(call.pairs) if call.version >= noun.queried_since else {}
    most = call.context.settings.page_max
    query = VolumeQuery(
        limit=bounded_number("limit", said.pop("limit", str(most)), most), marker=said.pop("marker", None)
    )
    query.offset = bounded_number("offset", said.pop("offset", "0"), 2**31 - 1)
    query.sort = sort_of(noun, said)
    everybody = call.who.admin and ("all_tenants" in said if noun.by_member else all_tenants(call.pairs))
    for name in ("all_tenants", *noun.options):
        said.pop(name, None)
    if call.version >= 45 and noun.counted and "with_count" in said:
        query.count = strict_flag("with_count", said.pop("with_count"))
    for name, value in said.items():
        _filter(call, noun, query, name, value)
    if not everybody:
        query.where["project"] = call.who.project
    return query


def _filter(call: VolumeCall, noun: ListedResource, query: VolumeQuery, name: str, value: str) -> None:
    plain = name.removesuffix("~") if call.version >= 34 and call.who.admin else name
    known = plain in noun.filters or (call.who.admin and plain in noun.admin_filters)
    if dict(noun.added).get(plain, 0) > call.version:
        known = False
    if noun.by_member and (call.who.admin or call.version < FILTERS_REFUSED_SINCE):
        known = True
    if not known:
        if call.version >= FILTERS_REFUSED_SINCE and not call.who.admin:
            raise bad(f"Invalid filters {name} are found in query options.")
        return
    column = dict(noun.columns).get(name)
    if column is not None and (column != "project" or call.who.admin):
        query.where[column] = value
    else:
        query.rest[name] = _checked(call, plain, name, value)


def _checked(call: VolumeCall, plain: str, name: str, value: str) -> str:
    if plain in {"bootable", "multiattach", "encrypted", "consumes_quota"} and plain == name:
        if call.version >= 2:
            return "true" if strict_flag(plain, value) else "false"
        return "false" if value in {"False", "false", "FALSE"} else "true"
    if plain in {"created_at", "updated_at"}:
        for each in value.split(","):
            operator, _, moment = each.partition(":")
            if operator not in OPERATORS:
                raise bad(f"Invalid {operator} operator")
            _moment(moment)
    return value


def _moment(said: str) -> str:
    try:
        return moment_of(said).replace(tzinfo=None).isoformat(timespec="microseconds")
    except ValueError:
        raise bad(f"Invalid {said} value") from None


def sort_of(noun: ListedResource, said: dict[str, str]) -> list[tuple[str, bool]]:
    """Members and whether they descend; what was understood is taken out of `said`."""
    if "sort" in said and ("sort_key" in said or "sort_dir" in said):
        raise bad(
            "The 'sort_key' and 'sort_dir' parameters are deprecated and cannot be used with the 'sort' parameter."
        )
    asked = said.pop("sort", None)
    key, way = said.pop("sort_key", "created_at").strip(), said.pop("sort_dir", "desc").strip() or "desc"
    pairs = [(key, way)] if asked is None else split_sort(asked)
    for key, way in pairs:
        if key.removeprefix("display_") not in noun.sorts:
            raise invalid_input(f"Invalid sort key passed: {key[:100]}.")
        if way not in {"asc", "desc"}:
            raise invalid_input("Unknown sort direction, must be one of: asc, desc.")
    found = sort_order((key.removeprefix("display_"), way) for key, way in pairs)
    if len(found) > SORT_KEYS_MAX:
        raise invalid_input(f"At most {SORT_KEYS_MAX} sort keys may be given.")
    return found


def page(call: VolumeCall, store: VolumeStore, noun: ListedResource, query: VolumeQuery) -> ListPage:
    """Raises 404 for a marker that is no record."""
    total = None
    if query.plain and not query.count:
        try:
            docs = store.many(noun.name, where=query.where, after=query.marker, limit=query.limit, offset=query.offset)
        except KeyError:
            raise _no_marker(noun, query) from None
        return ListPage(docs)
    docs = [doc for doc in store.many(noun.name, where=query.where) if _fits(doc, query.rest)]
    total = len(docs) if query.count else None
    found = page_of(docs, query.sort, query.marker, query.limit, query.offset)
    if found is None:
        raise _no_marker(noun, query)
    return ListPage(found, total)


def _no_marker(noun: ListedResource, query: VolumeQuery) -> HttpFault:
    return HttpFault(404, f"{noun.name.title().replace('_', '')} {query.marker} could not be found.")


def _fits(doc: Doc, rest: dict[str, str]) -> bool:
    return all(_match(doc, name, value) for name, value in rest.items())


def _match(doc: Doc, name: str, value: str) -> bool:
    if name.endswith("~"):
        held = doc.get(name[:-1])
        return held is not None and value.lower() in str(held).lower()
    if name in {"metadata", "glance_metadata"}:
        held = doc["metadata" if name == "metadata" else "image_metadata"]
        wanted = parse_dictionary(value)
        return wanted is not None and all(str(held.get(key)) == str(each) for key, each in wanted.items())
    if name in {"created_at", "updated_at"}:
        held = doc.get(name)
        asked = (each.partition(":") for each in value.split(","))
        return held is not None and all(OPERATORS[operator](held, _moment(moment)) for operator, _, moment in asked)
    if name == "consumes_quota":
        return flag(value)
    if name == "encrypted":
        return not flag(value)
    held = doc.get(name)
    if isinstance(held, bool):
        return held == flag(value)
    if held is None:
        return value in {"None", "null"}
    return str(held) == value.strip("'\"") or str(held) == value


def parse_dictionary(said: str) -> dict[str, Any] | None:
    """`{'a': 'b'}`, as clients write dictionaries into a query."""
    for text in (said, said.replace("u'", "'").replace("'", '"')):
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def verbs(noun: ListedResource, show: ShowPage) -> tuple[ListVerb, ListVerb]:
    """The list, and the list with details."""

    async def listed(call: VolumeCall, *, detailed: bool) -> Response:
        call.since(noun.since)
        call.require(call.who.reader, noun.rule)
        query = query_of(call, noun)

        def work(store: VolumeStore) -> Doc:
            found = page(call, store, noun, query)
            return answer(call, noun, query, found, show(call, store, found.docs, detailed))

        return json_response(await call.context.read(work))

    return partial(listed, detailed=False), partial(listed, detailed=True)


def answer(call: VolumeCall, noun: ListedResource, query: VolumeQuery, page: ListPage, shown: list[Doc]) -> Doc:
    """The list, a link to the next page where there may be one, and the count where it was asked for."""
    found: Doc = {noun.plural: shown}
    if noun.linked and (links := next_links(f"{call.url}/{'/'.join(call.parts)}", call.pairs, page.docs, query.limit)):
        found[noun.links or f"{noun.plural}_links"] = links
    if page.total is not None:
        found["count"] = page.total
    return found
