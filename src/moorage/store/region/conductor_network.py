"""Whether the network service takes each conductor's credentials: told by the conductor, read by whoever begins operations (S0.9)."""

from collections.abc import Sequence

import sqlalchemy as sa

from moorage.model.ids import ConductorId
from moorage.sql import Tx, upsert
from moorage.store.region.conductors import clock, conductors
from moorage.store.region.tables import region_metadata

CONDUCTORS_MAX = 1_000
WHY_CHARACTERS_MAX = 255

conductor_network = sa.Table(
    "conductor_network",
    region_metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("why", sa.String(WHY_CHARACTERS_MAX), nullable=False),
)


def tell(tx: Tx, me: ConductorId, state: str, why: str) -> None:
    """Write what I know of mine, over what I knew before."""
    row = {"id": me, "state": state, "why": why[:WHY_CHARACTERS_MAX]}
    tx.run(upsert(tx.dialect, conductor_network, row, key=("id",), change=("state", "why")))


def of_the_living(tx: Tx) -> Sequence[tuple[ConductorId, str, str | None, str | None]]:
    """(id, its host, state, why) of every conductor whose lease holds; None where it has not told yet."""
    both = conductors.outerjoin(conductor_network, conductors.c.id == conductor_network.c.id)
    rows = tx.rows(
        sa.select(conductors.c.id, conductors.c.host, conductor_network.c.state, conductor_network.c.why)
        .select_from(both)
        .where(conductors.c.alive_until > clock(tx))
        .order_by(conductors.c.id)
        .limit(CONDUCTORS_MAX)
    )
    return [(ConductorId(row[0]), row[1], row[2], row[3]) for row in rows]


def forget(tx: Tx) -> None:
    """Rows of conductors that are forgotten themselves."""
    known = sa.select(conductors.c.id)
    tx.run(conductor_network.delete().where(conductor_network.c.id.not_in(known)))
