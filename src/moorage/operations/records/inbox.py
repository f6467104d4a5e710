"""External events come in: those of servers that have a place are kept, in one commit."""

from collections.abc import Sequence

from moorage.sql import Database, label
from moorage.store.region import inbox
from moorage.store.region.inbox import ExternalEvent


async def take(region: Database, events: Sequence[ExternalEvent]) -> list[bool]:
    """For each event whether it was kept; one of a server without a place (no cell yet) is not."""

    with label("external_event"):
        kept = await region.write(lambda tx: inbox.put_placed(tx, events))
    return [(each.server, each.name, each.tag) in kept for each in events]
