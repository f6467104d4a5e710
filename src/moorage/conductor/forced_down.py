"""Hosts that an administrator forced down: the cell's record is the truth, the region's is what claims are judged by.

A request writes both before it is answered.  They differ after an upgrade, after a change by an earlier release, or when a request
failed between the two; then the region follows the cell.
"""

import logging
from collections.abc import Collection

from moorage.model.ids import CellId
from moorage.placement.engine import Engine
from moorage.sql import Database, Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.region.placement import providers
from moorage.store.region.placement.tables import stamp

logger = logging.getLogger(__name__)


async def mirror(cell: CellId, forced: Collection[str], database: Database, region: Database, engine: Engine) -> None:
    """Bring the region to what the cell says, where this process's picture says that they differ.

    The region is read first, then the cell, and written only at the version that was read: what a request wrote meanwhile stays.
    """
    suspects = engine.forced_down(cell) ^ {host for host in forced if engine.host_named(host) is not None}
    if not suspects:
        return
    seen = await region.read(lambda tx: providers.hosts_forced_down(tx, suspects))
    now = await database.read(cell_hosts.forced_down)

    def follow(tx: Tx) -> list[str]:
        return [
            host
            for host, (provider, version, noted) in sorted(seen.items())
            if noted != (host in now) and providers.force_down(tx, provider, host in now, stamp(tx), version)
        ]

    for host in await region.write(follow):
        logger.warning("host %s of cell %s is forced down or not, as its cell says: the region differed", host, cell)
    await engine.catch_up()
