"""Virtual functions: which one each port has.

The number of taken functions is counted like any resource, in `inventories` and `allocations`. A row here names the
function, and counts only while its consumer has allocations of that interface: releasing the allocation, in any way,
also releases the function, without a statement here. The claim locks the counter's row before it picks, so two claims
never pick the same one.
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
"""The maximum for one interface, by the PCI standard."""

_OF_PROVIDER = sa.select(*functions.c).where(functions.c.provider == sa.bindparam("b_provider")).limit(FUNCTIONS_MAX)
_FACTS = ("number", "vendor_id", "product_id", "physical_network", "pf_mac", "card_serial_number")


def _of(row: sa.Row[Any]) -> VirtualFunction:
    return VirtualFunction(row.address, *(getattr(row, name) for name in _FACTS))


def put(tx: Tx, provider: ProviderId, reported: Sequence[VirtualFunction]) -> None:
    """Write the functions of the interface; nothing is written when nothing differs, and a port that has one keeps it."""
    f = functions.c
    rows = tx.rows(_OF_PROVIDER, {"b_provider": provider})
    known = {row.address: _of(row) for row in rows}
    wanted = {each.address: each for each in reported[:FUNCTIONS_MAX]}
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
    """Pick the first free function for the port, after the consumer's allocation was written. None: there is none."""
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
    """Release the consumer's functions, or one port's, by any of its ids; return the provider of the released one, if
    any.
    """
    f = functions.c
    mine = sa.update(functions).where(f.consumer == consumer)
    if port is not None:
        mine = mine.where(f.port.in_(sorted(port)))
    rows = tx.rows(mine.values(consumer=None, port=None).returning(f.provider))
    return ProviderId(rows[0].provider) if rows else None


def rename(tx: Tx, old: str, new: str) -> None:
    """Move functions from one consumer to another, together with their allocations."""
    tx.run(sa.update(functions).where(functions.c.consumer == old).values(consumer=new))


def held(tx: Tx) -> dict[tuple[ProviderId, str], tuple[str, str]]:
    """(provider, address) → (consumer, port) of every function in use."""
    f = functions.c
    rows = tx.rows(sa.select(f.provider, f.address, f.consumer, f.port).where(_held(f)))
    return {(row.provider, row.address): (row.consumer, row.port) for row in rows}
