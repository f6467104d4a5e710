"""What a handler of the Placement API is given and gives, and how bodies and queries are judged."""

import re
import time
import uuid as uuids
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl

import fastjsonschema
import msgspec

from moorage.model.errors import Invalid, NotFound, WrongMediaType
from moorage.model.principal import Principal
from moorage.placement.cache.provider import Provider
from moorage.placement.engine import Engine
from moorage.placement.service import error_codes
from moorage.placement.service.group_commit import GroupCommit
from moorage.sql import Database

Version = tuple[int, int]
MIN_VERSION: Version = (1, 0)
MAX_VERSION: Version = (1, 39)


@dataclass(slots=True)
class Req:
    """One request."""

    method: str
    path: Mapping[str, str]
    query: list[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes
    version: Version
    prefix: str
    principal: Principal
    engine: Engine
    region: Database
    writes: GroupCommit
    allows: Callable[[Principal, str, Mapping[str, Any]], bool]
    request_id: str

    def since(self, minor: int) -> bool:
        """Whether the version asked for is at least 1.`minor`."""
        return self.version >= (1, minor)

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.query if key == name]

    def last(self, name: str) -> str | None:
        values = self.values(name)
        return values[-1] if values else None

    def json(self, schema: "Schema") -> Any:
        """The body, judged; raises WrongMediaType or Invalid."""
        need_json(self.headers)
        try:
            data = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
            raise Invalid(f"Malformed JSON: {failure}") from failure
        return schema.check(data, "JSON does not validate: ")

    def check_query(self, schema: "Schema") -> None:
        schema.check(dict(self.query), "Invalid query string parameters: ", code=error_codes.UNDEFINED)

    async def provider(self, uuid: str) -> Provider:
        """The provider as it is now; raises NotFound."""
        await self.engine.catch_up()
        provider = self.engine.picture.providers.get(uuid)
        if not isinstance(provider, Provider):
            raise NotFound(f"No resource provider with uuid {uuid} found")
        return provider

    def url(self, path: str) -> str:
        return f"{self.prefix}{path}"


@dataclass(slots=True)
class Rep:
    """One answer; `stamped` adds the headers that 1.15 brought."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    stamped: bool = True
    modified: int | None = None
    dated: bool = True
    """False: nothing is there that could have been modified."""
    raw: bytes | None = None


def pairs(query: bytes) -> list[tuple[str, str]]:
    """Parse a query string as Placement does: `;` separates like `&`. Raises Invalid when it is not UTF-8."""
    try:
        return parse_qsl(query.decode("latin-1").replace(";", "&"), keep_blank_values=True, errors="strict")
    except ValueError as failure:
        raise Invalid(f"Invalid query string parameters: {failure}") from failure


def http_date(seconds: int | None) -> str:
    return formatdate(seconds or time.time(), usegmt=True)


_HEX = re.compile(r"^[0-9a-f]{32}$")


def is_uuid(value: str) -> bool:
    """As OpenStack judges: with or without dashes, braces or the URN prefix."""
    plain = value.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "").lower()
    return bool(_HEX.match(plain))


def is_dashed_uuid(value: str) -> bool:
    """As the JSON-schema library that Placement uses judges, which is what query strings are checked with."""
    return is_uuid(value) and all(value[at : at + 1] == "-" for at in DASHES_AT)


class Schema:
    """A JSON schema, compiled at its first use: the compiled check takes microseconds. `judge` decides what is a UUID."""

    def __init__(self, rules: Mapping[str, Any], judge: Callable[[str], bool] = is_uuid) -> None:
        self._rules = dict(rules)
        self._judge = judge
        self._compiled: Callable[[Any], Any] | None = None

    def check(self, data: Any, words: str, code: str | None = None) -> Any:
        """The data; raises Invalid."""
        if self._compiled is None:
            self._compiled = fastjsonschema.compile(
                self._rules, formats={"uuid": self._judge}, use_default=False, use_formats=True
            )
        try:
            self._compiled(data)
        except fastjsonschema.JsonSchemaValueException as failure:
            raise Invalid(words + self._message(data, str(failure.message)), code=code) from failure
        return data

    def _message(self, data: Any, otherwise: str) -> str:
        """Return the message in the form that OpenStack's clients know, from the other library, which is slower."""
        import jsonschema  # slow to import, and needed only for refusals
        from jsonschema.exceptions import best_match

        checker = jsonschema.FormatChecker(())
        checker.checks("uuid")(lambda value: not isinstance(value, str) or self._judge(value))  # of strings only
        judge = jsonschema.Draft7Validator(self._rules, format_checker=checker)
        failure = best_match(judge.iter_errors(data))
        if failure is None:
            return otherwise
        where = "".join(f"[{part!r}]" for part in list(failure.relative_schema_path)[:-1])
        return f"{failure.message}\n\nFailed validating {failure.validator!r} in schema{where}"[:SAID_MAX_CHARS]


def need_json(headers: Mapping[str, str]) -> None:
    """Raises WrongMediaType for a body of another kind, or of none."""
    kind = headers.get("content-type", "").split(";")[0].strip()
    if kind != "application/json":
        raise WrongMediaType(f"The media type {kind or 'None'} is not supported, use application/json")


SAID_MAX_CHARS = 2000
UUID_MAX_CHARS = 36
DASHES_AT = (8, 13, 18, 23)


def ordered(traits: Iterable[str]) -> list[str]:
    """Standard traits first, then a site's own."""
    return sorted(traits, key=lambda name: (name.startswith("CUSTOM_"), name))


def uuid_of(value: str) -> str:
    """The form with dashes: what a new provider, and a consumer in a path, is known by. All else is taken as it is sent."""
    return str(uuids.UUID(value))


def aggregate_of(value: str) -> str:
    """An aggregate is known by the very text that was sent, in any form of a UUID that our tables have room for."""
    return value if len(value) <= UUID_MAX_CHARS else uuid_of(value)
