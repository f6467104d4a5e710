"""The record of a server in SQL: common columns, row ↔ `Server`, and the guarded write.

Both kinds of database keep servers: the region while a server has no cell, its cell afterwards (RULES §1). They build
their tables from `server_columns()` and share this module; each has its own tables and decides who may write them.

`doc` is the whole record; the other columns repeat the fields for filters, sorting and fences. There are two kinds of
write. One writes the record: `server_values(server)` sets every column, and `generation` must rise. The other changes
only columns of `ROW_WINS` (the fence, and what a host observed); there the row is right and `doc` may be older. Lists
are in `store/server_lists.py`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TEXT as POSTGRESQL_TEXT

from moorage.model.flavor_classes import charged_of
from moorage.model.server import Server, VmState
from moorage.model.unified_limits import CLASS
from moorage.sql.tx import Tx

ROW_WINS = ("generation", "operation", "op_epoch", "op_line", "power_state")

TEXT = sa.Text().with_variant(POSTGRESQL_TEXT(collation="C"), "postgresql")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Server)


def server_columns(*, doc_nullable: bool = False) -> list[sa.Column[Any]]:
    """The columns of both tables of servers. The region's `doc` is empty once the cell's row is complete."""
    return [
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("vm_state", TEXT, nullable=False),
        *(sa.Column(each, TEXT) for each in ("task_state", "host", "node", "availability_zone", "image")),
        sa.Column("flavor", TEXT, nullable=False),
        *(sa.Column(each, TEXT) for each in ("key_name", "hostname", "reservation_id", "config_drive")),
        sa.Column("power_state", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        *(sa.Column(each, sa.BigInteger) for each in ("updated_at", "deleted_at", "launched_at", "terminated_at")),
        sa.Column("locked", sa.Boolean, nullable=False),
        sa.Column("tags", TEXT, nullable=False),
        sa.Column("ips", TEXT, nullable=False),
        sa.Column("ip6s", TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("operation", TEXT),
        sa.Column("op_epoch", sa.BigInteger, nullable=False),
        sa.Column("op_line", sa.BigInteger, nullable=False),
        sa.Column("doc", TEXT, nullable=doc_nullable),
    ]


def server_indexes(table_name: str) -> list[sa.Index]:
    """The indexes for lists: by project and by host, newest first."""
    return [
        sa.Index(f"{table_name}_by_project", "project", "created_at", "id"),
        sa.Index(f"{table_name}_by_time", "created_at", "id"),
        sa.Index(f"{table_name}_by_host", "host"),
    ]


def server_values(server: Server) -> dict[str, Any]:
    """Every common column of a server's row."""
    return {
        "id": server.id,
        "project": server.project,
        "user": server.user,
        "name": server.name,
        "vm_state": server.vm_state.value,
        "task_state": server.task_state.value if server.task_state else None,
        "host": server.host,
        "node": server.node,
        "availability_zone": server.availability_zone,
        "image": server.image,
        "flavor": server.flavor.id,
        "key_name": server.key_name,
        "hostname": server.hostname,
        "reservation_id": server.reservation_id,
        "config_drive": "True" if server.config_drive else "",
        "power_state": server.power_state,
        "created_at": server.created_at,
        "updated_at": server.updated_at,
        "deleted_at": server.deleted_at,
        "launched_at": server.launched_at,
        "terminated_at": server.terminated_at,
        "locked": server.locked,
        "tags": _joined_tags(server.tags),
        "ips": _addresses(server, 4),
        "ip6s": _addresses(server, 6),
        "generation": server.generation,
        "operation": server.operation,
        "op_epoch": server.op_epoch,
        "op_line": server.op_line,
        "doc": _encoder.encode(server).decode(),
    }


def record_columns(table: sa.Table) -> list[sa.Column[Any]]:
    """The columns that `server_of` needs: `doc`, then the columns that replace its fields."""
    return [table.c.doc, *(table.c[each] for each in ROW_WINS)]


def server_of(row: Sequence[Any]) -> Server:
    """The server of a row of `record_columns`; more columns may follow."""
    return _with_row(_decoder.decode(row[0]), row[1 : 1 + len(ROW_WINS)])


def find_server(tx: Tx, table: sa.Table, server_id: str) -> Server | None:
    """The server with that id, also when it is deleted; None when it has no record here."""
    row = tx.row(sa.select(*record_columns(table)).where(table.c.id == server_id, table.c.doc.is_not(None)))
    return None if row is None else server_of(row)


def charged_to_projects(tx: Tx, table: sa.Table, *where: sa.ColumnElement[bool]) -> dict[str, dict[str, int]]:
    """The quota that the servers of these rows use, by project: servers, vCPUs and MiB of memory.

    Deleted servers use none, and as in Nova soft-deleted ones do not either.
    """
    doc = sa.cast(table.c.doc, sa.JSON) if tx.dialect == "postgresql" else sa.type_coerce(table.c.doc, sa.JSON)
    larger = sa.func.greatest if tx.dialect == "postgresql" else sa.func.max

    def amount(of: str) -> sa.ColumnElement[int]:
        """The larger of the two flavors, for a server whose move can be reverted."""
        now, before = doc[("flavor", of)].as_integer(), doc[("moved", "flavor", of)].as_integer()
        return sa.func.sum(larger(now, sa.func.coalesce(before, now)))

    rows = tx.rows(
        sa.select(
            table.c.project,
            sa.func.count().label("instances"),
            amount("vcpus").label("cores"),
            amount("ram_mib").label("ram"),
        )
        .where(
            table.c.deleted_at.is_(None),
            table.c.vm_state != VmState.SOFT_DELETED.value,
            table.c.doc.is_not(None),
            *where,
        )
        .group_by(table.c.project)
    )
    return {row.project: {"instances": row.instances, "cores": int(row.cores), "ram": int(row.ram)} for row in rows}


def charged_to_user(tx: Tx, table: sa.Table, project: str, user: str, *where: sa.ColumnElement[bool]) -> dict[str, int]:
    """The quota that one user's living servers of these rows use in one project."""
    return charged_to_projects(tx, table, table.c.project == project, table.c.user == user, *where).get(project, {})


def classes_charged(tx: Tx, table: sa.Table, *where: sa.ColumnElement[bool]) -> dict[str, int]:
    """What the living servers of these rows use of each class of resources (`model.flavor_classes`)."""
    total: Counter[str] = Counter()
    query = sa.select(*record_columns(table)).where(
        table.c.deleted_at.is_(None),
        table.c.vm_state != VmState.SOFT_DELETED.value,
        table.c.doc.is_not(None),
        *where,
    )
    for row in tx.rows(query):
        total.update({name: n for name, n in charged_of(server_of(row)).items() if name.startswith(CLASS)})
    return dict(total)


def replace_server(tx: Tx, table: sa.Table, server: Server, *, generation: int) -> Server | None:
    """Write the whole record if its generation is still `generation`; return the new record, or None when another writer was
    faster.

    The fence columns keep the row's values: the operation that holds the server writes them (RULES §3). Values observed
    by a host are kept too, because they may have changed since the record was read. A sealed row of a cell is not
    written: the copy for the other cell exists already.
    """
    after = msgspec.structs.replace(server, generation=generation + 1)
    values = server_values(after)
    for others in ("id", "operation", "op_epoch", "op_line", "power_state"):
        del values[others]
    guarded = table.update().where(table.c.id == server.id, table.c.generation == generation, table.c.doc.is_not(None))
    if "hidden" in table.c:
        guarded = guarded.where(sa.not_(table.c.hidden))
    row = tx.row(guarded.values(values).returning(*record_columns(table)))
    return None if row is None else server_of(row)


def _with_row(server: Server, wins: Sequence[Any]) -> Server:
    differing = {name: value for name, value in zip(ROW_WINS, wins, strict=True) if getattr(server, name) != value}
    return msgspec.structs.replace(server, **differing) if differing else server


def _joined_tags(tags: Sequence[str]) -> str:
    """`/a/b/`: a tag has no slash, so `/a/` is found exactly where `a` is a tag."""
    return "/" + "".join(f"{tag}/" for tag in tags) if tags else ""


def _addresses(server: Server, version: int) -> str:
    return "\n".join(each.address for nic in server.nics for each in nic.addresses if each.version == version)
