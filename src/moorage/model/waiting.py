"""Boots that wait for a host instead of ending in ERROR: how that is asked for, and how much of it there may be."""

from collections.abc import Mapping, Sequence

import msgspec

from moorage.model.errors import Invalid

WAIT = "moorage:wait"
"""The scheduler hint and the extra spec of a flavor; the hint counts where both are there."""
TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")
SECONDS_PER_YEAR = 365 * 86_400
FORM = "true, false, or a limit in whole seconds"


class WaitingLimits(msgspec.Struct, frozen=True):
    """What an operator allows (`[waiting]` of the configuration)."""

    time_s: float = 3_600.0
    """Of who does not say for how long."""
    time_max_s: float = 86_400.0
    """More may not be asked for."""
    servers_max: int = 10_000
    """In the region; 0: none may wait."""
    project_servers_max: int = 1_000
    """Of one project."""


class Wait(msgspec.Struct, frozen=True):
    """Of one boot."""

    until_us: int
    """Then it ends, as if it had not waited."""
    limit_s: float = 0.0


def seconds_of(value: object) -> float | None:
    """What a hint or an extra spec says; 0: it waits for as long as is usual; None: it does not wait.  Raises Invalid."""
    text = str(value).strip().lower() if isinstance(value, str | int) else ""
    if text in TRUE:
        return 0.0
    if text in FALSE:
        return None
    if text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= SECONDS_PER_YEAR:
        return float(text)
    raise Invalid(f"Invalid input for field/attribute {WAIT}. Value: {str(value)[:100]}. It is {FORM}, at least 1.")


def requested_limit_s(
    hints: Mapping[str, str | Sequence[str]], extra_specs: Mapping[str, str], limits: WaitingLimits
) -> float | None:
    """For how long a boot may wait; None: it is not to wait.  Raises Invalid for what is no such value, and for too long."""
    value = hints.get(WAIT, extra_specs.get(WAIT))
    wait_s = None if value is None else seconds_of(value)
    if wait_s is None:
        return None
    if wait_s > limits.time_max_s:
        raise Invalid(
            f"{WAIT}: a server waits for at most {limits.time_max_s:.0f} s here, and {wait_s:.0f} s were asked for."
        )
    return wait_s or min(limits.time_s, limits.time_max_s)
