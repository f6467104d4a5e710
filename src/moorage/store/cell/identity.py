"""The identity of this cell's database, its region, and the last known mark of the region's database (RULES §22)."""

import uuid as uuids
from collections.abc import Collection, Sequence

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, ServerId
from moorage.model.server import ApiPowerState, Fault, Server, VmState
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.cell import actions
from moorage.store.cell.servers import fences, servers
from moorage.store.cell.tables import cell_metadata
from moorage.store.doubts import seq_of
from moorage.store.servers import record_columns, server_of, server_values

ONLY = 1

identity = sa.Table(
    "store_identity",
    cell_metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("uuid", sa.String(36), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("mark", sa.BigInteger, nullable=False),
    sa.Column("cell", sa.String(64), nullable=False),
    sa.Column("region", sa.String(36), nullable=False),
    sa.Column("region_mark", sa.BigInteger, nullable=False),
)


class CellIdentity(msgspec.Struct, frozen=True):
    uuid: str
    epoch: int
    """The region's epoch when both were last compared."""
    mark: int
    cell: CellId
    region: str
    """The uuid of the region's database."""
    region_mark: int
    """The region's mark, as far as known here."""


_GET = sa.select(identity).where(identity.c.id == ONLY)
_REGION_MARK = sa.bindparam("b_region_mark", type_=identity.c.region_mark.type)
_REMEMBER = (
    identity.update()
    .where(identity.c.id == ONLY)
    .values(
        mark=identity.c.mark + 1,
        region_mark=sa.case((identity.c.region_mark < _REGION_MARK, _REGION_MARK), else_=identity.c.region_mark),
    )
    .returning(identity.c.mark)
)


def get(tx: Tx) -> CellIdentity | None:
    row = tx.row(_GET)
    if row is None:
        return None
    return CellIdentity(row.uuid, row.epoch, row.mark, CellId(row.cell), row.region, row.region_mark)


def make(tx: Tx, cell: CellId, region: str, epoch: int, region_mark: int) -> CellIdentity:
    """Create the identity; if it exists already, return the existing one."""
    new = CellIdentity(str(uuids.uuid4()), epoch, 0, cell, region, region_mark)
    tx.run(insert(tx.dialect, identity).values({"id": ONLY, **msgspec.structs.asdict(new)}).on_conflict_do_nothing())
    made = get(tx)
    assert made is not None
    return made


def remember(tx: Tx, region_mark: int) -> int:
    """Raise this database's mark and the remembered mark of the region; return the own mark."""
    return int(tx.scalar(_REMEMBER, {"b_region_mark": region_mark}) or 0)


def adopt(tx: Tx, mine: CellIdentity) -> None:
    """Set the identity after a deliberate restore."""
    values = msgspec.structs.asdict(mine)
    del values["uuid"]
    tx.run(identity.update().where(identity.c.id == ONLY).values(values))


def recorded(tx: Tx, ids: Collection[ServerId]) -> set[ServerId]:
    """Those of these servers that have a record here, deleted or not."""
    return {ServerId(row.id) for row in tx.rows(sa.select(servers.c.id).where(servers.c.id.in_(ids)))}


class RecordNumber(msgspec.Struct, frozen=True):
    """The part of a record that tells its age."""

    seq: int
    """The operation that last wrote it."""
    under_way: bool
    """That operation was to write it again."""


def record_numbers(tx: Tx, ids: Collection[ServerId]) -> dict[ServerId, RecordNumber]:
    """Those of these servers that have a record here."""
    rows = tx.rows(sa.select(servers.c.id, servers.c.op_epoch, servers.c.task_state).where(servers.c.id.in_(ids)))
    return {ServerId(row.id): RecordNumber(seq_of(row), row.task_state is not None) for row in rows}


class ComparedRecord(msgspec.Struct, frozen=True):
    """The part of a record that is compared with the region."""

    id: ServerId
    rank: int
    """Rank of the last operation that wrote it (`servers.Fence`)."""
    deleted: bool
    sealed: bool = False
    """Another cell's record is shown, or is about to be."""


def records(tx: Tx, after: str, limit: int) -> Sequence[ComparedRecord]:
    """A page of all records with ids greater than `after`, in the order of ids."""
    c = servers.c
    query = sa.select(c.id, c.op_epoch, c.deleted_at, c.hidden).where(c.id > after).order_by(c.id).limit(limit)
    return [
        ComparedRecord(ServerId(row.id), row.op_epoch, row.deleted_at is not None, bool(row.hidden))
        for row in tx.rows(query)
    ]


def mark_deleted(tx: Tx, ids: Collection[ServerId], now_us: int) -> None:
    """Mark as deleted servers whose delete the region has executed after this database was backed up."""
    for server in ids:
        row = tx.row(sa.select(*record_columns(servers)).where(servers.c.id == server, servers.c.deleted_at.is_(None)))
        if row is not None:
            gone = msgspec.structs.replace(
                server_of(row),
                vm_state=VmState.DELETED,
                task_state=None,
                power_state=ApiPowerState.NOSTATE,
                deleted_at=now_us,
                terminated_at=now_us,
                updated_at=now_us,
            )
            tx.run(servers.update().where(servers.c.id == server).values(server_values(gone)))


class KnownServer(msgspec.Struct, frozen=True):
    """What this cell knows of a server and of one action on it."""

    record: Server | None
    rank: int
    """Rank of the last operation that wrote or removed the record; 0: none did."""
    finished: bool
    """Whether the action of that request has ended."""
    failed: bool
    sealed: bool = False
    """Whether the record's row is sealed."""
    line: int = 0
    """The journal line of the writer with that rank."""


def seen(tx: Tx, server: ServerId, request_id: str) -> KnownServer:
    row = tx.row(sa.select(*record_columns(servers), servers.c.hidden).where(servers.c.id == server))
    fence = tx.row(sa.select(fences.c.rank, fences.c.line).where(fences.c.server == server))
    removed = 0 if fence is None else fence.rank
    action = actions.get(tx, server, request_id)
    ended = action is not None and action.finished_at is not None
    failed = action is not None and action.message is not None
    rank = max(removed, 0 if row is None else row.op_epoch)
    lines = [
        0 if row is None or row.op_epoch < rank else row.op_line,
        0 if fence is None or removed < rank else fence.line,
    ]
    record = None if row is None else server_of(row)
    return KnownServer(record, rank, ended, failed, row is not None and bool(row.hidden), max(lines))


def settle(tx: Tx, ids: Collection[ServerId], fault: Fault) -> int:
    """End what was under way with these servers: one in BUILD goes to ERROR, the others lose their task. Returns how
    many changed.
    """
    c = servers.c
    changed = 0
    for row in tx.rows(sa.select(*record_columns(servers)).where(c.id.in_(ids), c.deleted_at.is_(None))):
        server = server_of(row)
        building = server.vm_state is VmState.BUILDING
        if not building and server.task_state is None:
            continue
        changed += 1
        after = msgspec.structs.replace(server, task_state=None, updated_at=fault.created_at)
        if building:
            after = msgspec.structs.replace(after, vm_state=VmState.ERROR, fault=fault)
        tx.run(servers.update().where(c.id == server.id).values(server_values(after)))
    return changed
