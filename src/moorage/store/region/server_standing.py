"""The region's facts about many servers, which a cell's conductor needs before it judges a guest."""

from collections.abc import Collection

import msgspec
import sqlalchemy as sa

from moorage.model.fencing_token import LAST_ATTEMPT, UNDO, FencingToken
from moorage.model.ids import CellId, HostId, OperationId, ServerId
from moorage.sql import Tx
from moorage.store.region.operations import operations
from moorage.store.region.placement.tables import consumers
from moorage.store.region.servers import servers

IDS_PER_STATEMENT = 500


class ServerStanding(msgspec.Struct, frozen=True):
    """One server, without its record."""

    id: ServerId
    cell: CellId | None
    op_seq: int
    deleted: bool
    """A delete was executed."""
    has_order: bool
    """The region has its record: its boot is under way, or found no host."""
    operation: OperationId | None = None
    """The operation that holds it."""
    operation_seq: int | None = None
    """That operation's place among the server's operations; its commands to hosts carry it."""
    claimed_on: HostId | None = None
    """The host of the claim that this operation has made."""
    attempt: int = 0
    """The attempt that made the claim."""
    debts: int = 0
    """What hosts still owe it (RULES §25)."""
    recorded_seq: int = 0
    """The newest operation whose end the record is known to show."""

    @property
    def recorded_in(self) -> CellId | None:
        """The cell that must have its record: the boot ended there, and the server was not deleted since (RULES §22)."""
        return None if self.deleted or self.has_order else self.cell

    @property
    def newest_turn(self) -> FencingToken:
        """The highest turn that a conductor can have given for it."""
        return FencingToken(self.op_seq, LAST_ATTEMPT, UNDO)

    @property
    def newest_turn_over(self) -> FencingToken:
        """The highest turn of operations that are over: a host with this turn obeys what a conductor may still order."""
        return FencingToken(self.op_seq if self.operation_seq is None else self.operation_seq - 1, LAST_ATTEMPT, UNDO)


def _standings() -> sa.Executable:
    s, o, c = servers.c, operations.c, consumers.c
    whole = servers.outerjoin(operations, o.id == s.operation).outerjoin(
        consumers, (c.uuid == s.id) & (c.operation == s.operation)
    )
    columns = (
        *(s.id, s.cell, s.op_seq, s.recorded_seq, s.debts, s.operation),
        s.deleted_at.is_not(None).label("deleted"),
        s.doc.is_not(None).label("has_order"),
        o.seq,
        c.host,
        c.attempt,
    )
    return sa.select(*columns).select_from(whole).where(s.id.in_(sa.bindparam("b_servers", expanding=True)))


_STANDINGS = _standings()


def standings(tx: Tx, ids: Collection[ServerId]) -> dict[ServerId, ServerStanding]:
    """The facts of those servers that the region knows; one statement for 500 of them."""
    ordered, standings = list(ids), dict[ServerId, ServerStanding]()
    for first in range(0, len(ordered), IDS_PER_STATEMENT):
        for row in tx.rows(_STANDINGS, {"b_servers": ordered[first : first + IDS_PER_STATEMENT]}):
            standings[row.id] = ServerStanding(
                id=row.id,
                cell=row.cell,
                op_seq=row.op_seq,
                deleted=bool(row.deleted),
                has_order=bool(row.has_order),
                operation=row.operation,
                operation_seq=row.seq,
                claimed_on=row.host,
                attempt=row.attempt or 0,
                recorded_seq=row.recorded_seq,
                debts=row.debts,
            )
    return standings
