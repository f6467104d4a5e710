"""Checks that every service makes before it reads a request's body: its length, and the rate of its project's requests."""

from collections.abc import Callable, MutableMapping
from typing import Any, TypeAlias

from moorage.model.principal import Principal

CHARGE = "moorage.charge_asker"
"""Key of the listener's counter in the ASGI scope; calls within the process have none."""
DIGITS_MAX = 18

ChargePrincipal: TypeAlias = Callable[[Principal], None]


def charge(scope: MutableMapping[str, Any], principal: Principal) -> None:
    """Count one request of the caller's project. Raises TooManyRequests when the project sends too many."""
    charge_principal: ChargePrincipal | None = scope.get(CHARGE)
    if charge_principal is not None:
        charge_principal(principal)


def declares_more(content_length: str | None, most_bytes: int) -> bool:
    """Tell whether `Content-Length` is more than `most_bytes`; a body without a valid length is counted while it is read."""
    if content_length is None or not (content_length.isascii() and content_length.isdigit()):
        return False
    digits = content_length.lstrip("0")
    return len(digits) > DIGITS_MAX or int(digits or 0) > most_bytes
