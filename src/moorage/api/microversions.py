"""The bridge between today and every version since 2.1: negotiate, carry requests up, carry answers down.

Handlers speak `Full`, a superset of all versions (RULES §18).  A `VersionChange` says what one microversion altered, and only
that; all changes that touch a route are compiled once per (route, version) into one `VersionAdapter`:

    fields added or retired   `adds`, `retires`: composed into one mask per row place, so that a list of 1,000 rows is
                              walked once, however many changes touch it
    reshaping                 `request` (older body → today's), `response` (today's → older), functions over plain JSON
    routes                    `begins`, `ends`
    status                    `status`: what older versions were answered
    query                     `query`: older query → today's
    strictness                `loosens`: what older versions still refused
    behaviour                 `behaviour`: named versions that a handler compares with `call.version`

A row place names where rows are in an answer: `"flavors"` (a list or one object under that key), `"limits.absolute"`
(nested), `""` (the body itself).  Translators only drop, rename and reshape; they never look anything up.
A field from the future is an unknown field, so `refuses` turns it away before `request` functions see the body.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from typing_extensions import override

from moorage.model.errors import Invalid, NotAcceptable

Json: TypeAlias = Any
Translate: TypeAlias = Callable[[Json], Json]
Query: TypeAlias = dict[str, list[str]]
Places: TypeAlias = Mapping[str, tuple[str, ...]]
"""Row place → names of fields."""


class Version(NamedTuple):
    """A microversion; compares as numbers do."""

    major: int
    minor: int

    @override
    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = Version(2, 1)
NEWEST = Version(2, 104)
VERSION_FORM = re.compile(r"^([1-9]\d*)\.([1-9]\d*|0)$")
SERVICE = "compute"


@dataclass(frozen=True)
class VersionChange:
    """What one microversion altered.  Keys are routes, `"GET /flavors/{id}"`, an action's `"POST /servers/{id}/action:lock"`."""

    at: tuple[int, int]
    summary: str
    adds: Mapping[str, Places] = field(default_factory=dict)
    """Fields of answers that older versions do not see."""
    retires: Mapping[str, Places] = field(default_factory=dict)
    """Fields of answers that are not seen from this version on."""
    refuses: Mapping[str, Places] = field(default_factory=dict)
    """Fields of requests that older versions do not know, and refuse."""
    refuses_from: Mapping[str, Places] = field(default_factory=dict)
    """Fields of requests that are refused from this version on."""
    request: Mapping[str, Translate] = field(default_factory=dict)
    response: Mapping[str, Translate] = field(default_factory=dict)
    query: Mapping[str, Callable[[Query], Query]] = field(default_factory=dict)
    status: Mapping[str, int] = field(default_factory=dict)
    """The status older versions are answered when all went well."""
    begins: tuple[str, ...] = ()
    """Routes that older versions do not have."""
    ends: tuple[str, ...] = ()
    """Routes that are gone from this version on."""
    loosens: Mapping[str, Callable[[Json], None]] = field(default_factory=dict)
    """Called with an older version's body; raises Invalid for what was refused then."""
    behaviour: tuple[str, ...] = ()
    """Differences that a handler implements, `"NAME: meaning"`; NAME is a constant of the change's module."""

    @property
    def version(self) -> Version:
        return Version(*self.at)

    def routes(self) -> set[str]:
        """Every route this change touches."""
        tables: tuple[Mapping[str, object], ...] = (
            self.adds, self.retires, self.refuses, self.refuses_from, self.request,
            self.response, self.query, self.status, self.loosens,
        )  # fmt: skip
        return {route for table in tables for route in table} | set(self.begins) | set(self.ends)


# -------------------------------------------------------------------------------------------------- negotiation


def _named(value: str) -> str | None:
    """The last `compute X` of an `OpenStack-API-Version` header, which may list several services."""
    version = None
    for part in value.split(","):
        words = part.split()
        if len(words) == 2 and words[0].lower() == SERVICE:
            version = words[1]
    return version


def negotiate(modern: str | None, legacy: str | None) -> Version:
    """The version asked for by the two headers; the modern one wins.

    Raises Invalid for a malformed version, NotAcceptable for one we do not have.
    """
    requested = _named(modern) if modern else None
    if requested is None and legacy:
        requested = legacy.split(",")[-1].strip()
    if requested is None:
        return OLDEST
    if requested == "latest":
        return NEWEST
    match = VERSION_FORM.match(requested)
    if not match:
        raise Invalid(f"API Version String {requested} is of invalid format. Must be of format MajorNum.MinorNum.")
    version = Version(int(match[1]), int(match[2]))
    if not OLDEST <= version <= NEWEST:
        raise NotAcceptable(
            f"Version {version} is not supported by the API. Minimum is {OLDEST} and maximum is {NEWEST}."
        )
    return version


# -------------------------------------------------------------------------------------------------- the bridge


def rows_at(body: Json, place: str) -> Iterable[dict[str, Json]]:
    """The objects at a row place; a list gives each of its objects, on the way and at the end."""
    rows: list[Json] = [body]
    for name in place.split(".") if place else ():
        rows = [row[name] for row in _objects(rows) if name in row]
    return _objects(rows)


def _objects(values: Iterable[Json]) -> list[dict[str, Json]]:
    objects: list[dict[str, Json]] = []
    for value in values:
        if isinstance(value, dict):
            objects.append(value)
        elif isinstance(value, list):
            objects.extend(row for row in value if isinstance(row, dict))
    return objects


def _merge(into: dict[str, set[str]], places: Places) -> None:
    for place, names in places.items():
        into.setdefault(place, set()).update(names)


def _mask(places: Mapping[str, set[str]]) -> Translate | None:
    if not places:
        return None
    frozen = [(place, frozenset(names)) for place, names in sorted(places.items()) if names]

    def drop(body: Json) -> Json:
        for place, names in frozen:
            for row in rows_at(body, place):
                for name in names & row.keys():
                    del row[name]
        return body

    return drop


def _refuse(places: Mapping[str, set[str]]) -> Translate | None:
    if not places:
        return None
    frozen = [(place, frozenset(names)) for place, names in sorted(places.items())]

    def refuse(body: Json) -> Json:
        for place, names in frozen:
            for row in rows_at(body, place):
                unexpected(sorted(names & row.keys()))
        return body

    return refuse


def unexpected(names: Iterable[str]) -> None:
    """Refuse fields that this version does not know, in the words of JSON schema. Raises Invalid when there are any."""
    listed = list(names)
    if listed:
        quoted = ", ".join(f"'{name}'" for name in listed)
        verb = "was" if len(listed) == 1 else "were"
        raise Invalid(f"Additional properties are not allowed ({quoted} {verb} unexpected)")


@dataclass(frozen=True)
class VersionAdapter:
    """What to do to one route's requests and answers at one version.  Answers are changed in place: hand over your own."""

    up: tuple[Translate, ...]
    down: tuple[Translate, ...]
    queries: tuple[Callable[[Query], Query], ...]
    status: int | None
    masks: Mapping[str, frozenset[str]]
    """Row place → fields this version does not see: for handlers that build or cache rows ready made."""

    def carry_up(self, body: Json) -> Json:
        for translate in self.up:
            body = translate(body)
        return body

    def carry_down(self, body: Json) -> Json:
        for translate in self.down:
            body = translate(body)
        return body


def _going_up(route: str, version: Version, changes: tuple[VersionChange, ...]) -> tuple[Translate, ...]:
    refused: dict[str, set[str]] = {}
    steps: list[Translate] = []
    for change in changes:
        if version < change.at:
            _merge(refused, change.refuses.get(route, {}))
            if check := change.loosens.get(route):
                steps.append(_checking(check))
            if translate := change.request.get(route):
                steps.append(translate)
        else:
            _merge(refused, change.refuses_from.get(route, {}))
    first = _refuse(refused)
    return (first, *steps) if first else tuple(steps)


def _checking(check: Callable[[Json], None]) -> Translate:
    def checked(body: Json) -> Json:
        check(body)
        return body

    return checked


def _going_down(
    route: str, version: Version, changes: tuple[VersionChange, ...]
) -> tuple[tuple[Translate, ...], dict[str, set[str]]]:
    """Retired fields go first, then the newest change backwards; neighbouring masks are one."""
    pending: dict[str, set[str]] = {}
    whole: dict[str, set[str]] = {}
    steps: list[Translate] = []

    def flush() -> None:
        if mask := _mask(pending):
            steps.append(mask)
        pending.clear()

    for change in changes:
        if version >= change.at:
            _merge(pending, change.retires.get(route, {}))
    for change in reversed(changes):
        if version < change.at:
            if reshape := change.response.get(route):
                flush_with = dict(pending)
                _merge(whole, {place: tuple(names) for place, names in flush_with.items()})
                flush()
                steps.append(reshape)
            _merge(pending, change.adds.get(route, {}))
    _merge(whole, {place: tuple(names) for place, names in pending.items()})
    flush()
    return tuple(steps), whole


def compile_bridge(route: str, version: Version, changes: tuple[VersionChange, ...]) -> VersionAdapter:
    """Everything between `version` and today for one route."""
    down, whole = _going_down(route, version, changes)
    older = [change for change in changes if version < change.at]
    return VersionAdapter(
        up=_going_up(route, version, changes),
        down=down,
        queries=tuple(change.query[route] for change in older if route in change.query),
        status=next((change.status[route] for change in older if route in change.status), None),
        masks={place: frozenset(names) for place, names in whole.items()},
    )


def lifetime(route: str, changes: tuple[VersionChange, ...]) -> tuple[Version, Version | None]:
    """From which version a route is there, and from which it is gone."""
    since = next((change.version for change in changes if route in change.begins), OLDEST)
    until = next((change.version for change in changes if route in change.ends), None)
    return since, until
