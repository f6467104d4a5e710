"""Virtual functions: exactly which one a port has.

How many are taken is counted like everything else, in `inventories` and `allocations`.  A row here says which one, and counts
only while its consumer holds functions of that interface: whoever gives back an allocation, by whatever way, has given back the
function, with no statement here.  The counter's row is locked by the claim before it picks, so two claims never pick one.
"""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from moorage.model.ids import ProviderId
from moorage.model.request_groups import SRIOV_NET_VF, VirtualFunction
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.placement.tables import allocations, functions

FUNCTIONS_MAX = 256
"""Of one interface, as PCI allows."""

_OF_PROVIDER = sa.select(*functions.c).where(functions.c.provider == sa.bindparam("b_provider")).limit(FUNCTIONS_MAX)
_FACTS = ("number", "vendor_id", "product_id", "physical_network", "pf_mac", "card_serial_number")


def _of(row: sa.Row[Any]) -> VirtualFunction:
    return VirtualFunction(row.address, *(getattr(row, name) for name in _FACTS))


def put(tx: Tx, provider: ProviderId, there: Sequence[VirtualFunction]) -> None:
    """What the interface has; nothing is written when nothing differs, and who has one keeps it."""
    f = functions.c
    rows = tx.rows(_OF_PROVIDER, {"b_provider": provider})
    known = {row.address: _of(row) for row in rows}
    wanted = {each.address: each for each in there[:FUNCTIONS_MAX]}
    for each in wanted.values():
        if known.get(each.address) != each:
            facts = {name: getattr(each, name) for name in _FACTS}
            statement = insert(tx.dialect, functions).values(provider=provider, address=each.address, **facts)
            tx.run(statement.on_conflict_do_update(index_elements=["provider", "address"], set_=facts))
    if gone := known.keys() - wanted.keys():
        tx.run(sa.delete(functions).where(f.provider == provider, f.address.in_(sorted(gone))))


def _held(f: Any) -> sa.Exists:
    a = allocations.c
    return sa.exists().where(a.consumer == f.consumer, a.provider == f.provider, a["class"] == SRIOV_NET_VF)


def pick(tx: Tx, consumer: str, provider: ProviderId, port: str) -> VirtualFunction | None:
    """The first one that nobody has, for the port; after the consumer's allocation was written. None: there is none."""
    other = functions.alias("other")
    free = (
        sa.select(other.c.address)
        .where(other.c.provider == provider, other.c.consumer.is_(None) | ~_held(other.c))
        .order_by(other.c.number)
        .limit(1)
        .scalar_subquery()
    )
    f = functions.c
    row = tx.row(
        sa.update(functions)
        .where(f.provider == provider, f.address == free)
        .values(consumer=consumer, port=port)
        .returning(*f)
    )
    return None if row is None else _of(row)


def release(tx: Tx, consumer: str, port: Collection[str] | None = None) -> ProviderId | None:
    """The consumer's, or one port's, by all that it was known by; the answer is whose it was, if there was one."""
    f = functions.c
    mine = sa.update(functions).where(f.consumer == consumer)
    if port is not None:
        mine = mine.where(f.port.in_(sorted(port)))
    rows = tx.rows(mine.values(consumer=None, port=None).returning(f.provider))
    return ProviderId(rows[0].provider) if rows else None


def rename(tx: Tx, old: str, new: str) -> None:
    """Those of one consumer become another's, with the allocations they go by."""
    tx.run(sa.update(functions).where(functions.c.consumer == old).values(consumer=new))


def held(tx: Tx) -> dict[tuple[ProviderId, str], tuple[str, str]]:
    """(provider, address) → (consumer, port) of every function that somebody has."""
    f = functions.c
    rows = tx.rows(sa.select(f.provider, f.address, f.consumer, f.port).where(_held(f)))
    return {(row.provider, row.address): (row.consumer, row.port) for row in rows}
