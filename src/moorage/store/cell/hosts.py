"""The hosts of a cell. The cell's conductor writes what hosts report; the API writes what operators set."""

import uuid
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.errors import Conflict
from moorage.model.host import NO_TROUBLES, Host, HostTroubles
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.cell.tables import cell_metadata

hosts = sa.Table(
    "hosts",
    cell_metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(36), nullable=False, unique=True),
    sa.Column("service", sa.String(36), nullable=False, unique=True),
    sa.Column("host", sa.String(255), nullable=False, unique=True),
    sa.Column("node", sa.String(255), nullable=False),
    sa.Column("seen_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("disabled_reason", sa.String(255)),
    sa.Column("forced_down", sa.Boolean, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    sa.Column("agent", sa.String(64)),
    sa.Column("troubles", sa.Text),
    sa.Column("forced_down_by", sa.String(255)),
    sa.Column("forced_down_at", sa.BigInteger),
)
"""`agent`: the name of the one agent that may report for the host; each start of an agent has a new name; NULL: none,
or unknown. `troubles`: what the conductor observed, as JSON (`HostTroubles`); NULL: nothing. `forced_down_by`,
`forced_down_at`: the user who marked it as down, and when, µs; an evacuation relies on it.
"""

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Host)
_troubles_decoder = msgspec.json.Decoder(HostTroubles)


_GIVEN = tuple(
    each.name for each in hosts.c if each.name not in {"number", "troubles", "forced_down_by", "forced_down_at"}
)
_REPORTED = ("id", "node", "seen_at", "updated_at", "doc")


_UPDATE_REPORT = (
    hosts.update()
    .where(hosts.c.host == sa.bindparam("b_host"))
    .values({name: sa.bindparam(f"b_{name}") for name in _REPORTED})
    .returning(*hosts.c)
)


@cache
def _insert_report(dialect: str) -> sa.Executable:
    """Made once for each kind of database. Of two conductors that hear a host first at once, the second waits for the first one's commit.

    No index is named: `id` and `service` are unique as well, and one that is not named would be violated.
    """
    statement = insert(dialect, hosts).values({name: sa.bindparam(f"b_{name}") for name in _GIVEN})
    return statement.on_conflict_do_nothing().returning(*hosts.c)


_TAKE_AGENT = (
    hosts.update()
    .where(
        hosts.c.host == sa.bindparam("b_host"),
        sa.or_(
            hosts.c.agent.is_(None), hosts.c.agent == sa.bindparam("b_agent"), hosts.c.agent == sa.bindparam("b_was")
        ),
    )
    .values(agent=sa.bindparam("b_agent"))
    .returning(hosts.c.agent)
)
_HEARD = (
    hosts.update()
    .where(hosts.c.host.in_(sa.bindparam("b_hosts", expanding=True)))
    .values(seen_at=sa.bindparam("b_now"))
)
_TROUBLES = sa.select(hosts.c.host, hosts.c.troubles).where(hosts.c.troubles.is_not(None))
_LISTED = sa.select(hosts).order_by(hosts.c.host)
_SAID = sa.select(hosts.c.host, hosts.c.disabled, hosts.c.forced_down).where(
    sa.or_(hosts.c.disabled, hosts.c.forced_down)
)
_NAMED = sa.select(hosts).where(hosts.c.host == sa.bindparam("b_host"))


def report(tx: Tx, host: Host, now: int) -> Host:
    """Write what a host said of itself; numbers, and what operators said, stay.

    Raises Conflict when its id is that of another host here.
    """
    row = {
        "id": host.id,
        "service": str(uuid.uuid4()),
        "host": host.host,
        "node": host.node,
        "seen_at": now,
        "created_at": now,
        "updated_at": now,
        "disabled": False,
        "disabled_reason": None,
        "forced_down": False,
        "doc": _encode(host).decode(),
        "agent": host.agent or None,
    }
    given = {f"b_{name}": value for name, value in row.items()}
    again = {f"b_{name}": row[name] for name in ("host", *_REPORTED)}
    written = (
        tx.row(_UPDATE_REPORT, again) or tx.row(_insert_report(tx.dialect), given) or tx.row(_UPDATE_REPORT, again)
    )
    if written is None:
        raise Conflict("a host reports another host's node", private=f"{host.host} reports {host.node}")
    return _host(written)


def put_again(tx: Tx, kept: Host) -> bool:
    """Insert a host that this database has lost. Returns False when it exists. It has no agent until it reports again."""
    row = {
        "id": kept.id,
        "service": kept.service,
        "host": kept.host,
        "node": kept.node,
        "seen_at": 0,
        "created_at": kept.created_at,
        "updated_at": None,
        "disabled": kept.disabled,
        "disabled_reason": kept.disabled_reason,
        "forced_down": kept.forced_down,
        "forced_down_by": kept.forced_down_by,
        "forced_down_at": kept.forced_down_at,
        "doc": _encode(kept).decode(),
    }
    statement = insert(tx.dialect, hosts).values(row).on_conflict_do_nothing().returning(hosts.c.host)
    return tx.row(statement) is not None


def take_agent(tx: Tx, host: str, agent: str, expected: str) -> str:
    """Make this agent the host's agent in place of `expected` (compare-and-set); return the agent that the host has now.

    Empty when the host is not known here yet: its first report sets it.
    """
    row = tx.row(_TAKE_AGENT, {"b_host": host, "b_agent": agent, "b_was": expected})
    return (row.agent or "") if row is not None else agent_of(tx, host)


def agent_of(tx: Tx, host: str) -> str:
    """The agent that reports for the host; empty when there is none."""
    row = tx.row(sa.select(hosts.c.agent).where(hosts.c.host == host))
    return "" if row is None else row.agent or ""


def agent_left(tx: Tx, host: str, agent: str) -> None:
    """The agent has stopped, and said so."""
    tx.run(hosts.update().where(hosts.c.host == host, hosts.c.agent == agent).values(agent=None))


def forget_agents(tx: Tx) -> None:
    """Remove all agents: the process in which they all ran has restarted."""
    tx.run(hosts.update().where(hosts.c.agent.is_not(None)).values(agent=None))


def note_troubles(tx: Tx, host: str, troubles: HostTroubles) -> None:
    """Write what the conductor observed, in place of earlier observations."""
    encoded = None if troubles == NO_TROUBLES else _encode(troubles).decode()
    tx.run(hosts.update().where(hosts.c.host == host).values(troubles=encoded))


def troubles(tx: Tx) -> dict[str, HostTroubles]:
    """The observations, for hosts that have any."""
    rows = tx.rows(_TROUBLES)
    return {row.host: _troubles_decoder.decode(row.troubles) for row in rows}


def record_heartbeats(tx: Tx, names: Collection[str], now: int) -> None:
    """Note a heartbeat of these hosts, in one statement."""
    if names:
        tx.run(_HEARD, {"b_hosts": list(names), "b_now": now})


def listed(tx: Tx) -> Sequence[Host]:
    """All hosts of the cell, by name."""
    return [_host(row) for row in tx.rows(_LISTED)]


def releases(tx: Tx) -> dict[str, int]:
    """How many hosts run an agent of each release, as they reported."""
    version: sa.ColumnElement[str | None] = sa.literal_column(
        "json_extract(doc, '$.version')" if tx.dialect == "sqlite" else "doc::json ->> 'version'", sa.String
    )
    rows = tx.rows(
        sa.select(version.label("version"), sa.func.count().label("hosts")).select_from(hosts).group_by(version)
    )
    return {row.version or "": row.hosts for row in rows}


class HostOverrides(msgspec.Struct, frozen=True):
    """What operators set for the cell's hosts, by host name."""

    disabled: frozenset[str] = frozenset()
    forced_down: frozenset[str] = frozenset()


def host_overrides(tx: Tx) -> HostOverrides:
    """Read all the time, so it reads no records."""
    rows = tx.rows(_SAID)
    return HostOverrides(
        frozenset(row.host for row in rows if row.disabled), frozenset(row.host for row in rows if row.forced_down)
    )


def named(tx: Tx, host: str) -> Host | None:
    row = tx.row(_NAMED, {"b_host": host})
    return None if row is None else _host(row)


def by_service(tx: Tx, service: str) -> Host | None:
    """The host with this service UUID."""
    row = tx.row(sa.select(hosts).where(hosts.c.service == service))
    return None if row is None else _host(row)


def set_disabled(tx: Tx, host: str, disabled: bool, reason: str | None, now: int) -> Host | None:
    row = tx.row(
        hosts.update()
        .where(hosts.c.host == host)
        .values(disabled=disabled, disabled_reason=reason, updated_at=now)
        .returning(*hosts.c)
    )
    return None if row is None else _host(row)


def set_forced_down(tx: Tx, host: str, forced: bool, now: int, by: str | None = None) -> Host | None:
    """`by`: the user who marks it as down; the first user is kept until the mark is removed, at the latest when the
    host reports again.
    """
    holds = sa.and_(hosts.c.forced_down, hosts.c.forced_down_at.is_not(None), hosts.c.seen_at <= hosts.c.forced_down_at)
    again = holds if forced else sa.false()
    columns = {
        "forced_down_by": sa.case((again, hosts.c.forced_down_by), else_=by if forced else None),
        "forced_down_at": sa.case((again, hosts.c.forced_down_at), else_=now if forced else None),
    }
    row = tx.row(
        hosts.update()
        .where(hosts.c.host == host)
        .values(forced_down=forced, updated_at=now, **columns)
        .returning(*hosts.c)
    )
    return None if row is None else _host(row)


def remove(tx: Tx, host: str) -> bool:
    return tx.row(hosts.delete().where(hosts.c.host == host).returning(hosts.c.number)) is not None


def _host(row: Any) -> Host:
    return msgspec.structs.replace(
        _decoder.decode(row.doc),
        number=row.number,
        id=row.id,
        service=row.service,
        seen_at=row.seen_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        disabled=row.disabled,
        disabled_reason=row.disabled_reason,
        forced_down=row.forced_down,
        forced_down_by=row.forced_down_by,
        forced_down_at=row.forced_down_at,
        agent=row.agent or "",
    )
