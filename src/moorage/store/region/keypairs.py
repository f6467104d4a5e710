"""Key pairs: a user's public keys, by name. A private key is shown once, when it is generated, and never stored."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from moorage.model.errors import Conflict
from moorage.model.keypair import KeyPair
from moorage.sql import Tx, alone
from moorage.store.region.tables import region_metadata

key_pairs = sa.Table(
    "key_pairs",
    region_metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("type", sa.String(8), nullable=False),
    sa.Column("public_key", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.String(255), nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
    sa.UniqueConstraint("user", "name"),
)


def add(tx: Tx, new: KeyPair, most: int) -> KeyPair | None:
    """Insert; None when the user already has `most` (-1: no limit). Raises Conflict for a taken name."""
    alone(tx, f"key pairs of {new.user}")
    refuse_taken(tx, new.user, new.name)
    if most >= 0 and count(tx, new.user) >= most:
        return None
    number = tx.scalar(
        key_pairs.insert()
        .values(
            user=new.user,
            name=new.name,
            type=new.type,
            public_key=new.public_key,
            fingerprint=new.fingerprint,
            created_at=new.created_at,
        )
        .returning(key_pairs.c.number)
    )
    return _with_number(new, number)


def refuse_taken(tx: Tx, user: str, name: str) -> None:
    """Raises Conflict for a taken name."""
    if get(tx, user, name) is not None:
        raise Conflict(f"Key pair '{name}' already exists.")


def get(tx: Tx, user: str, name: str) -> KeyPair | None:
    row = tx.row(sa.select(key_pairs).where(key_pairs.c.user == user, key_pairs.c.name == name))
    return None if row is None else _pair(row)


def of_user(tx: Tx, user: str) -> Sequence[KeyPair]:
    """All key pairs of a user, by name."""
    return [
        _pair(row) for row in tx.rows(sa.select(key_pairs).where(key_pairs.c.user == user).order_by(key_pairs.c.name))
    ]


def page(tx: Tx, user: str, after: str | None, limit: int) -> Sequence[KeyPair]:
    """A page of a user's key pairs, by name, after the given one."""
    query = sa.select(key_pairs).where(key_pairs.c.user == user).order_by(key_pairs.c.name).limit(limit)
    if after is not None:
        query = query.where(key_pairs.c.name > after)
    return [_pair(row) for row in tx.rows(query)]


def count(tx: Tx, user: str) -> int:
    return int(tx.scalar(sa.select(sa.func.count()).select_from(key_pairs).where(key_pairs.c.user == user)))


def remove(tx: Tx, user: str, name: str) -> bool:
    """Remove it; return whether there was one."""
    gone = tx.row(
        key_pairs.delete().where(key_pairs.c.user == user, key_pairs.c.name == name).returning(key_pairs.c.number)
    )
    return gone is not None


def _with_number(pair: KeyPair, number: int) -> KeyPair:
    return KeyPair(number, pair.user, pair.name, pair.type, pair.public_key, pair.fingerprint, pair.created_at)


def _pair(row: Any) -> KeyPair:
    return KeyPair(
        row.number, row.user, row.name, row.type, row.public_key, row.fingerprint, row.created_at, row.updated_at
    )
