"""Limits of compute that the identity service holds, as Nova's `UnifiedLimitsDriver` reads them: nothing here follows them.

An operator who set them relies on them, so `moorage status` names them.
"""

import time
from collections.abc import Awaitable, Callable

from moorage.model.errors import Problem
from moorage.model.unified_limits import COMPUTE

KEPT_S = 60.0
NAMES_SAID_MAX = 20


async def limit_warnings(limited_resources: Callable[[str], Awaitable[tuple[str, ...]]]) -> tuple[str, ...]:
    """Return what the operator should know, as sentences; nothing when there are no such limits."""
    try:
        names = await limited_resources(COMPUTE)
    except Problem as out:
        return (f"whether the identity service has limits of compute could not be asked: {out.public}",)
    if not names:
        return ()
    named = ", ".join(names[:NAMES_SAID_MAX]) + (" ..." if len(names) > NAMES_SAID_MAX else "")
    return (
        f"the identity service has registered limits of compute ({named}), which change nothing: the limits are those of "
        "`openstack quota set`",
    )


class LimitsElsewhere:
    """The same for a process that is asked often: the identity service is asked once in a minute."""

    def __init__(
        self,
        limited_resources: Callable[[str], Awaitable[tuple[str, ...]]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._monotonic = limited_resources, monotonic
        self._known: tuple[str, ...] = ()
        self._known_until = float("-inf")

    async def warnings(self) -> tuple[str, ...]:
        if self._monotonic() >= self._known_until:
            self._known = await limit_warnings(self._ask)
            self._known_until = self._monotonic() + KEPT_S
        return self._known
