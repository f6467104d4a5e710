"""Answers of services: the successful answer, and the Problem for a refusal or a failure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

import msgspec

from moorage.model.errors import (
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    OverQuota,
    PreconditionFailed,
    Problem,
    Refusal,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnknownOutcome,
)

CREDENTIALS = "credentials"
"""The code of the error when a service refuses our own account."""
SENTENCE_MAX = 1000
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSALS: dict[int, type[Refusal]] = {
    400: Invalid,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    412: PreconditionFailed,
    413: TooLarge,
}
_REFUSALS_SAID_AS_FAILURES = frozenset({"PortBindingError"})
"""Errors that Neutron answers with 500 although it works, understood the request and changed nothing."""


class ServiceResponse(msgspec.Struct, frozen=True):
    """The successful answer of a service."""

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]


def _retry_after_s(value: str) -> float:
    """Parse `Retry-After`: seconds, or a date (RFC 9110, 10.2.3); None if it cannot be understood."""
    try:
        return max(float(value), 0.0) if value.strip().isdigit() else _until_s(value)
    except (ValueError, TypeError):
        return 0.0


def _until_s(date: str) -> float:
    return max((parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds(), 0.0) if date else 0.0


def reason_of(content: bytes) -> tuple[str, str]:
    """Return the type of a service's refusal (Neutron's `type`) and its message, from any of the services' formats."""
    try:
        body: Any = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return "", _plain(content)
    if not isinstance(body, dict):
        return "", _plain(content)
    for word, inner in cast("dict[str, Any]", body).items():
        if isinstance(inner, str):
            return "", inner[:SENTENCE_MAX]
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):  # Placement: {"errors": [{"detail": …}]}
            first = cast("dict[str, Any]", inner[0])
            return str(first.get("code", "")), str(first.get("detail", ""))[:SENTENCE_MAX]
        if isinstance(inner, dict) and "message" in inner:
            error = cast("dict[str, Any]", inner)
            kind = error.get("type", "") if word == "NeutronError" else ""
            return str(kind), str(error["message"])[:SENTENCE_MAX]
    return "", _plain(content)


def _plain(content: bytes) -> str:
    """The last line of an error page without markup."""
    text = content[:4000].decode(errors="replace")
    lines = [line.strip() for line in text.replace(">", ">\n").replace("<", "\n<").splitlines()]
    words = [line for line in lines if line and not line.startswith("<")]
    return words[-1][:SENTENCE_MAX] if words else ""


def problem_of(
    service: str, method: str, status: int, headers: Mapping[str, str], content: bytes, *, ours: bool
) -> Problem:
    """Return the Problem for an answer of status 400 or above. `ours`: the call had our own credentials, not a user's."""
    kind, sentence = reason_of(content)
    private = f"{status} {kind} {sentence}"
    if status == 401 and ours:
        return Unavailable(f"the {service} service does not accept our credentials", private=private, code=CREDENTIALS)
    if status == 403 and ours and kind != "OverQuota":
        return Unavailable(
            f"the {service} service does not let our account do this",
            private=f"{private}; the user of [service_user] lacks a role",
            code=CREDENTIALS,
        )
    if status in {429, 503}:
        busy = Unavailable(f"the {service} service is busy", private=private)
        busy.retry_after_s = _retry_after_s(headers.get("retry-after", ""))
        return busy
    if status >= 500 and kind in _REFUSALS_SAID_AS_FAILURES:
        return Conflict(sentence, private=private, code=kind)
    if status >= 500:
        lost = Unavailable if method in SAFE_METHODS else UnknownOutcome
        return lost(f"the {service} service failed", private=private)
    refusal: type[Refusal] = OverQuota if kind == "OverQuota" else _REFUSALS.get(status, Invalid)
    return refusal(sentence or f"the {service} service refused ({status})", private=private, code=kind or None)
