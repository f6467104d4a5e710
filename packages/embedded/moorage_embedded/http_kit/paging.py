"""Lists: tags, sorting by several keys, the records after a marker, and the address of the next page."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

Doc = Mapping[str, Any]
Pairs = Iterable[tuple[str, str]]
TAG_FILTERS = ("tags", "tags-any", "not-tags", "not-tags-any")


def has_tags(held: Iterable[str], wanted: Mapping[str, Iterable[str]]) -> bool:
    """Whether a record with these tags is what the tag filters, each with its tags, ask for."""
    tags = set(held)
    return (
        tags.issuperset(wanted.get("tags", ()))
        and ("tags-any" not in wanted or bool(tags.intersection(wanted["tags-any"])))
        and not ("not-tags" in wanted and tags.issuperset(wanted["not-tags"]))
        and not tags.intersection(wanted.get("not-tags-any", ()))
    )


def split_sort(said: str) -> list[tuple[str, str]]:
    """`name:asc,id` as keys and directions."""
    pairs = (each.partition(":") for each in said.split(","))
    return [(key.strip(), way.strip() or "desc") for key, _, way in pairs]


def sort_order(keys_and_ways: Pairs) -> list[tuple[str, bool]]:
    """(Member, whether it descends); once sorted by, a key changes nothing again."""
    order: dict[str, bool] = {}
    for key, way in keys_and_ways:
        order.setdefault(key, way == "desc")
    return list(order.items())


def rank(value: Any) -> tuple[int, Any]:
    """Orders values of any kind: null before numbers before texts."""
    if value is None:
        return (0, "")
    if isinstance(value, bool | int | float):
        return (1, value)
    return (2, str(value))


def sort_documents(docs: list[Any], keys: Sequence[tuple[str, bool]]) -> None:
    """In place, by (member, whether it descends); the first key weighs most."""
    for name, descends in reversed(keys):
        docs.sort(key=lambda doc, name=name: rank(doc.get(name)), reverse=descends)  # type: ignore[misc]


def after_marker(docs: list[Any], marker: str) -> list[Any] | None:
    """The documents after the one with this id; None: there is none."""
    place = next((place for place, doc in enumerate(docs) if doc.get("id") == marker), None)
    return None if place is None else docs[place + 1 :]


def page_of(
    docs: list[Any], order: Sequence[tuple[str, bool]], marker: str | None, limit: int, offset: int = 0
) -> list[Any] | None:
    """The documents in order, from the marker and the offset on; None: none has the marker."""
    sort_documents(docs, order)
    found = docs if marker is None else after_marker(docs, marker)
    return None if found is None else found[offset : offset + limit]


def page_url(url: str, pairs: Pairs, marker: str | None, *more: tuple[str, str]) -> str:
    """The same list from another marker on; None: from its beginning."""
    query = [(name, value) for name, value in pairs if name != "marker"]
    query += [] if marker is None else [("marker", marker)]
    query += more
    return f"{url}?{urlencode(query)}" if query else url


def self_link(url: str) -> dict[str, str]:
    return {"rel": "self", "href": url}


def next_links(url: str, pairs: Pairs, docs: Sequence[Doc], limit: int) -> list[dict[str, str]]:
    """Onward of a full page."""
    return [{"rel": "next", "href": page_url(url, pairs, docs[-1]["id"])}] if docs and len(docs) == limit else []
