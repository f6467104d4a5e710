"""Recounts counters from their allocations, and finds providers that have given classes; only for repairs."""

from collections.abc import Collection

import sqlalchemy as sa

from moorage.model.ids import ProviderId
from moorage.model.verdict import InventoryState
from moorage.sql import Tx
from moorage.store.region.placement.claim_statements import Key
from moorage.store.region.placement.tables import Stamp, allocations, inventories, provider_traits

_I, _A, _T = inventories.c, allocations.c, provider_traits.c


def used(tx: Tx, key: Key, at: Stamp) -> InventoryState | None:
    """Set a counter to the sum of its allocations. Returns None when there is no such inventory.

    The row is locked first, in a statement of its own: a claim that held it has committed by then, and the statement
    that sums sees it. SQLite has one writer at a time.
    """
    mine = (_I.provider == key[0]) & (_I["class"] == key[1])
    tx.row(sa.select(_I.provider).where(mine).with_for_update())
    held = (
        sa.select(sa.func.coalesce(sa.func.sum(_A.used), 0))
        .where(_A.provider == key[0], _A["class"] == key[1])
        .scalar_subquery()
    )
    row = tx.row(
        sa.update(inventories)
        .where(mine)
        .values(used=sa.cast(held, sa.BigInteger), changed=at.changed, version=at.version)
        .returning(_I.used, _I.cap, _I.version)
    )
    return None if row is None else InventoryState(*key, 0, row.used, row.cap, row.version)


def with_traits(tx: Tx, providers: Collection[ProviderId], required: Collection[str]) -> list[ProviderId]:
    """Those of these providers that have each of these traits."""
    if not required:
        return sorted(providers)
    query = (
        sa.select(_T.provider)
        .where(_T.provider.in_(sorted(providers)), _T.trait.in_(sorted(required)))
        .group_by(_T.provider)
        .having(sa.func.count() == len(set(required)))
        .order_by(_T.provider)
    )
    return [ProviderId(row.provider) for row in tx.rows(query)]


def offering(tx: Tx, providers: Collection[ProviderId], resources: Collection[str]) -> list[ProviderId]:
    """Those of these providers that have an inventory of each of these classes."""
    if not resources:
        return sorted(providers)
    query = (
        sa.select(_I.provider)
        .where(_I.provider.in_(sorted(providers)), _I["class"].in_(sorted(resources)))
        .group_by(_I.provider)
        .having(sa.func.count() == len(set(resources)))
        .order_by(_I.provider)
    )
    return [ProviderId(row.provider) for row in tx.rows(query)]
