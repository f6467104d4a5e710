"""The notifications of a proof, as a consumer would interpret them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from moorage.model.notification import Notification

PARTS_OF_A_MOVE = frozenset(
    {
        "resize_prep.end",
        "resize.end",
        "live_migration_pre.end",
        "live_migration_rollback.end",
        "live_migration_rollback_dest.end",
        "live_migration_abort.end",
    }
)
"""Ends of what may have been done though the move failed later."""


def notification_faults(notifications: Sequence[Notification]) -> dict[str, Any]:
    """What a consumer would conclude: whether the server was created or deleted, and which events are duplicated or have no end."""
    ids = Counter(each.id for each in notifications)
    events = Counter(each.event for each in notifications)
    begun = {each.id for each in notifications if each.event == "create.start"}
    ended = [
        each.id.replace("create.error", "create.end") for each in notifications if each.event.startswith("create.e")
    ]
    return {
        "done": sorted(
            (event, times) for event, times in events.items() if event.endswith(".end") and event not in PARTS_OF_A_MOVE
        ),
        "twice": sorted(each for each, times in ids.items() if times > 1),
        "open": sorted(begun ^ {each.replace("create.end", "create.start") for each in ended}),
        "ended twice": sorted(each for each, times in Counter(ended).items() if times > 1),
    }
