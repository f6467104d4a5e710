"""The volumes and ports that records list for the servers of some hosts, without the whole records."""

from collections.abc import Collection

import msgspec
import sqlalchemy as sa

from moorage.model.guest_devices import GuestDevices, GuestInterface, GuestVolume
from moorage.model.ids import ServerId
from moorage.model.server import VmState
from moorage.sql import Tx
from moorage.store.cell.migrations import migrations
from moorage.store.cell.servers import servers

WITH_DEVICES = frozenset(
    {VmState.ACTIVE, VmState.STOPPED, VmState.PAUSED, VmState.SUSPENDED, VmState.RESCUED, VmState.SOFT_DELETED}
)
"""In these states, and while no move of it is open, a server on a host has a guest with the devices that its record lists."""

_LISTED = sa.select(servers.c.id, servers.c.host, servers.c.doc).where(
    servers.c.host.in_(sa.bindparam("b_hosts", expanding=True)),
    servers.c.deleted_at.is_(None),
    sa.not_(servers.c.hidden),
    servers.c.vm_state.in_([each.value for each in sorted(WITH_DEVICES)]),
    sa.not_(sa.exists().where(migrations.c.server == servers.c.id, migrations.c.is_open)),
)


class _Card(msgspec.Struct, frozen=True):
    port: str | None = None
    mac: str = ""


class _Device(msgspec.Struct, frozen=True):
    volume: str | None = None
    attachment: str | None = None
    bdm: str = ""


class _Record(msgspec.Struct, frozen=True):
    """The fields of a record that are compared; the rest is not decoded."""

    nics: tuple[_Card, ...] = ()
    block_devices: tuple[_Device, ...] = ()


_record = msgspec.json.Decoder(_Record)


def listed_devices(tx: Tx, hosts: Collection[str]) -> dict[str, dict[ServerId, GuestDevices]]:
    """Host → servers that have a guest there, with the devices that their records list: one statement for many hosts."""
    by_host: dict[str, dict[ServerId, GuestDevices]] = {host: {} for host in hosts}
    for row in tx.rows(_LISTED, {"b_hosts": list(hosts)}) if hosts else ():
        record = _record.decode(row.doc)
        by_host[row.host][row.id] = GuestDevices(
            tuple(
                GuestVolume(each.volume, each.attachment or "", each.bdm)
                for each in record.block_devices
                if each.volume is not None
            ),
            tuple(GuestInterface(each.port or "", each.mac) for each in record.nics if each.port or each.mac),
        )
    return by_host
