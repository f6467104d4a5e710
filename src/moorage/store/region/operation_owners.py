"""Who executes an operation: adoption of operations without a living executor, and the operations of a conductor (RULES
§2, §9).
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache

import msgspec
import sqlalchemy as sa

from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Operation, OperationStatus
from moorage.sql import Tx
from moorage.store.region import conductors
from moorage.store.region.operations import ASLEEP, operation_from, operations
from moorage.store.region.servers import servers

ADOPTED_AT_ONCE_MAX = 500


@cache
def _orphaned(dialect: str, everything: bool) -> sa.Executable:
    c = operations.c
    knows = c.saga.in_(sa.bindparam("b_sagas", expanding=True))
    query = (
        sa.select(c.id)
        .where(c.ended_at.is_(None), c.owner.not_in([sa.bindparam("b_me"), ASLEEP]), knows)
        .order_by(c.created_at, c.id)
        .limit(sa.bindparam("b_most", type_=sa.Integer))
    )
    return query if everything else query.where(c.owner.not_in(conductors.living_ids(dialect)))


def orphaned(
    tx: Tx, me: ConductorId, knows: Collection[str], *, everything: bool = False, most: int = ADOPTED_AT_ONCE_MAX
) -> Sequence[OperationId]:
    """Open operations whose owner has no valid lease, also when the owner is unknown; the oldest first.

    What sleeps has no owner, and needs none.  Only those of sagas I know: what another release began is left to a conductor of that release (RULES §19).
    `everything`: all that are not mine, for this process holds the data directory alone.
    """
    rows = tx.rows(_orphaned(tx.dialect, everything), {"b_me": me, "b_sagas": sorted(knows), "b_most": most})
    return [OperationId(row[0]) for row in rows]


def adopt(
    tx: Tx, me: ConductorId, ids: Collection[OperationId], knows: Collection[str], *, everything: bool = False
) -> Mapping[OperationId, OperationStatus]:
    """Take over those of `ids` that are still `orphaned`: a new owner and a new epoch, so the old executor can no
    longer write.
    """
    if not ids:
        return {}
    statement = operations.update().where(
        operations.c.id.in_(ids),
        operations.c.owner.not_in([me, ASLEEP]),
        operations.c.ended_at.is_(None),
        operations.c.saga.in_(sorted(knows)),
    )
    if not everything:
        statement = statement.where(operations.c.owner.not_in(conductors.living_ids(tx.dialect)))
    taken = statement.values(owner=me, epoch=operations.c.epoch + 1).returning(operations.c.id, operations.c.status)
    return {OperationId(row[0]): OperationStatus(row[1]) for row in tx.rows(taken)}


def readopt(tx: Tx, me: ConductorId, ids: Sequence[OperationId]) -> Sequence[Operation]:
    """Give chosen operations of mine a new epoch (stuck ones that are to be tried again); those of others are left out."""
    if not ids:
        return ()
    rows = tx.rows(
        operations.update()
        .where(operations.c.id.in_(ids), operations.c.owner == me, operations.c.ended_at.is_(None))
        .values(owner=me, epoch=operations.c.epoch + 1)
        .returning(*operations.c)
    )
    return [operation_from(tx, row) for row in rows]


class Owned(msgspec.Struct, frozen=True):
    """The fields of an open operation of mine that decide when and where it is executed."""

    id: OperationId
    saga: str
    project: str
    cell: str | None


def _owned() -> sa.Executable:
    c = operations.c
    cell = servers.c.cell
    place = sa.func.row_number().over(partition_by=(c.saga, c.project, cell), order_by=(c.created_at, c.id))
    owned = (
        sa.select(c.id, c.saga, c.project, cell.label("cell"), place.label("place"))
        .select_from(operations.outerjoin(servers, servers.c.id == c.server))
        .where(c.owner == sa.bindparam("b_me"), c.ended_at.is_(None), c.after.is_(None))
        .where(c.status != OperationStatus.STUCK.value)
        .subquery()
    )
    few = owned.c.place <= sa.bindparam("b_of_each", type_=sa.Integer)
    return sa.select(owned).where(few).order_by(owned.c.place).limit(sa.bindparam("b_most", type_=sa.Integer))


_OWNED = _owned()


def owned(tx: Tx, me: ConductorId, *, of_each_max: int = 500, most: int = 5_000) -> Sequence[Owned]:
    """My open operations that may be executed and are not stuck; the cheap poll of every second.

    At most `of_each_max` of each saga, project and cell, the oldest first: a backlog of one hides no other's
    operations.
    """
    rows = tx.rows(_OWNED, {"b_me": me, "b_of_each": of_each_max, "b_most": most})
    return [Owned(OperationId(row.id), row.saga, row.project, row.cell) for row in rows]


def owned_of(tx: Tx, ids: Sequence[OperationId]) -> Sequence[Owned]:
    """The same fields of these operations, whoever owns them."""
    c = operations.c
    rows = tx.rows(
        sa.select(c.id, c.saga, c.project, servers.c.cell)
        .select_from(operations.outerjoin(servers, servers.c.id == c.server))
        .where(c.id.in_(ids))
    )
    return [Owned(OperationId(row[0]), row[1], row[2], row[3]) for row in rows]
