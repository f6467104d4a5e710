"""Takes external events: those of servers that have a cell are stored, in one commit."""

from collections.abc import Sequence

from moorage.sql import Database, label
from moorage.store.region import inbox
from moorage.store.region.inbox import ExternalEvent


async def take(region: Database, events: Sequence[ExternalEvent]) -> list[bool]:
    """Return for each event whether it was stored; an event of a server without a cell is not."""

    with label("external_event"):
        kept = await region.write(lambda tx: inbox.put_placed(tx, events))
    return [(each.server, each.name, each.tag) in kept for each in events]
