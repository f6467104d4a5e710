"""Tokens of consoles, stored by the SHA-256 of the token: a reader of this table cannot use them."""

from collections.abc import Sequence

import sqlalchemy as sa

from moorage.model.console import ConsoleSocket, ConsoleToken
from moorage.sql import Tx
from moorage.store.region.tables import region_metadata

console_tokens = sa.Table(
    "console_tokens",
    region_metadata,
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("server", sa.String(36), nullable=False),
    sa.Column("type", sa.String(16), nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("address", sa.String(255), nullable=False),
    sa.Column("port", sa.Integer, nullable=False),
    sa.Column("tls_port", sa.Integer),
    sa.Column("path", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("used", sa.Boolean, nullable=False),
    sa.Index("console_tokens_by_server", "server", "created_at"),
    sa.Index("console_tokens_by_expiry", "expires_at"),
)

_FIND = sa.select(console_tokens).where(console_tokens.c.hash == sa.bindparam("b_hash"))


def add(tx: Tx, new: ConsoleToken, most: int) -> None:
    """Insert it; if the server had `most` already, remove the oldest."""
    c = console_tokens.c
    older = tx.rows(
        sa.select(c.hash)
        .where(c.server == new.server)
        .order_by(c.created_at.desc(), c.hash)
        .offset(most - 1)
        .limit(most)
    )
    if older:
        tx.run(console_tokens.delete().where(c.hash.in_([row.hash for row in older])))
    tx.run(
        console_tokens.insert().values(
            hash=new.hash,
            server=new.server,
            type=new.type,
            host=new.host,
            address=new.socket.host,
            port=new.socket.port,
            tls_port=new.socket.tls_port,
            path=new.socket.path,
            created_at=new.created_at,
            expires_at=new.expires_at,
            used=False,
        )
    )


def get(tx: Tx, hash: str) -> ConsoleToken | None:
    """The token's row, also when it is used or expired."""
    row = tx.row(_FIND, {"b_hash": hash})
    if row is None:
        return None
    return ConsoleToken(
        row.hash,
        row.server,
        row.type,
        row.host,
        ConsoleSocket(row.address, row.port, row.tls_port, row.path),
        row.expires_at,
        row.created_at,
        row.used,
    )


def take(tx: Tx, hash: str, now_us: int) -> bool:
    """Consume the token. Returns False when it was consumed before, or has expired."""
    c = console_tokens.c
    good = (c.hash == hash) & ~c.used & (c.expires_at > now_us)
    return tx.row(console_tokens.update().where(good).values(used=True).returning(c.hash)) is not None


def drop(tx: Tx, hashes: Sequence[str]) -> None:
    tx.run(console_tokens.delete().where(console_tokens.c.hash.in_(hashes)))


def forget_expired(tx: Tx, now_us: int, limit: int) -> int:
    """Remove expired tokens, at most `limit`; return how many."""
    c = console_tokens.c
    old = tx.rows(sa.select(c.hash).where(c.expires_at <= now_us).limit(limit))
    if old:
        drop(tx, [row.hash for row in old])
    return len(old)


def count_expired(tx: Tx, before_us: int) -> int:
    """How many had expired by then."""
    c = console_tokens.c
    return int(tx.scalar(sa.select(sa.func.count()).where(c.expires_at <= before_us)) or 0)
