"""What operators do with hosts: disable and enable, force down, delete.

A host's row is in its cell; the trait that keeps new servers away is in the region's placement. No transaction spans
both, so the cell is written first; repeating the call completes a call that failed in between.
"""

from collections.abc import Mapping
from typing import Any

from moorage.model.errors import Conflict, NotFound, Unavailable
from moorage.model.host import Host
from moorage.operations.evacuate.finished_evacuations import complete, completed_where_shown, left_at
from moorage.operations.records.aggregates import take_out
from moorage.placement import claims, inventory
from moorage.sql import Database, Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers
from moorage.store.region import aggregates
from moorage.store.region.placement import provider_statements
from moorage.store.region.placement.tables import stamp


def _gone(host: str) -> NotFound:
    return NotFound(f"Could not find binary nova-compute on host {host}.")


def _in_use() -> Conflict:
    return Conflict(
        "Unable to delete compute service that has in-progress migrations. Complete the migrations or delete the "
        "instances first."
    )


async def set_disabled(
    region: Database, cell: Database, host: Host, now: int, *, disabled: bool, reason: str | None
) -> Host:
    """Disable or enable a host. Raises NotFound."""
    changed = await cell.write(lambda tx: cell_hosts.set_disabled(tx, host.host, disabled, reason, now))
    if changed is None:
        raise _gone(host.host)
    await region.write(lambda tx: inventory.set_enabled(tx, host.id, not disabled))
    return changed


async def set_forced_down(
    region: Database, cell: Database, host: Host, now: int, *, forced: bool, by: str | None = None
) -> Host:
    """Mark the host as down, or undo that. The region is written before this answers: no claim that commits later takes
    the host.

    The operator's name is stored: for evacuations this is the operator's word that the host is fenced (RULES §11).
    Raises NotFound.
    """
    changed = await cell.write(lambda tx: cell_hosts.set_forced_down(tx, host.host, forced, now, by))
    if changed is None:
        raise _gone(host.host)
    await region.write(lambda tx: provider_statements.force_down(tx, host.id, forced, stamp(tx)))
    return changed


async def delete(region: Database, cells: Mapping[Any, Database], cell: Database, host: Host, now: int) -> None:
    """Remove a host from its aggregates, placement and cell. Raises Conflict while servers are on it.

    The host does not return, so evacuations away from it are ended, also those into other cells. Raises Unavailable
    when such a cell does not answer.
    """
    if await cell.read(lambda tx: cell_servers.on_host(tx, host.host)):
        raise Conflict(
            "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."
        )

    left, _ = await left_at(host.host, cell, region, cells)
    over = frozenset(each.uuid for each in left)

    def held_by_others(tx: Tx) -> bool:
        holders = provider_statements.consumers_at(tx, provider_statements.tree_of(tx, host.id), len(over) + 1)
        return any(consumer not in over for consumer, _ in holders)

    if await region.read(held_by_others):  # checked before evacuations are ended: the host may stay, and return
        raise _in_use()
    if len(await completed_where_shown(left, now, cell, region, cells)) < len(left):
        raise Unavailable(f"The cell of a server that was evacuated from {host.host} is out; try again later.")

    def leave(tx: Tx) -> None:
        for move in left:
            claims.release(tx, move.uuid)
        tree = provider_statements.tree_of(tx, host.id)
        if any(provider_statements.in_use(tx, each) for each in tree):
            raise _in_use()
        for each in aggregates.every(tx):
            if host.host in each.hosts:
                take_out(tx, each.number, host.host, now)
        if tree:
            provider_statements.delete_all(tx, tree, stamp(tx))

    def forget(tx: Tx) -> None:
        complete(tx, left, now)
        cell_hosts.remove(tx, host.host)

    await region.write(leave)
    await cell.write(forget)
