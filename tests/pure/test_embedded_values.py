"""What the embedded services read alike: numbers, moments, tags, sort orders, pages, and values that a schema describes."""

from typing import Any

import pytest

from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.paging import has_tags, next_links, page_of, sort_order, split_sort
from moorage_embedded.http_kit.values import DRAFT_4, ValueSchema, bounded_number, moment_of

DOCS: list[dict[str, Any]] = [{"id": "a", "size": 2}, {"id": "b", "size": None}, {"id": "c", "size": 10}]


def test_a_number_has_a_limit() -> None:
    assert (bounded_number("limit", "7", 10), bounded_number("limit", "70", 10)) == (7, 10)
    for said in ("x", "-1"):
        with pytest.raises(HttpFault, match="limit param must be"):
            bounded_number("limit", said, 10)


@pytest.mark.parametrize(
    ("said", "hour"), [("2026-01-02T03:04:05", 3), ("2026-01-02T03:04:05Z", 3), ("2026-01-02T03:04:05+02:00", 1)]
)
def test_a_moment_is_in_utc(said: str, hour: int) -> None:
    assert moment_of(said).isoformat() == f"2026-01-02T0{hour}:04:05+00:00"


@pytest.mark.parametrize("said", ["yesterday", "0001-01-01T00:00:00+14:00"])
def test_what_is_no_moment_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=r"yesterday|out of range"):
        moment_of(said)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({}, True),
        ({"tags": ["red", "big"]}, True),
        ({"tags": ["red", "old"]}, False),
        ({"tags-any": ["old", "big"]}, True),
        ({"tags-any": ["old"]}, False),
        ({"not-tags": ["red", "old"]}, True),
        ({"not-tags": ["red", "big"]}, False),
        ({"not-tags-any": ["old"]}, True),
        ({"not-tags-any": ["old", "big"]}, False),
    ],
)
def test_tags_are_filtered(wanted: dict[str, list[str]], fits: bool) -> None:
    assert has_tags(["red", "big"], wanted) is fits


def test_a_sort_order_has_each_key_once() -> None:
    pairs = split_sort("size:asc, id ,size:desc")
    assert pairs == [("size", "asc"), ("id", "desc"), ("size", "desc")]
    assert sort_order(pairs) == [("size", False), ("id", True)]


def test_pages_follow_each_other() -> None:
    order = [("size", False)]
    first = page_of(list(DOCS), order, None, 2)
    assert first is not None
    assert [doc["id"] for doc in first] == ["b", "a"]
    assert next_links("http://x", [("limit", "2"), ("marker", "z")], first, 2) == [
        {"rel": "next", "href": "http://x?limit=2&marker=a"}
    ]
    assert page_of(list(DOCS), order, "a", 2) == [DOCS[2]]
    assert next_links("http://x", [], [DOCS[2]], 2) == []
    assert page_of(list(DOCS), order, None, 2, offset=2) == [DOCS[2]]
    assert page_of(list(DOCS), order, "z", 2) is None


@pytest.mark.parametrize("value", [1.0, True, "1", -2, None])
def test_what_a_schema_does_not_describe_is_wrong(value: Any) -> None:
    schema = ValueSchema(DRAFT_4 | {"type": "integer", "minimum": -1})
    assert schema.wrong(value) is not None
    assert schema.reason(value) in {f"{value!r} is not of type 'integer'", "-2 is less than the minimum of -1"}
    assert (schema.wrong(3), schema.reason(3)) == (None, None)


def test_a_newline_behind_a_pattern_is_wrong() -> None:
    assert ValueSchema(DRAFT_4 | {"type": "string", "pattern": "^a$"}).reason("a\n") is not None
