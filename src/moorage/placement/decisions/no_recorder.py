"""Where decisions are not recorded: a Placement service, tests, and a region whose operator switched it off."""

from moorage.model.decision_log import Place, Subject
from moorage.model.verdict import Verdict
from moorage.model.world import Ask
from moorage.placement.cache.cache import ProviderCache


class NoRecorder:
    """Has what `DecisionRecorder` has, and does nothing."""

    stored = lost = 0

    def decided(self, picture: ProviderCache, ask: Ask, verdict: Verdict, subject: Subject) -> str:
        return ""

    def taken(self, consumer: str, place: Place) -> None:
        """Nothing."""

    def released(self, consumer: str, *, addresses_stay: bool = False) -> None:
        """Nothing."""

    def reverted(self, consumer: str, migration: str) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""
