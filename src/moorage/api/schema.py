"""Shapes on the wire: Nova's lax types, and strict decoding with refusals in the words Nova's clients know.

Request bodies are msgspec Structs with `forbid_unknown_fields=True` (subclass `Body`).  Nova takes `"1"` for 1 and `"on"`
for true; msgspec's strict mode refuses the first and its lax mode the second, so these are types of our own: `NovaInt`
(with the ranges its schemas use) and `NovaBool`.
"""

import re
from collections.abc import Mapping
from typing import ClassVar, Self, TypeVar

import msgspec
from typing_extensions import override

from moorage.api.microversions import Json, unexpected
from moorage.model.errors import Invalid

StructT = TypeVar("StructT")

INT32_MAX = 0x7FFFFFFF
SOFT_FIELDS_MAX = 100  # unknown fields that /v2 leaves out before it gives up
SHOWN_VALUE_MAX_CHARS = 400


class Body(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=False, kw_only=True):
    """The root of request bodies: today's shape, unknown fields refused."""

    never_null: ClassVar[Mapping[str, str]] = {}
    """What may be left out and may not be null, by its name in the body, with the types Nova's refusal names."""


class NovaInt(int):
    """An integer, or a string of digits."""

    low: int = -(2**63)
    high: int = 2**63 - 1

    @classmethod
    def of(cls, value: object) -> Self:
        """Convert an integer, or a string of digits, within the limits. Raises ValueError with the words of JSON schema."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"{value!r} is not of type 'integer', 'string'")
        digits = "-?[0-9]{1,20}" if cls.low < 0 else "[0-9]{1,20}"
        if isinstance(value, str) and not re.fullmatch(digits, value):
            raise ValueError(f"{value!r} does not match '^[0-9]*$'")
        number = int(value)
        if number < cls.low:
            raise ValueError(f"{value!r} is less than the minimum of {cls.low}")
        if number > cls.high:
            raise ValueError(f"{value!r} is greater than the maximum of {cls.high}")
        return cls(number)


class Positive(NovaInt):
    """1 and up."""

    low = 1


class NotNegative(NovaInt):
    """0 and up."""

    low = 0


class Positive32(NovaInt):
    """1 to 2^31 - 1."""

    low = 1
    high = INT32_MAX


class NotNegative32(NovaInt):
    """0 to 2^31 - 1."""

    low = 0
    high = INT32_MAX


class Limit32(NovaInt):
    """-1 (no limit) to 2^31 - 1."""

    low = -1
    high = INT32_MAX

    @override
    @classmethod
    def of(cls, value: object) -> Self:
        """Convert a limit, also from a string; -1 is no limit. Raises ValueError with the words of JSON schema."""
        if isinstance(value, str) and not re.fullmatch(r"-?[0-9]+", value):
            raise ValueError(f"{value!r} does not match '^-?[0-9]+$'")
        return super().of(value)


TRUE = frozenset({"True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes"})
FALSE = frozenset({"False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no"})


class NovaBool:
    """True or false, or one of the strings Nova's schemas allow; use it as a condition, or `bool()` it."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return self.value

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, bool | NovaBool) and bool(other) is self.value

    @override
    def __hash__(self) -> int:
        return hash(self.value)

    @override
    def __repr__(self) -> str:
        return repr(self.value)

    @classmethod
    def of(cls, value: object) -> Self:
        """Convert a boolean in any of the forms that Nova accepts. Raises ValueError with the words of JSON schema."""
        if value is True or (isinstance(value, str) and value in TRUE):
            return cls(True)
        if value is False or (isinstance(value, str) and value in FALSE):
            return cls(False)
        allowed = "True, 'True', 'TRUE', 'true', '1', 'ON', 'On', 'on', 'YES', 'Yes', 'yes', "
        denied = "False, 'False', 'FALSE', 'false', '0', 'OFF', 'Off', 'off', 'NO', 'No', 'no'"
        raise ValueError(f"{value!r} is not one of [{allowed}{denied}]")


class Whitespace(ValueError):
    """A name that may not begin or end with blanks."""


class Name(str):
    """1 to 255 printable characters, no blanks around."""

    __slots__ = ()
    longest = 255
    forbids = ""

    @classmethod
    def of(cls, value: object) -> Self:
        """Check a name.

        Raises ValueError for its type and length, and Whitespace for spaces at its ends and characters that cannot be
        printed.
        """
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not of type 'string'")
        if not value:
            raise ValueError(f"{value!r} is too short")
        if len(value) > cls.longest:
            raise ValueError(f"{value!r} is too long")
        if value != value.strip() or not value.isprintable() or any(bad in value for bad in cls.forbids):
            extra = " except :" if cls.forbids else ""
            raise Whitespace(
                "An invalid 'name' value was provided. The name must be: "
                f"printable characters{extra}. Can not start or end with whitespace."
            )
        return cls(value)


class ZoneName(Name):
    """A name without `:`."""

    __slots__ = ()
    forbids = ":"


def _decode(kind: type, value: object) -> object:
    if issubclass(kind, NovaInt | NovaBool | Name):
        return kind.of(value)
    raise NotImplementedError(f"no rule to read a {kind}")


def _encode(value: object) -> object:
    if isinstance(value, NovaBool):
        return value.value
    if isinstance(value, NovaInt):
        return int(value)
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"no rule to write a {type(value).__name__}")


# -------------------------------------------------------------------------------------------------- decoding

_PATH = re.compile(r"^(.*?)(?: - at `(key in )?\$?([^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_JSON_NAMES = {
    "str": "string", "int": "integer", "bool": "boolean", "float": "number", "object": "object", "array": "array",
    "null": "null",
}  # fmt: skip


def _reach(body: Json, path: str) -> tuple[str, Json]:
    """The last name on a msgspec path, and the value there if it can be reached."""
    name, value = "", body
    for step in _STEP.finditer(path):
        key, index = step[1], step[2]
        if key:
            name = key
            value = value.get(key) if isinstance(value, dict) else None
        elif index == "...":
            value = next(iter(value.values()), None) if isinstance(value, dict) else value
        elif isinstance(value, list) and int(index) < len(value):
            name, value = index, value[int(index)]
    return name, value


def _reworded(reason: str, value: Json) -> str:
    if wanted := re.match(r"Expected `([^`]+)`, got `[^`]+`$", reason):
        kinds = ", ".join(f"'{_JSON_NAMES.get(kind.strip(), 'object')}'" for kind in wanted[1].split("|"))
        return f"{value!r} is not of type {kinds}"
    if re.match(r"Expected `\w+` of length >= ", reason):
        return f"{value!r} is too short"
    if re.match(r"Expected `\w+` of length <= ", reason):
        return f"{value!r} is too long"
    if limit := re.match(r"Expected `\w+` >= (\S+)$", reason):
        return f"{value!r} is less than the minimum of {limit[1]}"
    if limit := re.match(r"Expected `\w+` <= (\S+)$", reason):
        return f"{value!r} is greater than the maximum of {limit[1]}"
    if pattern := re.match(r"Expected `\w+` matching regex (.*)$", reason):
        return f"{value!r} does not match {pattern[1]}"
    return reason


def refusal(body: Json, failure: msgspec.ValidationError) -> Invalid:
    """Convert a decoding error into the message of Nova's schema validation."""
    if isinstance(failure.__cause__, Whitespace):
        return Invalid(str(failure.__cause__))
    parts = _PATH.match(str(failure))
    reason, path = (parts[1], parts[3] or "") if parts else (str(failure), "")
    if unknown := re.match(r"Object contains unknown field `([^`]*)`", reason):
        try:
            unexpected([unknown[1]])
        except Invalid as invalid:
            return _placed(path, body, str(invalid))
    if missing := re.match(r"Object missing required field `([^`]*)`", reason):
        return _placed(path, body, f"'{missing[1]}' is a required property")
    name, value = _reach(body, path)
    return _invalid_field(name, value, _reworded(reason, value))


def _placed(path: str, body: Json, message: str) -> Invalid:
    name, value = _reach(body, path)
    return _invalid_field(name, value, message)


def _invalid_field(name: str, value: Json, message: str) -> Invalid:
    if not name:
        return Invalid(message)
    shown = str(value)
    if len(shown) > SHOWN_VALUE_MAX_CHARS:
        shown = shown[:SHOWN_VALUE_MAX_CHARS] + "…"
    return Invalid(f"Invalid input for field/attribute {name}. Value: {shown}. {message}")


def decode(body: Json, shape: type[StructT], *, soft: bool = False) -> StructT:
    """Read a body (plain JSON values) into today's shape; raises Invalid in Nova's words.

    `soft` is for `/v2`: unknown fields are left out instead of being refused.
    """
    if body is None:
        raise Invalid("None is not of type 'object'")
    for _ in range(SOFT_FIELDS_MAX):
        try:
            read = msgspec.convert(body, shape, dec_hook=_decode)
            _refuse_nulls(body, read)
            return read
        except msgspec.ValidationError as failure:
            if not (soft and _left_out(body, str(failure))):
                raise refusal(body, failure) from failure
    raise Invalid("Malformed request body")


def _refuse_nulls(body: Json, read: object) -> None:
    """Raises Invalid for a null where a field may only be left out: to a Struct the two are the same."""
    if isinstance(read, list) and isinstance(body, list):
        for each, made in zip(body, read, strict=False):
            _refuse_nulls(each, made)
    if not isinstance(read, Body) or not isinstance(body, dict):
        return
    for name, kinds in read.never_null.items():
        if name in body and body[name] is None:
            raise Invalid(f"Invalid input for field/attribute {name}. Value: None. None is not of type {kinds}")
    for field, name in zip(read.__struct_fields__, read.__struct_encode_fields__, strict=True):
        _refuse_nulls(body.get(name), getattr(read, field))


def _left_out(body: Json, text: str) -> bool:
    match = re.match(r"Object contains unknown field `([^`]*)`(?: - at `\$?([^`]*)`)?$", text)
    if not match:
        return False
    _, place = _reach(body, match[2] or "")
    if not isinstance(place, dict) or match[1] not in place:
        return False
    del place[match[1]]
    return True


def read_json(raw: bytes) -> Json:
    """A request's bytes as plain JSON values; raises Invalid."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise Invalid("Malformed request body", private=str(failure)) from failure


_encoder = msgspec.json.Encoder(enc_hook=_encode)


def write_json(value: object) -> bytes:
    return _encoder.encode(value)


def plain(value: object) -> Json:
    """Structs as plain JSON values of our own, which a translator may change in place."""
    return msgspec.to_builtins(value, enc_hook=_encode)
