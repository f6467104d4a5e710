"""Each conductor's report about its services: whether the network service accepts its credentials (S0.9), and its open
circuits (N19). Read by processes that begin operations or show it to operators.
"""

from collections.abc import Sequence
from functools import cache

import sqlalchemy as sa

from moorage.model.ids import ConductorId
from moorage.sql import Tx, upsert
from moorage.store.region.conductors import clock_of, conductors
from moorage.store.region.tables import region_metadata

CONDUCTORS_MAX = 1_000
WHY_CHARACTERS_MAX = 255

conductor_network = sa.Table(
    "conductor_network",
    region_metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("why", sa.String(WHY_CHARACTERS_MAX), nullable=False),
    sa.Column("circuits", sa.Text, nullable=False, server_default="[]"),
)


def report(tx: Tx, me: ConductorId, state: str, why: str) -> None:
    """Write my credentials' state, in place of the earlier one."""
    row = {"id": me, "state": state, "why": why[:WHY_CHARACTERS_MAX]}
    tx.run(upsert(tx.dialect, conductor_network, row, key=("id",), change=("state", "why")))


def report_circuits(tx: Tx, me: ConductorId, circuits: str) -> None:
    """Write my open circuits (JSON). Writes nothing before my first `report`."""
    tx.run(conductor_network.update().where(conductor_network.c.id == me).values(circuits=circuits))


@cache
def _of_the_living(dialect: str) -> sa.Executable:
    both = conductors.outerjoin(conductor_network, conductors.c.id == conductor_network.c.id)
    return (
        sa.select(
            conductors.c.id,
            conductors.c.host,
            conductor_network.c.state,
            conductor_network.c.why,
            conductor_network.c.circuits,
        )
        .select_from(both)
        .where(conductors.c.alive_until > clock_of(dialect))
        .order_by(conductors.c.id)
        .limit(CONDUCTORS_MAX)
    )


def of_the_living(tx: Tx) -> Sequence[tuple[ConductorId, str, str | None, str | None, str]]:
    """(id, its host, state, why, circuits) of every conductor whose lease is valid; None where it has not reported yet."""
    rows = tx.rows(_of_the_living(tx.dialect))
    return [(ConductorId(row[0]), row[1], row[2], row[3], row[4] or "[]") for row in rows]


def forget(tx: Tx) -> None:
    """Remove the rows of conductors that no longer exist."""
    known = sa.select(conductors.c.id)
    tx.run(conductor_network.delete().where(conductor_network.c.id.not_in(known)))
