"""The scheduler hints of a new server: their form, as Nova's, and how much of them is taken."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from moorage.model.errors import Invalid
from moorage.model.waiting import FORM, WAIT, seconds_of

SERVERS_MAX = 100
"""Named by one hint: each is looked up."""
BYTES_MAX = 8 * 1024
"""Limit of all hints as JSON: they are stored as long as their server, for its moves."""
UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
CIDR = re.compile(r"/[0-9a-f.:]+")
NAME_CHARACTERS_MAX = 255
SHOWN_CHARACTERS_MAX = 200


def hints_of(given: Mapping[str, Any] | None) -> dict[str, str | list[str]]:
    """What is asked, values that are no text as JSON. Raises Invalid."""
    given = given or {}
    size = len(msgspec.json.encode(given))
    if size > BYTES_MAX:
        raise Invalid(f"The scheduler hints are {size} bytes of JSON; at most {BYTES_MAX} are taken.")
    for name, check in CHECKS.items():
        if name in given:
            check(name, given[name])
    hints: dict[str, str | list[str]] = {
        name: [_text(each) for each in value] if isinstance(value, list) else _text(value)
        for name, value in given.items()
    }
    group = hints.get("group")
    if isinstance(group, list):
        hints["group"] = group[0] if group else ""
        if not group:
            _refuse("group", "", "is not a 'uuid'")
    return hints


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _refuse(name: str, value: Any, why: str) -> NoReturn:
    shown = str(value)[:SHOWN_CHARACTERS_MAX]
    raise Invalid(f"Invalid input for field/attribute {name}. Value: {shown}. '{shown}' {why}")


def _is_uuid(value: Any) -> bool:
    return isinstance(value, str) and UUID.fullmatch(value) is not None


def _uuids(name: str, value: Any, *, alone: Callable[[Any], bool] = _is_uuid) -> None:
    if not isinstance(value, list):
        if not alone(value):
            _refuse(name, value, "is not a 'uuid'")
        return
    if len(value) > SERVERS_MAX:
        raise Invalid(f"The scheduler hint {name} names {len(value)} servers; at most {SERVERS_MAX} are taken.")
    for each in value:
        if not _is_uuid(each):
            _refuse(name, each, "is not a 'uuid'")


def _strings(name: str, value: Any) -> None:
    if not all(isinstance(each, str) for each in (value if isinstance(value, list) else [value])):
        _refuse(name, value, "is not of type 'string', 'array'")


def _query(name: str, value: Any) -> None:
    if not isinstance(value, str | dict):
        _refuse(name, value, "is not of type 'string', 'object'")


def _name(name: str, value: Any) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= NAME_CHARACTERS_MAX:
        _refuse(name, value, f"is not a name of 1 to {NAME_CHARACTERS_MAX} characters")


def _address(name: str, value: Any) -> None:
    try:
        ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        _refuse(name, value, "is not an IP address")


def _cidr(name: str, value: Any) -> None:
    if not isinstance(value, str) or CIDR.fullmatch(value) is None:
        _refuse(name, value, "does not match '^/[0-9a-f.:]+$'")


def _wait(name: str, value: Any) -> None:
    if isinstance(value, bool):
        return
    if isinstance(value, list | dict | float) or value is None:
        _refuse(name, value, f"is not {FORM}")
    seconds_of(value)


CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "group": _uuids,
    "different_host": _uuids,
    "same_host": lambda name, value: _uuids(name, value, alone=lambda each: isinstance(each, str)),
    "query": _query,
    "target_cell": _name,
    "different_cell": _strings,
    "build_near_host_ip": _address,
    "cidr": _cidr,
    WAIT: _wait,
}
"""The hints that Nova's schema knows; any other may be anything."""
