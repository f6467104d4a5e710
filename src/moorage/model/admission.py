"""What every service asks of a request before it reads its body: is it too long, and does its project ask too often."""

from collections.abc import Callable, MutableMapping
from typing import Any, TypeAlias

from moorage.model.principal import Principal

CHARGE = "moorage.charge_asker"
"""The listener's part, in the ASGI scope of requests that are counted; calls within the process have none."""
DIGITS_MAX = 18

ChargePrincipal: TypeAlias = Callable[[Principal], None]


def charge(scope: MutableMapping[str, Any], principal: Principal) -> None:
    """Count one request of the caller's project. Raises TooManyRequests."""
    charge_principal: ChargePrincipal | None = scope.get(CHARGE)
    if charge_principal is not None:
        charge_principal(principal)


def declares_more(content_length: str | None, most_bytes: int) -> bool:
    """Whether a body says of itself that it is longer; what says nothing, or no number, is counted while it is read."""
    if content_length is None or not (content_length.isascii() and content_length.isdigit()):
        return False
    digits = content_length.lstrip("0")
    return len(digits) > DIGITS_MAX or int(digits or 0) > most_bytes
