"""Reads hosts' aggregates and zones, which the Compute API changes, into the scheduler's world."""

from moorage.placement.engine import Engine

NAME = "host_aggregates"


class HostAggregates:
    """Reads them into this process's cache, on a timer.

    A change stamps its hosts, so the cache reads it with them. This round is for changes without a stamp: by an earlier
    release, or for hosts that were unknown then.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self) -> int:
        """Return the number of aggregates; the cache is changed only when they changed."""
        return await self._engine.read_aggregates()
