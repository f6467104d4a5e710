"""Faults of stores that went back, reintroduced as those of `reintroduced_faults.py`, which has the register."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from moorage.conductor import guest_reconciliation, operation_runner
from moorage.conductor.reconcilers.orphan_images import OrphanImages
from moorage.model.live_migration import OVER_AT_SOURCE, LiveNow
from moorage.operations.steps import live_migration, live_positions
from moorage.operations.steps import servers as records
from tests.helpers.reintroduced_faults import regression


@regression("a_database_fails_over")
def an_older_record_judges_guests() -> Iterator[None]:
    """A record whose last operation is older than the region's is believed."""
    with patch.object(guest_reconciliation, "_doubt", lambda *_: None):
        yield


@regression("a_database_fails_over")
def an_older_record_deletes_images() -> Iterator[None]:
    """It counts as proof that nobody needs a shelved disk's image."""
    strays = OrphanImages._strays

    async def judged(self: OrphanImages, server: Any, images: Any) -> Any:
        with patch.object(
            records.LocatedServer, "judges_nothing", property(lambda found: found.missing_in is not None)
        ):
            return await strays(self, server, images)

    with patch.object(OrphanImages, "_strays", judged):
        yield


@regression("a_database_fails_over")
def an_older_journal_destroys_the_only_guest() -> Iterator[None]:
    """What a source does not know counts as proof that the guest is there, and the undo destroys the one at the destination."""

    async def nothing_runs_there(*_: Any) -> bool:
        return False

    async def goes_on(*_: Any) -> bool:
        return False

    async def stays(_run: Any, _way: Any, now: LiveNow) -> bool:
        return now.state in OVER_AT_SOURCE

    with (
        patch.object(live_migration, "stays_for_certain", stays),
        patch.object(live_positions, "may_run_at_destination", nothing_runs_there),
        patch.object(operation_runner, "compare", goes_on),
    ):
        yield
