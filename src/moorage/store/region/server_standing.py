"""Where servers stand, many at once: what a cell's conductor must know before it calls a guest wrong."""

from collections.abc import Collection

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, HostId, OperationId, ServerId
from moorage.sql import Tx
from moorage.store.region.operations import operations
from moorage.store.region.placement.tables import consumers
from moorage.store.region.servers import servers

IDS_PER_STATEMENT = 500


class Standing(msgspec.Struct, frozen=True):
    """One server, without its record."""

    id: ServerId
    cell: CellId | None
    op_seq: int
    deleted: bool
    """A delete was carried out."""
    has_order: bool
    """The region has its record: its boot is under way, or found no host."""
    operation: OperationId | None = None
    """Which holds it."""
    operation_seq: int | None = None
    """The place of that operation among the server's; its commands to hosts carry it."""
    claimed_on: HostId | None = None
    """The host of the claim that this very operation has made."""
    attempt: int = 0
    """Which attempt of it made the claim."""

    @property
    def recorded_in(self) -> CellId | None:
        """The cell that must have its record: the boot ended there, and nothing was deleted since (RULES §22)."""
        return None if self.deleted or self.has_order else self.cell


def _standings() -> sa.Executable:
    s, o, c = servers.c, operations.c, consumers.c
    whole = servers.outerjoin(operations, o.id == s.operation).outerjoin(
        consumers, (c.uuid == s.id) & (c.operation == s.operation)
    )
    columns = (
        *(s.id, s.cell, s.op_seq, s.operation),
        s.deleted_at.is_not(None).label("deleted"),
        s.doc.is_not(None).label("has_order"),
        o.seq,
        c.host,
        c.attempt,
    )
    return sa.select(*columns).select_from(whole).where(s.id.in_(sa.bindparam("b_servers", expanding=True)))


_STANDINGS = _standings()


def standings(tx: Tx, ids: Collection[ServerId]) -> dict[ServerId, Standing]:
    """Of those that the region knows; one statement for 500 of them."""
    asked, found = list(ids), dict[ServerId, Standing]()
    for first in range(0, len(asked), IDS_PER_STATEMENT):
        for row in tx.rows(_STANDINGS, {"b_servers": asked[first : first + IDS_PER_STATEMENT]}):
            found[row.id] = Standing(
                id=row.id,
                cell=row.cell,
                op_seq=row.op_seq,
                deleted=bool(row.deleted),
                has_order=bool(row.has_order),
                operation=row.operation,
                operation_seq=row.seq,
                claimed_on=row.host,
                attempt=row.attempt or 0,
            )
    return found
