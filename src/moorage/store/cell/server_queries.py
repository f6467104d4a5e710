"""Reads about many servers of a cell without their whole records: host, power state, ports, attachments."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.ids import ServerId
from moorage.model.migration import MigrationType
from moorage.model.server import ApiPowerState, Server, VmState
from moorage.sql import Tx
from moorage.store.cell.migrations import migrations
from moorage.store.cell.servers import EPOCHS_PER_OPERATION, IN_WRONG_POWER_STATE, servers
from moorage.store.servers import record_columns, server_of

IDS_PER_STATEMENT = 500
NO_STATE = ApiPowerState.NOSTATE


class ServerPlace(msgspec.Struct, frozen=True):
    """The host and state in a server's record, without the record."""

    id: ServerId
    host: str | None
    vm_state: VmState
    power_state: int
    deleted: bool
    seq: int
    """The sequence number of the operation that last wrote it."""
    under_way: bool = False
    """It shows a task: the operation that wrote it was to write it again."""
    hidden: bool = False
    """The row is sealed: another cell's record is shown, or is about to be."""


_PLACED = (
    *(
        servers.c[name]
        for name in ("id", "host", "vm_state", "power_state", "deleted_at", "op_epoch", "task_state", "hidden")
    ),
)


_ON_HOST = sa.select(*_PLACED).where(servers.c.host == sa.bindparam("b_host"), servers.c.deleted_at.is_(None))
_AMONG = sa.select(*_PLACED).where(servers.c.id.in_(sa.bindparam("b_servers", expanding=True)))


def where_placed(tx: Tx, host: str, named: Collection[ServerId] = ()) -> dict[ServerId, ServerPlace]:
    """All servers that belong on a host, and those of `named` that this cell knows, also deleted ones or ones on other
    hosts.
    """
    rows = list(tx.rows(_ON_HOST, {"b_host": host}))
    missing = sorted(set(named) - {row.id for row in rows})
    for first in range(0, len(missing), IDS_PER_STATEMENT):
        rows += tx.rows(_AMONG, {"b_servers": missing[first : first + IDS_PER_STATEMENT]})
    return {
        row.id: ServerPlace(
            row.id,
            row.host,
            VmState(row.vm_state),
            row.power_state,
            row.deleted_at is not None,
            row.op_epoch // EPOCHS_PER_OPERATION,
            row.task_state is not None,
            bool(row.hidden),
        )
        for row in rows
    }


_POWER_STATES = sa.select(servers.c.id, servers.c.host, servers.c.power_state).where(
    servers.c.host.in_(sa.bindparam("b_hosts", expanding=True)),
    servers.c.deleted_at.is_(None),
    sa.not_(servers.c.hidden),
    servers.c.power_state != NO_STATE,
)


_IN_WRONG_POWER_STATE = (
    sa.select(*record_columns(servers))
    .where(IN_WRONG_POWER_STATE, servers.c.id > sa.bindparam("b_after"), sa.not_(servers.c.hidden))
    .order_by(servers.c.id)
    .limit(sa.bindparam("b_limit", type_=sa.Integer))
)


def in_wrong_power_state(tx: Tx, after: str, limit: int) -> list[Server]:
    """The cell's servers behind `after`, by id, whose guests were last seen in a power state that their own state forbids
    (`IN_WRONG_POWER_STATE`); without those that another cell shows.
    """
    return [server_of(row) for row in tx.rows(_IN_WRONG_POWER_STATE, {"b_after": after, "b_limit": limit})]


_LEFT_BEHIND = (
    sa.select(migrations.c.source_host, migrations.c.server, migrations.c.type)
    .select_from(migrations.join(servers, servers.c.id == migrations.c.server))
    .where(
        migrations.c.is_open,
        migrations.c.source_host.in_(sa.bindparam("b_hosts", expanding=True)),
        servers.c.deleted_at.is_(None),
        sa.or_(servers.c.host != migrations.c.source_host, servers.c.hidden),
    )
)


def power_states(tx: Tx, hosts: Collection[str]) -> dict[str, dict[ServerId, int]]:
    """Host → servers that have a guest there, with the last observed power state: two statements for many hosts.

    A server that was moved away, perhaps into another cell, and may come back has a second guest, off, on its old host.
    An evacuated server has a guest of unknown state there; so no heartbeat of a returning host matches, with or without
    that guest, until the host's full report has settled what was evacuated from it.
    """
    by_host: dict[str, dict[ServerId, int]] = {host: {} for host in hosts}
    for row in tx.rows(_LEFT_BEHIND, {"b_hosts": list(hosts)}):
        evacuated = row.type == MigrationType.EVACUATION.value
        by_host[row.source_host][row.server] = ApiPowerState.NOSTATE if evacuated else ApiPowerState.SHUTDOWN
    for row in tx.rows(_POWER_STATES, {"b_hosts": list(hosts)}):
        by_host[row.host][row.id] = row.power_state
    return by_host


class _Card(msgspec.Struct, frozen=True):
    """The fields of a NIC that `listed_ports` reads; the rest is not decoded."""

    port: str | None = None


class _Cards(msgspec.Struct, frozen=True):
    nics: tuple[_Card, ...] = ()


_cards = msgspec.json.Decoder(_Cards)


_DOCUMENTS = sa.select(servers.c.id, servers.c.doc).where(
    servers.c.id.in_(sa.bindparam("b_ids", expanding=True)), servers.c.deleted_at.is_(None)
)


def _documents_of(tx: Tx, ids: Sequence[ServerId]) -> Sequence[Any]:
    return tx.rows(_DOCUMENTS, {"b_ids": list(ids)}) if ids else ()


def listed_ports(tx: Tx, ids: Sequence[ServerId]) -> dict[ServerId, frozenset[str]]:
    """The ports in the records of those of these servers that are here and not deleted."""
    return {
        ServerId(row[0]): frozenset(each.port for each in _cards.decode(row[1]).nics if each.port is not None)
        for row in _documents_of(tx, ids)
    }


class _Device(msgspec.Struct, frozen=True):
    """The attachment of a block device; the rest is not decoded."""

    attachment: str | None = None


class _Devices(msgspec.Struct, frozen=True):
    block_devices: tuple[_Device, ...] = ()


_devices = msgspec.json.Decoder(_Devices)


def listed_attachments(tx: Tx, ids: Sequence[ServerId]) -> dict[ServerId, frozenset[str]]:
    """The volume attachments in the records of those of these servers that are here and not deleted."""
    return {
        ServerId(row[0]): frozenset(
            each.attachment for each in _devices.decode(row[1]).block_devices if each.attachment
        )
        for row in _documents_of(tx, ids)
    }


WITH_VOLUME_MAX = 50


def with_volume(tx: Tx, volume: str) -> list[Server]:
    """Servers here to which the volume is attached, at most `WITH_VOLUME_MAX`. It is called rarely, so there is no
    index.
    """
    rows = tx.rows(
        sa.select(*record_columns(servers))
        .where(servers.c.deleted_at.is_(None), servers.c.doc.contains(volume, autoescape=True))
        .limit(WITH_VOLUME_MAX)
    )
    candidates = [server_of(row) for row in rows]
    return [each for each in candidates if any(device.volume == volume for device in each.block_devices)]
