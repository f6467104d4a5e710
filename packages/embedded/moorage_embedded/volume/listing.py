"""What a list's query string asks for: filters, sorting and the page; in SQL where that is all it needs, else over the records."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.paging import after_marker, page_url, sort_documents
from moorage_embedded.volume.faults import bad, invalid_input
from moorage_embedded.volume.request import VolumeCall
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import TRUE, flag, strict_flag

QUERY_MAX = 100
SORT_KEYS_MAX = 8
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


VOLUMES = ListedResource(
    "volume",
    "volumes",
    (
        "name", "status", "metadata", "bootable", "migration_status", "availability_zone", "group_id", "size",
        "created_at", "updated_at", "consumes_quota", "glance_metadata",
    ),
    (("name", "key"), ("status", "status"), ("project_id", "project"), ("volume_type_id", "type"), ("id", "id")),
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
    counted=False,
)  # fmt: skip
TRANSFERS = ListedResource(
    "transfer", "transfers", ("name", "volume_id", "all_tenants"), (("name", "key"), ("volume_id", "parent")),
    sorts=("id", "name", "created_at"), counted=False,
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


@dataclass(frozen=True)
class ListPage:
    docs: Sequence[Doc]
    total: int | None = None


def either(words: Iterable[str]) -> str:
    return " or ".join(words)


def all_tenants(pairs: Sequence[tuple[str, str]]) -> bool:
    said = dict(pairs).get("all_tenants")
    return said is not None and said.strip().lower() in TRUE


def bounded_number(name: str, said: str, most: int) -> int:
    try:
        number = int(said)
    except ValueError:
        raise bad(f"{name} param must be an integer") from None
    if number < 0:
        raise bad(f"{name} param must be positive")
    return min(number, most)


def query_of(call: VolumeCall, noun: ListedResource) -> VolumeQuery:
    """Raises 400 for what cannot be understood."""
    if len(call.pairs) > QUERY_MAX:
        raise bad(f"There may be {QUERY_MAX} query parameters at most.")
    said = dict(call.pairs)
    most = call.context.settings.page_max
    query = VolumeQuery(
        limit=bounded_number("limit", said.pop("limit", str(most)), most), marker=said.pop("marker", None)
    )
    query.offset = bounded_number("offset", said.pop("offset", "0"), 2**31 - 1)
    query.sort = sort_of(noun, said)
    everybody = call.who.admin and all_tenants(call.pairs)
    said.pop("all_tenants", None)
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
    if not known:
        if call.version >= 31 and not call.who.admin:
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
        moment = datetime.fromisoformat(said)
    except ValueError:
        raise bad(f"Invalid {said} value") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds")


def sort_of(noun: ListedResource, said: dict[str, str]) -> list[tuple[str, bool]]:
    """Members and whether they descend; what was understood is taken out of `said`."""
    if "sort" in said and ("sort_key" in said or "sort_dir" in said):
        raise bad(
            "The 'sort_key' and 'sort_dir' parameters are deprecated and cannot be used with the 'sort' parameter."
        )
    if "sort" in said:  # noqa: SIM108  one line would be too long to read
        pairs = [each.partition(":")[::2] for each in said.pop("sort").strip().split(",")]
    else:
        pairs = [(said.pop("sort_key", "created_at"), said.pop("sort_dir", "desc"))]
    found: dict[str, bool] = {}
    for key, way in ((key.strip(), way.strip() or "desc") for key, way in pairs):
        if key.removeprefix("display_") not in noun.sorts:
            raise invalid_input(f"Invalid sort key passed: {key[:100]}.")
        if way not in {"asc", "desc"}:
            raise invalid_input("Unknown sort direction, must be one of: asc, desc.")
        found.setdefault(key.removeprefix("display_"), way == "desc")  # once sorted by, a key changes nothing again
    if len(found) > SORT_KEYS_MAX:
        raise invalid_input(f"At most {SORT_KEYS_MAX} sort keys may be given.")
    return list(found.items())


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
    sort_documents(docs, query.sort)
    if query.marker is not None:
        found = after_marker(docs, query.marker)
        if found is None:
            raise _no_marker(noun, query)
        docs = found
    return ListPage(docs[query.offset : query.offset + query.limit], total)


def _no_marker(noun: ListedResource, query: VolumeQuery) -> HttpFault:
    return HttpFault(404, f"{noun.name.title()} {query.marker} could not be found.")


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


def answer(call: VolumeCall, noun: ListedResource, query: VolumeQuery, page: ListPage, shown: list[Doc]) -> Doc:
    """The list, a link to the next page where there may be one, and the count where it was asked for."""
    found: Doc = {noun.plural: shown}
    if page.docs and len(page.docs) == query.limit:
        following = page_url(f"{call.url}/{'/'.join(call.parts)}", call.pairs, page.docs[-1]["id"])
        found[f"{noun.plural}_links"] = [{"rel": "next", "href": following}]
    if page.total is not None:
        found["count"] = page.total
    return found
