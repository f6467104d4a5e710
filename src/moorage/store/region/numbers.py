"""The region's numbers of servers, which are compared with those of cells and hosts (`store/doubts.py`)."""

from collections.abc import Collection, Mapping

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, ServerId
from moorage.sql import Tx
from moorage.store.region import turn_resets
from moorage.store.region.servers import servers

IDS_PER_STATEMENT = 500


class ServerNumbers(msgspec.Struct, frozen=True):
    """The numbers of one server."""

    cell: CellId | None
    op_seq: int
    recorded_seq: int
    deleted: bool
    held: bool
    """Whether an operation holds it."""


_C = servers.c
_SELECT = sa.select(
    _C.id,
    _C.cell,
    _C.op_seq,
    _C.recorded_seq,
    _C.deleted_at.is_not(None).label("deleted"),
    _C.operation.is_not(None).label("held"),
)
_OF = _SELECT.where(_C.id.in_(sa.bindparam("b_ids", expanding=True)))
_SHOWN = (
    servers.update()
    .where(
        _C.id == sa.bindparam("b_id"),
        _C.recorded_seq < sa.bindparam("b_seq", type_=sa.BigInteger),
        _C.op_seq >= sa.bindparam("b_seq", type_=sa.BigInteger),
    )
    .values(recorded_seq=sa.bindparam("b_seq", type_=sa.BigInteger))
)
_OVERTAKEN = (
    servers.update()
    .where(
        _C.id == sa.bindparam("b_id"),
        _C.op_seq < sa.bindparam("b_seq", type_=sa.BigInteger),
        ~turn_resets.taken_back(_C.id, sa.bindparam("b_seq", type_=sa.BigInteger)),
    )
    .values(op_seq=sa.bindparam("b_seq", type_=sa.BigInteger), recorded_seq=sa.bindparam("b_seq", type_=sa.BigInteger))
)


def of(tx: Tx, ids: Collection[ServerId]) -> dict[ServerId, ServerNumbers]:
    """Those of these servers that the region knows."""
    ordered, known = sorted(ids), dict[ServerId, ServerNumbers]()
    for first in range(0, len(ordered), IDS_PER_STATEMENT):
        known |= _numbers(tx.rows(_OF, {"b_ids": ordered[first : first + IDS_PER_STATEMENT]}))
    return known


def recorded_in(
    tx: Tx, cell: CellId, after: str = "", limit: int = IDS_PER_STATEMENT, project: str | None = None
) -> dict[ServerId, ServerNumbers]:
    """A page of the servers whose record this cell must have, in the order of their ids; of one project, or of all."""
    query = _SELECT.where(_C.cell == cell, _C.doc.is_(None), _C.deleted_at.is_(None), _C.id > after)
    if project is not None:
        query = query.where(_C.project == project)
    return _numbers(tx.rows(query.order_by(_C.id).limit(limit)))


def shown(tx: Tx, seqs: Mapping[ServerId, int]) -> None:
    """Their cell has shown records of these operations: an older record is doubtful from now on.

    The end of an operation says so by itself; this is for operations of earlier releases, and for those that were undone.
    """
    for server, seq in sorted(seqs.items()):
        tx.run(_SHOWN, {"b_id": server, "b_seq": seq})


def overtaken(tx: Tx, turns: Mapping[ServerId, int]) -> None:
    """Hosts have obeyed operations that the region does not know: the records, which no cell has written since, are doubtful.

    The next operations count on above them, so that hosts obey those. A turn that an operator took back says nothing.
    """
    for server, seq in sorted(turns.items()):
        tx.run(_OVERTAKEN, {"b_id": server, "b_seq": seq})


def settled(tx: Tx, server: ServerId, seq: int) -> None:
    """A person has decided that the record is right as it stands: it shows operation `seq`."""
    tx.run(servers.update().where(_C.id == server).values(recorded_seq=seq))


def _numbers(rows: Collection[sa.Row[tuple[object, ...]]]) -> dict[ServerId, ServerNumbers]:
    return {
        ServerId(row.id): ServerNumbers(row.cell, row.op_seq, row.recorded_seq, bool(row.deleted), bool(row.held))
        for row in rows
    }
