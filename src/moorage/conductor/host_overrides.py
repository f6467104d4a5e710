"""Hosts that an administrator disabled or forced down: the cell's record is authoritative, and claims are checked
against the region's.

A request writes both before it is answered. They differ after an upgrade, after a change by an earlier release, or when
a request failed, or its process died, between the writes; then the region follows the cell.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from moorage.model.ids import CellId, HostId
from moorage.placement import inventory
from moorage.placement.engine import Engine
from moorage.sql import Database, Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.region.placement import provider_statements
from moorage.store.region.placement.tables import stamp

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Override:
    """One kind of override: where it is in this process's world, in the cell and in the region."""

    name: str
    drawn: Callable[[Engine, CellId], set[str]]
    hosts_of: Callable[[cell_hosts.HostOverrides], frozenset[str]]
    noted: Callable[[Tx, Collection[str]], dict[str, tuple[HostId, int, bool]]]
    note: Callable[[Tx, HostId, bool, int], bool]
    """False: the host no longer has this version."""


_WORDS = (
    _Override(
        "forced down",
        lambda engine, cell: engine.forced_down(cell),
        lambda overrides: overrides.forced_down,
        provider_statements.hosts_forced_down,
        lambda tx, host, forced, version: provider_statements.force_down(tx, host, forced, stamp(tx), version),
    ),
    _Override(
        "disabled",
        lambda engine, cell: engine.picture.disabled(cell),
        lambda overrides: overrides.disabled,
        provider_statements.hosts_disabled,
        lambda tx, host, disabled, version: inventory.set_enabled(tx, host, not disabled, version),
    ),
)


async def mirror(
    cell: CellId, overrides: cell_hosts.HostOverrides, database: Database, region: Database, engine: Engine
) -> None:
    """Copy the cell's state to the region, where this process's world shows that they differ."""
    wrote = [await _mirror(cell, each, overrides, database, region, engine) for each in _WORDS]
    if any(wrote):
        await engine.catch_up()


async def _mirror(
    cell: CellId,
    word: _Override,
    overrides: cell_hosts.HostOverrides,
    database: Database,
    region: Database,
    engine: Engine,
) -> bool:
    """The region is read first, then the cell, and the region is written only at the version that was read: a later
    request's write stays.
    """
    suspects = word.drawn(engine, cell) ^ {
        host for host in word.hosts_of(overrides) if engine.host_named(host) is not None
    }
    if not suspects:
        return False
    rows = await region.read(lambda tx: word.noted(tx, suspects))
    now = word.hosts_of(await database.read(cell_hosts.host_overrides))

    def follow(tx: Tx) -> list[str]:
        return [
            host
            for host, (provider, version, noted) in sorted(rows.items())
            if noted != (host in now) and word.note(tx, provider, host in now, version)
        ]

    for host in await region.write(follow):
        logger.warning(
            "host %s of cell %s: %s was copied from the cell to the region, which differed", host, cell, word.name
        )
    return True
