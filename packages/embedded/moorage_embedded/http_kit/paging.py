"""Lists: sorting by several keys, the records after a marker, and the address of the next page."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

Doc = Mapping[str, Any]
Pairs = Iterable[tuple[str, str]]


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


def page_url(url: str, pairs: Pairs, marker: str | None, *more: tuple[str, str]) -> str:
    """The same list from another marker on; None: from its beginning."""
    query = [(name, value) for name, value in pairs if name != "marker"]
    query += [] if marker is None else [("marker", marker)]
    query += more
    return f"{url}?{urlencode(query)}" if query else url


def self_link(url: str) -> dict[str, str]:
    return {"rel": "self", "href": url}
