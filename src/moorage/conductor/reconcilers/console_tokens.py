"""Removes expired console tokens."""

from moorage.model.clock import Clock
from moorage.sql import Database, label
from moorage.store.region import console_tokens

ROWS_AT_ONCE = 1_000
BATCHES_MAX = 100


class ConsoleTokens:
    """One round removes all expired ones, in transactions of bounded size."""

    def __init__(self, region: Database, clock: Clock) -> None:
        self._region = region
        self._clock = clock

    async def run(self) -> int:
        """Return how many were removed."""
        now, went = int(self._clock.now() * 1_000_000), 0
        for _ in range(BATCHES_MAX):
            with label("consoles"):
                batch = await self._region.write(lambda tx: console_tokens.forget_expired(tx, now, ROWS_AT_ONCE))
            went += batch
            if batch < ROWS_AT_ONCE:
                break
        return went
