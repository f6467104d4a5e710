"""Pages of a cell's rows for an audit: records, open migrations and fences, in the order of their servers' ids."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from moorage.model.ids import ServerId
from moorage.model.migration import Migration
from moorage.model.server import Server
from moorage.sql import Tx
from moorage.store.cell.migrations import migrations
from moorage.store.cell.servers import fences, servers
from moorage.store.servers import record_columns, server_of

IDS_PER_STATEMENT = 500
_S, _M = servers.c, migrations.c
_AFTER, _LIMIT = sa.bindparam("b_after", type_=sa.Text), sa.bindparam("b_limit", type_=sa.Integer)
_IDS: sa.BindParameter[str] = sa.bindparam("b_ids", expanding=True)
_LIVING = sa.select(*record_columns(servers), _S.hidden).where(_S.deleted_at.is_(None))
_GONE = sa.select(_S.id, _S.deleted_at).where(_S.deleted_at.is_not(None))
_PAGE = _LIVING.where(_S.id > _AFTER).order_by(_S.id).limit(_LIMIT)
_AMONG = _LIVING.where(_S.id.in_(_IDS))
_GONE_PAGE = _GONE.where(_S.id > _AFTER).order_by(_S.id).limit(_LIMIT)
_GONE_AMONG = _GONE.where(_S.id.in_(_IDS))
_OPEN = sa.select(_M.number, _M.doc).where(_M.is_open, _M.server.in_(_IDS))
_decode = msgspec.json.Decoder(Migration).decode


class Living(NamedTuple):
    """A record that is not deleted."""

    server: Server
    sealed: bool


def living(tx: Tx, after: str, limit: int) -> list[Living]:
    """A page of records that are not deleted, on a host or not."""
    return [_living(row) for row in tx.rows(_PAGE, {"b_after": after, "b_limit": limit})]


def living_among(tx: Tx, ids: Collection[str]) -> list[Living]:
    return [_living(row) for part in _parts(ids) for row in tx.rows(_AMONG, {"b_ids": part})]


def _living(row: Any) -> Living:
    return Living(server_of(row), bool(row.hidden))


def gone(tx: Tx, after: str, limit: int) -> list[tuple[ServerId, int]]:
    """A page of deleted records: id, and the time of the deletion."""
    return [(ServerId(row[0]), row[1]) for row in tx.rows(_GONE_PAGE, {"b_after": after, "b_limit": limit})]


def gone_among(tx: Tx, ids: Collection[str]) -> list[tuple[ServerId, int]]:
    return [(ServerId(row[0]), row[1]) for part in _parts(ids) for row in tx.rows(_GONE_AMONG, {"b_ids": part})]


def open_moves(tx: Tx, ids: Collection[str]) -> list[Migration]:
    """The open migrations of these servers."""
    rows = [row for part in _parts(ids) for row in tx.rows(_OPEN, {"b_ids": part})]
    return [msgspec.structs.replace(_decode(row.doc), number=row.number) for row in rows]


def moved_since(tx: Tx, since_us: int, limit: int) -> frozenset[ServerId]:
    """Servers with a migration that ended since then: a bounded number, the newest ones."""
    query = sa.select(_M.server).where(_M.updated_at >= since_us, sa.not_(_M.is_open))
    return frozenset(ServerId(row.server) for row in tx.rows(query.order_by(_M.number.desc()).limit(limit)))


def fenced(tx: Tx, after: str, limit: int) -> Sequence[ServerId]:
    """A page of servers that left a fence here."""
    query = sa.select(fences.c.server).where(fences.c.server > after).order_by(fences.c.server).limit(limit)
    return [ServerId(row.server) for row in tx.rows(query)]


def _parts(ids: Collection[str]) -> list[list[str]]:
    every = sorted(ids)
    return [every[at : at + IDS_PER_STATEMENT] for at in range(0, len(every), IDS_PER_STATEMENT)]
