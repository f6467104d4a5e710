"""Actions on servers, with their events in the same row: one statement begins an action, one ends it."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.action import Action, ActionEvent
from moorage.model.ids import ServerId
from moorage.sql import Tx, upsert
from moorage.store.cell.tables import cell_metadata

PAGE_MAX = 1000

actions = sa.Table(
    "actions",
    cell_metadata,
    sa.Column("server", sa.String(36), primary_key=True),
    sa.Column("request_id", sa.String(64), primary_key=True),
    sa.Column("action", sa.String(64), nullable=False),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("finished_at", sa.BigInteger),
    sa.Column("message", sa.Text),
    sa.Column("events", sa.Text, nullable=False),
    sa.Index("actions_updated", "server", "updated_at"),
)

_encode = msgspec.json.Encoder().encode
_events = msgspec.json.Decoder(tuple[ActionEvent, ...])


_COLUMNS = tuple(actions.c.keys())


@cache
def _write(dialect: str) -> sa.Executable:
    """Made once: it is put together in more time than it takes to run."""
    given = {name: sa.bindparam(name, type_=actions.c[name].type) for name in _COLUMNS}
    return upsert(dialect, actions, given, key=("server", "request_id"))


def write(tx: Tx, action: Action) -> None:
    """Insert or replace by (server, request id): a step that is executed twice leaves one row."""
    tx.run(_write(tx.dialect), _values(action))


def write_all(tx: Tx, those: Sequence[Action]) -> None:
    """Insert or replace several actions."""
    if those:
        tx.run(_write(tx.dialect), [_values(each) for each in those])


def _values(action: Action) -> dict[str, Any]:
    return {
        "server": action.server,
        "request_id": action.request_id,
        "action": action.action,
        "user": action.user,
        "project": action.project,
        "started_at": action.started_at,
        "updated_at": action.updated_at,
        "finished_at": action.finished_at,
        "message": action.message,
        "events": _encode(action.events).decode(),
    }


_finish = (
    actions.update()
    .where(actions.c.server == sa.bindparam("b_server"), actions.c.request_id == sa.bindparam("b_request"))
    .values(
        events=sa.bindparam("b_events"),
        updated_at=sa.bindparam("b_now"),
        finished_at=sa.bindparam("b_now"),
        message=sa.bindparam("b_message"),
    )
)


def finish(
    tx: Tx,
    server: ServerId,
    request_id: str,
    events: Sequence[ActionEvent],
    now: int,
    message: str | None,
) -> None:
    """Finish an action with these events, and the message `Error` when it failed."""
    values = {"b_events": _encode(tuple(events)).decode(), "b_now": now, "b_message": message}
    tx.run(_finish, {"b_server": server, "b_request": request_id, **values})


def with_times(events: Sequence[ActionEvent], known: Sequence[ActionEvent]) -> tuple[ActionEvent, ...]:
    """These events, with the beginnings and ends that are known of them."""
    at = {each.name: each for each in known}
    return tuple(
        each
        if (shown := at.get(each.name)) is None
        else msgspec.structs.replace(
            each, started_at=shown.started_at, finished_at=shown.finished_at or each.finished_at
        )
        for each in events
    )


_SHOW = (
    actions.update()
    .where(
        actions.c.server == sa.bindparam("b_server"),
        actions.c.request_id == sa.bindparam("b_request"),
        actions.c.finished_at.is_(None),
    )
    .values(events=sa.bindparam("b_events"), updated_at=sa.bindparam("b_now"))
)


def show(tx: Tx, server: ServerId, request_id: str, events: Sequence[ActionEvent], now: int) -> None:
    """Replace the events of an action that is under way. An action that is not there, or has finished, stays as it is."""
    values = {"b_events": _encode(tuple(events)).decode(), "b_now": now}
    tx.run(_SHOW, {"b_server": server, "b_request": request_id, **values})


def advanced(
    known: Sequence[ActionEvent], now: int, *, ended: Collection[str] = (), begun: Sequence[ActionEvent] = ()
) -> tuple[ActionEvent, ...]:
    """The events when some of them have ended well, and others begin; one that begins again replaces itself."""
    starting = {each.name for each in begun}
    over = (
        msgspec.structs.replace(each, finished_at=now, result="Success")
        if each.name in ended and each.finished_at is None
        else each
        for each in known
        if each.name not in starting
    )
    return (*over, *begun)


_OF_SERVER = sa.select(actions).where(actions.c.server == sa.bindparam("b_server"))
_NEWEST = _OF_SERVER.order_by(actions.c.started_at.desc(), actions.c.request_id).limit(PAGE_MAX)
_OF_REQUEST = _OF_SERVER.where(actions.c.request_id == sa.bindparam("b_request"))
_FORGET = actions.delete().where(actions.c.server.in_(sa.bindparam("b_servers", expanding=True)))


def of_server(tx: Tx, server: ServerId) -> Sequence[Action]:
    """All actions of one server, newest first (at most 1,000)."""
    return [_action(row) for row in tx.rows(_NEWEST, {"b_server": server})]


def get(tx: Tx, server: ServerId, request_id: str) -> Action | None:
    row = tx.row(_OF_REQUEST, {"b_server": server, "b_request": request_id})
    return None if row is None else _action(row)


def forget(tx: Tx, servers: Sequence[ServerId]) -> None:
    """Remove them with the rows of servers that are removed for good."""
    tx.run(_FORGET, {"b_servers": list(servers)})


def shorten(tx: Tx, most: int = PAGE_MAX, servers_max: int = 50) -> int:
    """Remove the oldest actions of servers with more than `most`, the largest number ever shown. Returns how many were
    removed.

    Handles at most `servers_max` servers at a time.
    """
    c = actions.c
    long = tx.rows(sa.select(c.server).group_by(c.server).having(sa.func.count() > most).limit(servers_max))
    went = 0
    for (server,) in long:
        newest = (
            sa.select(c.started_at).where(c.server == server).order_by(c.started_at.desc()).offset(most - 1).limit(1)
        )
        too_old = actions.delete().where(c.server == server, c.started_at < newest.scalar_subquery())
        went += len(tx.rows(too_old.returning(c.request_id)))
    return went


def _action(row: Any) -> Action:
    return Action(
        server=row.server,
        request_id=row.request_id,
        action=row.action,
        user=row.user,
        project=row.project,
        started_at=row.started_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
        message=row.message,
        events=_events.decode(row.events),
    )
