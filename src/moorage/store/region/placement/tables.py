"""The tables of placement, and the stamps that every changed row has.

There are two stamps, because one cannot do both jobs. `changed` tells *whether a reader may have missed the row*: on
PostgreSQL the writing transaction's id, compared with the horizon of running transactions (RULES §6.2). Two
transactions may change one row in another order than that of their ids, so `changed` cannot tell *which of two values
is newer*; `version` does: a sequence value taken while the row is locked. SQLite has one writer, and one counter serves
as both.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.sql import RawStatement, Tx

placement_metadata = sa.MetaData()

UUID = sa.String(36).with_variant(postgresql.VARCHAR(36, collation="C"), "postgresql")
NAME = sa.String(255).with_variant(postgresql.VARCHAR(255, collation="C"), "postgresql")
"""Keys are compared byte by byte: collation by language costs a sixth of a claim."""

versions = sa.Sequence("placement_versions", metadata=placement_metadata)

counter = sa.Table(
    "placement_counter",
    placement_metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, nullable=False),
)

providers = sa.Table(
    "providers",
    placement_metadata,
    sa.Column("uuid", UUID, primary_key=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("parent", UUID, sa.ForeignKey("providers.uuid"), index=True),
    sa.Column("root", UUID, nullable=False, index=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("changed", sa.BigInteger, nullable=False, index=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

inventories = sa.Table(
    "inventories",
    placement_metadata,
    sa.Column("provider", UUID, sa.ForeignKey("providers.uuid"), primary_key=True),
    sa.Column("class", NAME, primary_key=True),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("reserved", sa.Integer, nullable=False),
    sa.Column("ratio", sa.Float(53), nullable=False),
    sa.Column("min_unit", sa.Integer, nullable=False),
    sa.Column("max_unit", sa.Integer, nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("cap", sa.BigInteger, nullable=False),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("changed", sa.BigInteger, nullable=False, index=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

allocations = sa.Table(
    "allocations",
    placement_metadata,
    sa.Column("consumer", UUID, primary_key=True),
    sa.Column("provider", UUID, primary_key=True, index=True),
    sa.Column("class", NAME, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

consumers = sa.Table(
    "consumers",
    placement_metadata,
    sa.Column("uuid", UUID, primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("project", NAME, nullable=False, index=True),
    sa.Column("user_id", NAME, nullable=False),
    sa.Column("type", NAME, nullable=False, server_default="unknown"),
    sa.Column("host", UUID),
    sa.Column("operation", sa.String(36)),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("server_group", sa.String(36)),
    sa.Column("group_policy", sa.String(20)),
    sa.Column("updated_at", sa.BigInteger, nullable=False, server_default="0"),
)

resource_classes = sa.Table(
    "resource_classes",
    placement_metadata,
    sa.Column("name", NAME, primary_key=True),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

traits = sa.Table(
    "traits",
    placement_metadata,
    sa.Column("name", NAME, primary_key=True),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

provider_traits = sa.Table(
    "provider_traits",
    placement_metadata,
    sa.Column("provider", UUID, sa.ForeignKey("providers.uuid"), primary_key=True),
    sa.Column("trait", NAME, primary_key=True, index=True),
)

provider_aggregates = sa.Table(
    "provider_aggregates",
    placement_metadata,
    sa.Column("provider", UUID, sa.ForeignKey("providers.uuid"), primary_key=True),
    sa.Column("aggregate", UUID, primary_key=True, index=True),
)

hosts = sa.Table(
    "placement_hosts",
    placement_metadata,
    sa.Column("provider", UUID, sa.ForeignKey("providers.uuid"), primary_key=True),
    sa.Column("host", NAME, nullable=False),
    sa.Column("node", NAME, nullable=False),
    sa.Column("cell", sa.String(64), nullable=False),
    sa.Column("zone", NAME, nullable=False),
    sa.Column("physnets", sa.Text),  # comma separated; NULL: not reported
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text),  # JSON; NULL: not reported
    sa.Column("forced_down", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("cell_disabled", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("placement_hosts_by_host", "host"),
)

cells = sa.Table(
    "placement_cells",
    placement_metadata,
    sa.Column("cell", sa.String(64), primary_key=True),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("said_by", sa.String(255), nullable=False),
    sa.Column("said_at", sa.BigInteger, nullable=False),
)

functions = sa.Table(
    "virtual_functions",
    placement_metadata,
    sa.Column("provider", UUID, sa.ForeignKey("providers.uuid"), primary_key=True),
    sa.Column("address", sa.String(32), primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("vendor_id", sa.String(8), nullable=False),
    sa.Column("product_id", sa.String(8), nullable=False),
    sa.Column("physical_network", NAME, nullable=False),
    sa.Column("pf_mac", sa.String(32), nullable=False),
    sa.Column("card_serial_number", NAME, nullable=False),
    sa.Column("consumer", UUID, index=True),
    sa.Column("port", UUID),
)

group_hosts = sa.Table(
    "group_hosts",
    placement_metadata,
    sa.Column("server_group", sa.String(36), primary_key=True),
    sa.Column("host", UUID, primary_key=True),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("changed", sa.BigInteger, nullable=False, index=True),
)

group_homes = sa.Table(
    "group_homes",
    placement_metadata,
    sa.Column("server_group", sa.String(36), primary_key=True),
    sa.Column("home", UUID, nullable=False),
    sa.Column("members", sa.Integer, nullable=False),
    sa.Column("changed", sa.BigInteger, nullable=False, index=True),
)

gone = sa.Table(
    "gone",
    placement_metadata,
    sa.Column("provider", UUID, primary_key=True),
    sa.Column("changed", sa.BigInteger, nullable=False, index=True),
    sa.Column("at", sa.BigInteger, nullable=False),
)


@dataclass(frozen=True)
class Stamp:
    """The values for `changed` and `version`: expressions on PostgreSQL, numbers on SQLite."""

    changed: Any
    version: Any

    def parameters(self, dialect: str) -> dict[str, Any]:
        """What a statement with `stamp_columns` is executed with."""
        return {} if dialect == "postgresql" else {"b_changed": self.changed, "b_version": self.version}


def stamp(tx: Tx) -> Stamp:
    """Take it once per writing transaction; on SQLite it raises the counter."""
    if tx.dialect == "postgresql":
        return Stamp(**stamp_columns(tx.dialect))
    at = bump(tx)
    return Stamp(at, at)


def stamp_columns(dialect: str) -> dict[str, Any]:
    """`changed` and `version` for a statement that is made once: the expressions, or parameters for the numbers."""
    if dialect == "postgresql":
        return {
            "changed": sa.literal_column("pg_current_xact_id()::text::bigint", sa.BigInteger),
            "version": versions.next_value(),
        }
    return {name: sa.bindparam(f"b_{name}", type_=sa.BigInteger) for name in ("changed", "version")}


def bump(tx: Tx) -> int:
    """The next number of SQLite's counter."""
    at: int = tx.found(_BUMP, {})[0][0]
    return at


_BUMP = RawStatement(
    sqlite="""INSERT INTO placement_counter (id, at) VALUES (1, 1)
ON CONFLICT (id) DO UPDATE SET at = placement_counter.at + 1 RETURNING at""",
    writes=True,
)
