"""Lists: any attribute filters, repeated values mean or, and pages end with links."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from moorage_embedded.http_kit.paging import TAG_FILTERS, after_marker, has_tags, page_url, sort_documents, sort_order
from moorage_embedded.network.attributes import Attr
from moorage_embedded.network.faults import bad
from moorage_embedded.network.store import Doc

PAGING = ("limit", "marker", "page_reverse", "sort_key", "sort_dir", "fields")
VALUES_MAX = 1_000
SORT_KEYS_MAX = 8


@dataclass
class ListQuery:
    """One list's question, taken apart."""

    filters: dict[str, list[str]] = field(default_factory=dict)
    tags: dict[str, list[str]] = field(default_factory=dict)
    fields: list[str] = field(default_factory=list)
    limit: int | None = None
    marker: str = ""
    reverse: bool = False
    sort: list[tuple[str, bool]] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)


def parse(pairs: Sequence[tuple[str, str]], attrs: Mapping[str, Attr], *extra: str) -> ListQuery:
    query = ListQuery(pairs=list(pairs))
    if len(pairs) > VALUES_MAX:
        raise bad(f"more than {VALUES_MAX} values in the query")
    keys, directions = [], []
    for name, value in pairs:
        if name == "fields":
            query.fields.append(value)
        elif name == "sort_key":
            keys.append(value)
        elif name == "sort_dir":
            directions.append(value)
        elif name in PAGING:
            _page(query, name, value)
        elif name in TAG_FILTERS:
            query.tags.setdefault(name, []).extend(value.split(","))
        else:
            name = "project_id" if name == "tenant_id" else name
            if name not in attrs and name not in extra:
                raise bad(f"['{name}'] is invalid attribute for filtering")
            query.filters.setdefault(name, []).append(value)
    _sorting(query, keys, directions, attrs)
    return query


def _page(query: ListQuery, name: str, value: str) -> None:
    if name == "limit":
        if not (value.isascii() and value.isdigit()) or len(value) > 9:
            raise bad(f"Bad limit request: Limit must be an integer 0 or greater and not '{value}'.")
        query.limit = int(value) or None
    elif name == "marker":
        query.marker = value
    else:
        query.reverse = value.lower() in {"true", "1"}


def _sorting(query: ListQuery, keys: list[str], directions: list[str], attrs: Mapping[str, Attr]) -> None:
    if directions and len(directions) != len(keys):
        raise bad("The number of sort_keys and sort_dirs must be same")
    for key in keys:
        if key not in attrs and key != "tenant_id":
            raise bad(f"['{key}'] is invalid attribute for sort_keys")
    if any(each not in {"asc", "desc"} for each in directions):
        raise bad("sort_dirs must be 'asc' or 'desc'")
    query.sort = sort_order(zip(keys, directions or ["asc"] * len(keys), strict=True))
    if len(query.sort) > SORT_KEYS_MAX:
        raise bad(f"at most {SORT_KEYS_MAX} sort keys may be given")


def _matches(value: Any, wanted: Iterable[str]) -> bool:
    if isinstance(value, list):
        return any(each in wanted for each in map(str, value))
    if isinstance(value, bool):
        return any((each.lower() in {"true", "1"}) == value for each in wanted)
    if value is None:
        return any(each in {"None", "null", ""} for each in wanted)
    return str(value) in wanted


def _fixed_ips_match(port: Doc, wanted: Iterable[str]) -> bool:
    """`fixed_ips=ip_address=…`, `subnet_id=…`, `ip_address_substr=…`; of different kinds all must hold."""
    kinds: dict[str, list[str]] = {}
    for each in wanted:
        kind, _, value = each.partition("=")
        if kind not in {"ip_address", "subnet_id", "ip_address_substr"} or not value:
            raise bad(f"Invalid filter for fixed_ips: '{each}'")
        kinds.setdefault(kind, []).append(_canonical(value) if kind == "ip_address" else value)
    for kind, values in kinds.items():
        if kind == "ip_address_substr":
            if not any(value in ip["ip_address"] for ip in port["fixed_ips"] for value in values):
                return False
        elif not any(ip[kind] in values for ip in port["fixed_ips"]):
            return False
    return True


def _canonical(address: str) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        return address


def sift(docs: Iterable[Doc], query: ListQuery, done: Iterable[str] = ()) -> list[Doc]:
    """What the filters leave; `done` were answered in SQL."""
    rest = {name: values for name, values in query.filters.items() if name not in done}
    found = []
    for doc in docs:
        if query.tags and not has_tags(doc.get("tags", ()), query.tags):
            continue
        for name, wanted in rest.items():
            if name == "fixed_ips":
                if not _fixed_ips_match(doc, wanted):
                    break
            elif name == "ip_address_substr":
                if not _fixed_ips_match(doc, [f"ip_address_substr={each}" for each in wanted]):
                    break
            elif not _matches(doc.get(name), wanted):
                break
        else:
            found.append(doc)
    return found


def page(docs: list[Doc], query: ListQuery, longest: int) -> tuple[list[Doc], bool]:
    """Sorted, from the marker, no longer than asked; and whether there is more."""
    docs.sort(key=lambda doc: str(doc.get("id", "")))
    sort_documents(docs, query.sort)
    if query.reverse:
        docs.reverse()
    if query.marker:
        docs = after_marker(docs, query.marker) or []
    limit = min(query.limit or longest, longest)
    more = len(docs) > limit
    docs = docs[:limit]
    if query.reverse:
        docs.reverse()
    return docs, more


def links(url: str, query: ListQuery, shown: list[Doc], *, more: bool) -> list[dict[str, str]]:
    """Onward of every full page, as Neutron has it: that nothing follows is seen on an empty one, from which links lead back."""
    if query.limit is None and not more:
        return []
    pairs = [(name, value) for name, value in query.pairs if name != "page_reverse"]
    full = more or len(shown) >= (query.limit or 0)
    found = []
    if full or query.reverse:
        found.append({"rel": "next", "href": page_url(url, pairs, shown[-1]["id"] if shown else "")})
    if full or not query.reverse:
        first = shown[0]["id"] if shown else ""
        found.append({"rel": "previous", "href": page_url(url, pairs, first, ("page_reverse", "True"))})
    return found


def only(doc: Doc, fields: Sequence[str]) -> Doc:
    if not fields:
        return doc
    wanted = set(fields)
    return {name: value for name, value in doc.items() if name in wanted}
