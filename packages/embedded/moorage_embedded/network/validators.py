"""Validators and converters of attribute values; a validator answers why not, or None."""

import re
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any, TypeAlias
from uuid import UUID

Check: TypeAlias = Callable[[Any], str | None]

MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
ITEMS_MAX = 1_000


def text(longest: int = 255) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, str):
            return f"'{value}' is not a valid string"
        if len(value) > longest:
            return f"'{value}' exceeds maximum length of {longest}"
        return None

    return check


def line(longest: int = 255) -> Check:
    """A text that a file of options may hold: without control characters."""
    short = text(longest)

    def check(value: Any) -> str | None:
        return short(value) or (f"{value!r} has control characters" if CONTROL.search(value) else None)

    return check


def filled(longest: int = 255) -> Check:
    short = text(longest)

    def check(value: Any) -> str | None:
        return short(value) or (None if value.strip() else f"'{value}' Blank strings are not permitted")

    return check


def optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def one_of(*values: Any) -> Check:
    return lambda value: None if value in values else f"{value} is not in {list(values)}"


def within(low: int, high: int) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"'{value}' is not an integer"
        if value < low:
            return f"'{value}' is too small - must be at least '{low}'"
        if value > high:
            return f"'{value}' is too large - must be no larger than '{high}'"
        return None

    return check


def is_uuid(value: Any) -> str | None:
    try:
        if isinstance(value, str) and len(value) <= 45:
            UUID(value)
            return None
    except ValueError:
        pass  # the answer below says it
    return f"'{value}' is not a valid UUID"


def is_bool(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"'{value}' cannot be converted to boolean"


def is_mac(value: Any) -> str | None:
    if isinstance(value, str) and MAC.fullmatch(value) and value != "00:00:00:00:00:00":
        return None
    return f"'{value}' is not a valid MAC address"


def is_address(value: Any) -> str | None:
    try:
        if isinstance(value, str) and "%" not in value:  # a zone is the sender's own
            ip_address(value)
            return None
    except ValueError:
        pass  # the answer below says it
    return f"'{value}' is not a valid IP address"


def is_subnet(value: Any) -> str | None:
    try:
        if isinstance(value, str) and "/" in value and "%" not in value:
            ip_network(value, strict=False)
            return None
    except ValueError:
        pass  # the answer below says it
    return f"'{value}' is not a valid IP subnet"


def is_dict(value: Any) -> str | None:
    return None if isinstance(value, dict) else f"'{value}' is not a dictionary"


def listed(each: Check, most: int = ITEMS_MAX, *, unique: bool = False) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, list):
            return f"'{value}' is not a list"
        if len(value) > most:
            return f"more than {most} items"
        for item in value:
            if reason := each(item):
                return reason
        if unique and len({str(item) for item in value}) < len(value):
            return f"Duplicate items in the list: '{', '.join(map(str, value))}'"
        return None

    return check


def keyed(required: dict[str, Check], others: dict[str, Check] | None = None) -> Check:
    """A dictionary with just these keys."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f"'{value}' is not a dictionary"
        known = required | (others or {})
        if missing := set(required) - set(value):
            return (
                f"Validation of dictionary's keys failed. Expected keys: {sorted(required)}; missing {sorted(missing)}"
            )
        if strange := set(value) - set(known):
            return f"Unexpected keys supplied: {', '.join(sorted(map(str, strange)))}"
        for key, inner in value.items():
            if reason := known[key](inner):
                return reason
        return None

    return check


def is_fixed_ips(value: Any) -> str | None:
    if not isinstance(value, list) or len(value) > ITEMS_MAX:
        return f"Invalid data format for fixed IP: '{value}'"
    seen = set()
    for each in value:
        if not isinstance(each, dict) or not each or set(each) - {"subnet_id", "ip_address", "delete_subnet"}:
            return f"Invalid data format for fixed IP: '{each}'"
        if (address := each.get("ip_address")) is not None:
            if reason := is_address(address):
                return reason
            if address in seen:
                return f"Duplicate IP address '{address}'"
            seen.add(address)
        if each.get("subnet_id") is not None and (reason := is_uuid(each["subnet_id"])):
            return reason
    return None


def to_bool(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in {"true", "false", "1", "0"}:
        return value.lower() in {"true", "1"}
    if isinstance(value, int) and value in {0, 1}:
        return bool(value)
    return value


def to_int(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    return value


def to_mac(value: Any) -> Any:
    return value.lower().replace("-", ":") if isinstance(value, str) else value


def to_address(value: Any) -> Any:
    try:
        return str(ip_address(value)) if isinstance(value, str) else value
    except ValueError:
        return value


def none_to_list(value: Any) -> Any:
    return [] if value is None else value


def to_sorted(value: Any) -> Any:
    """Words in their order; what is no list of words is left for the check to refuse."""
    plain = isinstance(value, list) and all(isinstance(each, str) for each in value)  # pyright: ignore[reportUnknownVariableType]
    return sorted(value) if plain else value


def none_to_dict(value: Any) -> Any:
    return {} if value is None else value
