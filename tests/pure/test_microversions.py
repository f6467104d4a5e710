"""Version changes: negotiation, the order of changes, masks, and their form."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.microversions import (
    NEWEST,
    OLDEST,
    Version,
    VersionChange,
    compile_bridge,
    lifetime,
    negotiate,
    rows_at,
)
from moorage.api.version_changes import CHANGES
from moorage.model.errors import Invalid, NotAcceptable

SHOW = "GET /things/{id}"
MAKE = "POST /things"


def renamed(body: Any) -> Any:
    body["thing"]["label"] = body["thing"].pop("name")
    return body


def named(body: Any) -> Any:
    return {"thing": {**{k: v for k, v in body["thing"].items() if k != "label"}, "name": body["thing"]["label"]}}


def short(body: Any) -> None:
    if len(body["thing"]["label"]) > 3:
        raise Invalid("too long")


PAST = (
    VersionChange(at=(2, 5), summary="Things have a colour.", adds={SHOW: {"thing": ("colour",)}}, refuses={MAKE: {"thing": ("colour",)}}),
    VersionChange(at=(2, 8), summary="Labels may be long.", loosens={MAKE: short}),
    VersionChange(at=(2, 10), summary="A label is a name.", request={MAKE: named}, response={SHOW: renamed}, status={MAKE: 200}),
    VersionChange(at=(2, 12), summary="Weight.", adds={SHOW: {"thing": ("weight",)}}, status={MAKE: 201}, begins=("DELETE /things",)),
    VersionChange(at=(2, 15), summary="No more blood.", retires={SHOW: {"thing": ("blood",)}}, ends=("PATCH /things",)),
)  # fmt: skip
TODAY = {"name": "cup", "colour": "red", "weight": 3, "blood": "B"}


def seen(minor: int) -> dict[str, Any]:
    shown: dict[str, Any] = compile_bridge(SHOW, Version(2, minor), PAST).carry_down({"thing": dict(TODAY)})["thing"]
    return shown


def test_answers_are_downgraded_newest_change_first() -> None:
    assert seen(104) == {"name": "cup", "colour": "red", "weight": 3}
    assert seen(14) == TODAY
    assert seen(11) == {"name": "cup", "colour": "red", "blood": "B"}
    assert seen(9) == {"label": "cup", "colour": "red", "blood": "B"}
    assert seen(4) == {"label": "cup", "blood": "B"}


def test_adjacent_masks_are_merged() -> None:
    assert len(compile_bridge(SHOW, Version(2, 4), PAST).down) == 3
    assert compile_bridge(SHOW, Version(2, 4), PAST).masks == {"thing": frozenset({"colour", "weight"})}


def test_requests_are_upgraded_oldest_change_first() -> None:
    up = compile_bridge(MAKE, Version(2, 7), PAST)
    assert up.carry_up({"thing": {"label": "cup"}}) == {"thing": {"name": "cup"}}
    with pytest.raises(Invalid, match="too long"):
        up.carry_up({"thing": {"label": "goblet"}})
    assert compile_bridge(MAKE, Version(2, 8), PAST).carry_up({"thing": {"label": "goblet"}})
    with pytest.raises(Invalid, match="'colour' was unexpected"):
        compile_bridge(MAKE, Version(2, 4), PAST).carry_up({"thing": {"label": "cup", "colour": "red"}})


def test_the_oldest_status_that_applies() -> None:
    assert [compile_bridge(MAKE, Version(2, minor), PAST).status for minor in (9, 10, 11, 12)] == [200, 201, 201, None]


def test_lifetimes() -> None:
    assert lifetime("DELETE /things", PAST) == ((2, 12), None)
    assert lifetime("PATCH /things", PAST) == ((2, 1), (2, 15))


def test_rows_are_reached_through_lists() -> None:
    body = {"hosts": [{"service": {"id": 1}}, {"service": {"id": 2}}, {"none": 1}, "odd"], "page": {"rows": [{"a": 1}]}}
    assert [row["id"] for row in rows_at(body, "hosts.service")] == [1, 2]
    assert list(rows_at(body, "page.rows")) == [{"a": 1}]
    assert list(rows_at(body, "")) == [body]
    assert list(rows_at(body, "nothing.here")) == []


def test_version_changes_are_in_order_and_documented() -> None:
    versions = [change.version for change in CHANGES]
    assert versions == sorted(versions)
    for change in CHANGES:
        assert OLDEST < change.version <= NEWEST
        assert change.summary.endswith(".")
        assert change.routes() or change.behaviour, f"{change.version} changes nothing"
        for named_behaviour in change.behaviour:
            assert named_behaviour.split(":")[0].isupper()


@given(st.integers(1, 104))
def test_every_version_is_accepted_in_both_headers(minor: int) -> None:
    assert negotiate(f"compute 2.{minor}", None) == negotiate(None, f"2.{minor}") == (2, minor)


@given(st.text(max_size=12))
def test_no_header_breaks_negotiation(text: str) -> None:
    for headers in ((text, None), (None, text), (f"compute {text}", None)):
        try:
            assert OLDEST <= negotiate(*headers) <= NEWEST
        except (Invalid, NotAcceptable):
            continue


@pytest.mark.parametrize("asked", ["2.0", "2.105", "3.1", "1.1"])
def test_versions_outside_the_range(asked: str) -> None:
    with pytest.raises(NotAcceptable):
        negotiate(f"compute {asked}", None)


@pytest.mark.parametrize("asked", ["2", "2.01", "two", "2.1.1", "-2.1", "02.1"])
def test_malformed_versions(asked: str) -> None:
    with pytest.raises(Invalid):
        negotiate(f"compute {asked}", None)
