"""The scheduler's picture knows hosts by their aggregates and zones; those are the Compute API's to change."""

from moorage.placement.engine import Engine
from moorage.sql import Database
from moorage.store.region import aggregates

NAME = "host_aggregates"


class HostAggregates:
    """Carries them into this process's picture; run on a timer, and at once where the change was made."""

    def __init__(self, region: Database, engine: Engine) -> None:
        self._region = region
        self._engine = engine
        self._drawn: object = None

    async def run(self) -> int:
        """How many aggregates there are; the picture is touched only when they changed."""
        found = await self._region.read(aggregates.every)
        drawn = [(each.name, each.metadata, each.hosts) for each in found]
        if drawn != self._drawn:
            self._engine.set_host_aggregates(drawn)
            self._drawn = drawn
        return len(found)
