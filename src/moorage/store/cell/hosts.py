"""The hosts of a cell.  What a host reports is written by its cell's conductor; what an operator says, by the front desk."""

import uuid
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.host import Host
from moorage.sql import Tx, upsert
from moorage.store.cell.tables import cell_metadata

hosts = sa.Table(
    "hosts",
    cell_metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(36), nullable=False, unique=True),
    sa.Column("service", sa.String(36), nullable=False, unique=True),
    sa.Column("host", sa.String(255), nullable=False, unique=True),
    sa.Column("node", sa.String(255), nullable=False),
    sa.Column("seen_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("disabled_reason", sa.String(255)),
    sa.Column("forced_down", sa.Boolean, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
)

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Host)


def report(tx: Tx, told: Host, now: int) -> Host:
    """Write what a host said of itself; numbers, and what operators said, stay."""
    row = {
        "id": told.id,
        "service": str(uuid.uuid4()),
        "host": told.host,
        "node": told.node,
        "seen_at": now,
        "created_at": now,
        "updated_at": now,
        "disabled": False,
        "disabled_reason": None,
        "forced_down": False,
        "doc": _encode(told).decode(),
    }
    statement = upsert(tx.dialect, hosts, row, key=("host",), change=("id", "node", "seen_at", "updated_at", "doc"))
    return _host(tx.row(statement.returning(*hosts.c)))


def heard(tx: Tx, names: Collection[str], now: int) -> None:
    """They gave a sign of life; written for many at once."""
    if names:
        tx.run(hosts.update().where(hosts.c.host.in_(names)).values(seen_at=now))


def listed(tx: Tx) -> Sequence[Host]:
    """All hosts of the cell, by name."""
    return [_host(row) for row in tx.rows(sa.select(hosts).order_by(hosts.c.host))]


def forced_down(tx: Tx) -> set[str]:
    """Whom operators said to be down; asked all the time, so no record is read for it."""
    return {row.host for row in tx.rows(sa.select(hosts.c.host).where(hosts.c.forced_down))}


_NAMED = sa.select(hosts).where(hosts.c.host == sa.bindparam("b_host"))


def named(tx: Tx, host: str) -> Host | None:
    row = tx.row(_NAMED, {"b_host": host})
    return None if row is None else _host(row)


def by_service(tx: Tx, service: str) -> Host | None:
    """By the service's UUID."""
    row = tx.row(sa.select(hosts).where(hosts.c.service == service))
    return None if row is None else _host(row)


def set_disabled(tx: Tx, host: str, disabled: bool, reason: str | None, now: int) -> Host | None:
    row = tx.row(
        hosts.update()
        .where(hosts.c.host == host)
        .values(disabled=disabled, disabled_reason=reason, updated_at=now)
        .returning(*hosts.c)
    )
    return None if row is None else _host(row)


def set_forced_down(tx: Tx, host: str, forced: bool, now: int) -> Host | None:
    row = tx.row(
        hosts.update().where(hosts.c.host == host).values(forced_down=forced, updated_at=now).returning(*hosts.c)
    )
    return None if row is None else _host(row)


def remove(tx: Tx, host: str) -> bool:
    return tx.row(hosts.delete().where(hosts.c.host == host).returning(hosts.c.number)) is not None


def _host(row: Any) -> Host:
    return msgspec.structs.replace(
        _decoder.decode(row.doc),
        number=row.number,
        id=row.id,
        service=row.service,
        seen_at=row.seen_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        disabled=row.disabled,
        disabled_reason=row.disabled_reason,
        forced_down=row.forced_down,
    )
