"""The scheduler's picture knows hosts by their aggregates and zones; those are the Compute API's to change."""

from moorage.placement.engine import Engine

NAME = "host_aggregates"


class HostAggregates:
    """Reads them into this process's picture, on a timer.

    A change stamps its hosts, so the picture reads it with them. This is for what did not: a change by an earlier release, or of
    hosts that nobody had heard of.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self) -> int:
        """How many aggregates there are; the picture is touched only when they changed."""
        return await self._engine.read_aggregates()
