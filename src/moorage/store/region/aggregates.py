"""Host aggregates: there are few, they are small and often read, so a row has its hosts and its metadata."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.aggregate import Aggregate
from moorage.model.errors import Conflict, NotFound
from moorage.sql import Tx, alone
from moorage.store.region.tables import region_metadata

AGGREGATES_MAX = 10_000

aggregates = sa.Table(
    "aggregates",
    region_metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(36), nullable=False, unique=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("metadata", sa.Text, nullable=False),
    sa.Column("hosts", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
)

_EVERY = sa.select(aggregates).order_by(aggregates.c.number).limit(AGGREGATES_MAX)
_encode = msgspec.json.Encoder().encode
_metadata = msgspec.json.Decoder(dict[str, str])
_hosts = msgspec.json.Decoder(tuple[str, ...])


def add(tx: Tx, new: Aggregate) -> Aggregate:
    """Insert; the number is assigned here. Raises Conflict for a taken name."""
    alone(tx, "aggregates")
    _refuse_taken(tx, new.name, None)
    number = tx.scalar(
        aggregates.insert().values(_values(new) | {"created_at": new.created_at}).returning(aggregates.c.number)
    )
    return msgspec.structs.replace(new, number=number)


def every(tx: Tx) -> Sequence[Aggregate]:
    """All aggregates, oldest first (at most 10,000)."""
    return [_aggregate(row) for row in tx.rows(_EVERY)]


def for_placement(tx: Tx) -> Sequence[tuple[str, dict[str, str], tuple[str, ...]]]:
    """(name, metadata, hosts) of all aggregates: the part that scheduling depends on."""
    return [(each.name, each.metadata, each.hosts) for each in every(tx)]


def get(tx: Tx, number: int, *, to_change: bool = False) -> Aggregate:
    """One aggregate; `to_change` locks all aggregates until this transaction ends. Raises NotFound."""
    if to_change:
        alone(tx, "aggregates")
    row = tx.row(sa.select(aggregates).where(aggregates.c.number == number))
    if row is None:
        raise NotFound(f"Aggregate {number} could not be found.")
    return _aggregate(row)


def save(tx: Tx, changed: Aggregate) -> None:
    """Replace the row. Raises Conflict for a taken name."""
    _refuse_taken(tx, changed.name, changed.number)
    tx.run(
        aggregates.update()
        .where(aggregates.c.number == changed.number)
        .values(_values(changed) | {"updated_at": changed.updated_at})
    )


def remove(tx: Tx, number: int) -> None:
    tx.run(aggregates.delete().where(aggregates.c.number == number))


def zones(tx: Tx) -> dict[str, str]:
    """Host → the zone of its aggregates, for hosts that have one."""
    return {host: each.zone for each in every(tx) if each.zone for host in each.hosts}


def _refuse_taken(tx: Tx, name: str, by: int | None) -> None:
    number = tx.scalar(sa.select(aggregates.c.number).where(aggregates.c.name == name))
    if number is not None and number != by:
        raise Conflict(f"Aggregate {name} already exists.")


def _values(aggregate: Aggregate) -> dict[str, Any]:
    return {
        "id": aggregate.id,
        "name": aggregate.name,
        "metadata": _encode(aggregate.metadata).decode(),
        "hosts": _encode(aggregate.hosts).decode(),
    }


def _aggregate(row: Any) -> Aggregate:
    return Aggregate(
        number=row.number,
        id=row.id,
        name=row.name,
        metadata=_metadata.decode(row.metadata),
        hosts=_hosts.decode(row.hosts),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
