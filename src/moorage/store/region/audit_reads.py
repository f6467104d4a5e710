"""Pages of the region's rows for an audit: server mappings and claims, in the order of their ids."""

from collections.abc import Collection, Sequence

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, OperationId, ProviderId, ServerId
from moorage.sql import Tx
from moorage.store.region.operations import operations
from moorage.store.region.placement.claim_statements import INSTANCE, MIGRATION, Key, Owner, owner_of
from moorage.store.region.placement.tables import allocations, consumers, providers
from moorage.store.region.servers import servers

IDS_PER_STATEMENT = 500


class Mapped(msgspec.Struct, frozen=True):
    """The region's row of a server."""

    id: ServerId
    project: str
    cell: CellId | None
    operation: OperationId | None
    op_seq: int
    deleted: bool
    has_order: bool
    vm_state: str
    """The state in the order."""
    slot_left: bool = False
    """Whether the operation that holds it has ended, or does not exist."""
    recorded_seq: int = 0
    """The newest operation whose end the record is known to show."""
    debts: int = 0
    """What hosts owe it: a volume or port that its record does not list may be kept for that."""

    @property
    def recorded_in(self) -> CellId | None:
        """The cell that must have its record."""
        return None if self.deleted or self.has_order else self.cell


class ConsumerHoldings(msgspec.Struct, frozen=True):
    """A consumer of ours, and its claims."""

    owner: Owner
    amounts: dict[Key, int]

    @property
    def moves(self) -> bool:
        return self.owner.type == MIGRATION


_S, _O, _C, _A = servers.c, operations.c, consumers.c, allocations.c
_MAPPED = sa.select(
    _S.id,
    _S.project,
    _S.cell,
    _S.operation,
    _S.op_seq,
    _S.deleted_at.is_not(None).label("deleted"),
    _S.doc.is_not(None).label("has_order"),
    _S.vm_state,
    (_S.operation.is_not(None) & (_O.id.is_(None) | _O.ended_at.is_not(None))).label("slot_left"),
    _S.recorded_seq,
    _S.debts,
).select_from(servers.outerjoin(operations, _O.id == _S.operation))
_AFTER, _LIMIT = sa.bindparam("b_after", type_=sa.Text), sa.bindparam("b_limit", type_=sa.Integer)
_IDS: sa.BindParameter[str] = sa.bindparam("b_ids", expanding=True)
_PAGE = _MAPPED.where(_S.id > _AFTER).order_by(_S.id).limit(_LIMIT)
_AMONG = _MAPPED.where(_S.id.in_(_IDS))
_OURS = sa.select(*_C).where(_C.operation.is_not(None))
_CONSUMERS = _OURS.where(_C.uuid > _AFTER).order_by(_C.uuid).limit(_LIMIT)
_CONSUMERS_AMONG = _OURS.where(_C.uuid.in_(_IDS))
_ALLOCATIONS = sa.select(_A.consumer, _A.provider, _A["class"], _A.used).where(_A.consumer.in_(_IDS))

_PROVIDERS = sa.select(providers.c.uuid, providers.c.name, providers.c.root).where(providers.c.uuid.in_(_IDS))


def mapped(tx: Tx, after: str, limit: int) -> list[Mapped]:
    """A page, in the order of ids."""
    return [Mapped(*row) for row in tx.rows(_PAGE, {"b_after": after, "b_limit": limit})]


def mapped_among(tx: Tx, ids: Collection[str]) -> list[Mapped]:
    return [Mapped(*row) for part in _parts(ids) for row in tx.rows(_AMONG, {"b_ids": part})]


def held(tx: Tx, after: str, limit: int) -> list[ConsumerHoldings]:
    """A page of consumers whose claims our operations made, in the order of ids."""
    owners = [owner_of(row) for row in tx.rows(_CONSUMERS, {"b_after": after, "b_limit": limit})]
    return _with_amounts(tx, owners)


def held_among(tx: Tx, ids: Collection[str]) -> list[ConsumerHoldings]:
    owners = [owner_of(row) for part in _parts(ids) for row in tx.rows(_CONSUMERS_AMONG, {"b_ids": part})]
    return _with_amounts(tx, owners)


def holds_by_move(tx: Tx, server: ServerId) -> bool:
    """Whether a move of the server holds a claim, also one that its cell does not know."""
    query = (
        sa.select(_C.uuid)
        .select_from(consumers.join(operations, _O.id == _C.operation))
        .where(_C.type == MIGRATION, _O.server == server)
    )
    return tx.row(query.limit(1)) is not None


class ForeignClaim(msgspec.Struct, frozen=True):
    """A claim for a server that none of our operations made."""

    owner: Owner
    amounts: dict[Key, int]
    is_deleted: bool
    """Whether its server was deleted; else the region does not know it."""


def foreign_claims(tx: Tx, limit: int) -> list[ForeignClaim]:
    """Claims for servers, written through Placement's API, of which the region has no server, or a deleted one."""
    query = (
        sa.select(*_C, _S.id.is_not(None).label("is_deleted"))
        .select_from(consumers.outerjoin(servers, _S.id == _C.uuid))
        .where(_C.operation.is_(None), _C.type == INSTANCE, _S.id.is_(None) | _S.deleted_at.is_not(None))
        .order_by(_C.uuid)
        .limit(limit)
    )
    rows = tx.rows(query)
    deleted = {row.uuid for row in rows if row.is_deleted}
    held = _with_amounts(tx, [owner_of(row) for row in rows])
    return [ForeignClaim(each.owner, each.amounts, each.owner.consumer in deleted) for each in held if each.amounts]


def providers_among(tx: Tx, ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """Provider → (its name, the root of its tree)."""
    return {row.uuid: (row.name, row.root) for part in _parts(ids) for row in tx.rows(_PROVIDERS, {"b_ids": part})}


def _with_amounts(tx: Tx, owners: Sequence[Owner]) -> list[ConsumerHoldings]:
    amounts: dict[str, dict[Key, int]] = {each.consumer: {} for each in owners}
    for part in _parts(amounts):
        for consumer, provider, resource, used in tx.rows(_ALLOCATIONS, {"b_ids": part}):
            amounts[consumer][ProviderId(provider), resource] = used
    return [ConsumerHoldings(each, amounts[each.consumer]) for each in owners]


def _parts(ids: Collection[str]) -> list[list[str]]:
    every = sorted(ids)
    return [every[at : at + IDS_PER_STATEMENT] for at in range(0, len(every), IDS_PER_STATEMENT)]


def unheld_operations(tx: Tx, before_us: int, limit: int) -> list[tuple[str, str, str]]:
    """(operation, server, saga) of operations that are open since before then, and neither hold their server nor wait
    for it.
    """
    query = (
        sa.select(_O.id, _O.server, _O.saga)
        .select_from(operations.outerjoin(servers, _S.id == _O.server))
        .where(
            _O.ended_at.is_(None),
            _O.created_at < before_us,
            _S.id.is_(None) | (sa.func.coalesce(_S.operation, "") != _O.id) & (sa.func.coalesce(_S.heir, "") != _O.id),
        )
        .order_by(_O.id)
        .limit(limit)
    )
    return [(row.id, row.server, row.saga) for row in tx.rows(query)]


def learn(tx: Tx, values: dict[str, object], op_seq: int, cell: CellId) -> None:
    """Insert a server whose record a cell has, and that is not known here."""
    tx.run(
        servers.insert().values(
            {**values, "doc": None, "operation": None, "op_seq": op_seq, "cell": cell, "task": None}
        )
    )


def map_to(tx: Tx, server: str, cell: CellId, op_seq: int) -> bool:
    """Set the server's cell, unless an operation began on it since. Returns whether it was set."""
    row = tx.row(
        servers.update()
        .where(_S.id == server, _S.operation.is_(None), _S.op_seq == op_seq)
        .values(cell=cell, doc=None)
        .returning(_S.id)
    )
    return row is not None
