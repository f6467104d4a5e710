"""One call: principal, version, parameters and body, and what a handler may use; and the response it gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import urlencode

from moorage.api.context import AppContext
from moorage.api.microversions import Query, Version, VersionAdapter
from moorage.model.errors import Invalid
from moorage.model.principal import Principal

DIGITS_MAX = 1000
"""Python reads no number of more than 4,300 digits."""

BodyT = TypeVar("BodyT")


@dataclass(slots=True)
class Response:
    """A handler's answer in today's (full) shape; the framework carries it down to the version asked for."""

    status: int = 200
    body: Any = None
    """A Struct, a dict or list of plain values, bytes of JSON (sent as they are), or None for no body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    finished: bool = False
    """True when the body already is in the shape of `call.version` (built with `call.bridge.masks`)."""
    fixed_status: bool = False
    """True when `status` is not to be replaced by what older versions were answered."""


NUMBER_MAX = 2**31 - 1
"""Of rows, and of what a database takes for an offset."""


@dataclass(slots=True)
class Call(Generic[BodyT]):
    """What a handler sees.  `body` is decoded into the route's `takes`, in today's shape; `path` has the path's parameters."""

    principal: Principal
    version: Version
    body: BodyT
    query: Query
    path: Mapping[str, str]
    context: AppContext
    bridge: VersionAdapter
    request_id: str
    global_request_id: str | None
    base_url: str
    """`http://host:port`."""
    url_project: str | None
    """The project in the URL, when it was given there; links repeat it."""
    url_path: str
    """The path asked for, after `/v2.1` and the project."""
    token: str = field(repr=False, default="")
    """The user's token, for calls to other services while this call is answered; never stored."""
    legacy: bool = False
    """Asked at `/v2`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The request's headers, lower case."""
    preview: bool = False
    """Whether it is a dry run, which only describes what it would begin."""

    @property
    def is_admin(self) -> bool:
        """Nova's `context.is_admin`: what the rule `context_is_admin` says."""
        return self.context.policy.allows(self.principal, "context_is_admin")

    @property
    def project(self) -> str:
        """The caller's project; raises Invalid for a token without one."""
        if self.principal.project is None:
            raise Invalid("This call needs a token that is scoped to a project.")
        return self.principal.project

    def require(self, rule: str, target: Mapping[str, Any] | None = None) -> None:
        """Raises Forbidden unless policy allows; the target defaults to the caller's own project and user."""
        self.context.policy.require(self.principal, rule, target)

    def allows(self, rule: str, target: Mapping[str, Any] | None = None) -> bool:
        return self.context.policy.allows(self.principal, rule, target)

    # ---------------------------------------------------------------------------------------------- the query

    def first(self, name: str) -> str | None:
        """A query parameter; of several, the last (as Nova's dict of parameters keeps)."""
        values = self.query.get(name)
        return values[-1] if values else None

    def page(self) -> tuple[int, str | None]:
        """(limit in rows, marker).  Raises Invalid for a limit that is not a number."""
        limit, most = self.first("limit"), self.context.config.page_max_rows
        if limit is None or limit == "":
            return most, self.first("marker")
        if not limit.isdecimal() or len(limit) > DIGITS_MAX:
            raise Invalid(
                "limit param must be an integer" if not limit.startswith("-") else "limit param must be positive"
            )
        return min(self.number("limit"), most), self.first("marker")

    def number(self, name: str) -> int:
        """A query parameter in decimal digits, 0 without one; a number that nothing has so many of is NUMBER_MAX."""
        digits = (self.first(name) or "").strip().lstrip("0")
        return NUMBER_MAX if len(digits) > len(str(NUMBER_MAX)) else min(int(digits or 0), NUMBER_MAX)

    # ---------------------------------------------------------------------------------------------- links

    def self_link(self, path: str) -> str:
        """An absolute URL under our version: `path` is `flavors/42`."""
        prefix = f"{self.url_project}/" if self.url_project else ""
        return f"{self.base_url}/{'v2' if self.legacy else 'v2.1'}/{prefix}{path}"

    def bookmark_link(self, path: str) -> str:
        """An absolute URL of no version."""
        prefix = f"{self.url_project}/" if self.url_project else ""
        return f"{self.base_url}/{prefix}{path}"

    def links(self, path: str) -> list[dict[str, str]]:
        return [
            {"rel": "self", "href": self.self_link(path)},
            {"rel": "bookmark", "href": self.bookmark_link(path)},
        ]

    def next_links(self, path: str, rows: Sequence[object], last_id: str, limit: int) -> list[dict[str, str]]:
        """A `next` link when this page is full, else nothing."""
        if limit <= 0 or len(rows) < limit:
            return []
        kept = [(name, value) for name, values in self.query.items() if name != "marker" for value in values]
        return [{"rel": "next", "href": f"{self.self_link(path)}?{urlencode([*kept, ('marker', last_id)])}"}]


AnyCall: TypeAlias = Call[Any]
"""A call whose body its handler or helper does not read."""
