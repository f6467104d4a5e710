"""The names of the keys that encrypt users' secrets, so that no process starts with a key that the others do not have."""

import sqlalchemy as sa

from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.tables import region_metadata

region_keys = sa.Table(
    "region_keys",
    region_metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.String(16), nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
)


USED_MAX = 1_000


def used(tx: Tx) -> tuple[str, ...]:
    """The names of all keys that were ever used to encrypt, the newest first."""
    rows = tx.rows(sa.select(region_keys.c.key).order_by(region_keys.c.number.desc()).limit(USED_MAX))
    return tuple(row.key for row in rows)


def begin(tx: Tx, key: str, after: int, now_us: int) -> bool:
    """Make this key the encrypting one, as number `after` + 1. Returns False when another key became it meanwhile."""
    new = insert(tx.dialect, region_keys).values(number=after + 1, key=key, at=now_us)
    return tx.row(new.on_conflict_do_nothing().returning(region_keys.c.number)) is not None
