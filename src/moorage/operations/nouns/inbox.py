"""External events come in: those of servers that have a place are kept, in one commit."""

from collections.abc import Sequence

from moorage.model.ids import ServerId
from moorage.sql import Database, Tx
from moorage.store.region import inbox
from moorage.store.region import servers as region_servers
from moorage.store.region.inbox import ExternalEvent


async def take(region: Database, events: Sequence[ExternalEvent]) -> list[bool]:
    """For each event whether it was kept; one of a server without a place (no cell yet) is not."""

    def work(tx: Tx) -> list[bool]:
        placed: dict[ServerId, bool] = {}
        for server in {each.server for each in events}:
            where = region_servers.find(tx, server)
            placed[server] = where is not None and where.cell is not None
        inbox.put(tx, [each for each in events if placed[each.server]])
        return [placed[each.server] for each in events]

    return await region.write(work)
