"""What must be true at rest of servers that were moved: records of moves, what the left host keeps, bindings, and what was sent."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa

from moorage.model.migration import Migration
from moorage.sql import Tx
from moorage.store.cell import migrations, servers
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage_embedded.network.store.tables import ports
from moorage_testing.leak_audit import Census, ShownServer
from moorage_testing.leak_audit_moves import CellRecord, Left, left_of, wrong_records, wrong_seconds

if TYPE_CHECKING:
    from moorage_testing.simulation.cloud import SimulatedCloud

_migration = msgspec.json.Decoder(Migration).decode


def _open(tx: Tx) -> list[Migration]:
    """Not those of servers that are shown in another cell, which has a record of the same move."""
    m, s = migrations.migrations, servers.servers
    both = m.outerjoin(s, s.c.id == m.c.server)
    query = sa.select(m.c.doc).select_from(both).where(m.c.is_open, sa.not_(sa.func.coalesce(s.c.hidden, sa.false())))
    return [_migration(row.doc) for row in tx.rows(query)]


def open_moves(cloud: "SimulatedCloud") -> list[Migration]:
    """Of all cells."""
    return [each for cell in cloud.config.cells for each in cloud.stores[cell.name].inspect(_open)]


def left_behind(cloud: "SimulatedCloud", servers: Mapping[str, ShownServer]) -> dict[str, Left]:
    """Server → what it has on the host that it left."""
    return left_of(open_moves(cloud), {each.id: each.status for each in servers.values()})


def inactive_bindings(cloud: "SimulatedCloud") -> dict[str, list[str]]:
    """Port → hosts, as the network service has them."""

    def work(tx: Tx) -> dict[str, list[str]]:
        rows = tx.rows(sa.select(ports.c.id, ports.c.doc))
        return {row.id: _others(row.doc) for row in rows}

    return {port: hosts for port, hosts in cloud.stores["network"].inspect(work).items() if hosts}


def _wrong_seconds(cloud: "SimulatedCloud", lost: Collection[str]) -> list[str]:
    """At rest the records that are not shown, and what the region says is not shown, are the same."""
    c, h = servers.servers.c, hidden_records.hidden_records.c
    living = sa.select(c.id, c.hidden).where(c.deleted_at.is_(None))
    mapped = sa.select(region_servers.servers.c.id, region_servers.servers.c.cell)
    records = [
        CellRecord(row.id, cell.name, bool(row.hidden))
        for cell in cloud.config.cells
        for row in cloud.stores[cell.name].inspect(lambda tx: tx.rows(living))
        if row.id not in lost
    ]
    shown = {row.id: row.cell for row in cloud.stores["region"].inspect(lambda tx: tx.rows(mapped))}
    opened = sa.select(h.server, h.cell).where(h.ended_at.is_(None))
    hidden = {(row.server, row.cell) for row in cloud.stores["region"].inspect(lambda tx: tx.rows(opened))}
    return wrong_seconds(records, shown, hidden)


def _others(doc: str) -> list[str]:
    return sorted(str(each["host"]) for each in msgspec.json.decode(doc)["_bindings"])


def wrong_moves(cloud: "SimulatedCloud", seen: Census) -> list[str]:
    """A move that is not ended is one that waits to be confirmed or reverted, and nothing lies where guests arrive."""
    lost = cloud.restores.touched - seen.servers.keys()
    # The operation of a lost one went with the database that was put back; tidy ends the move an hour after the delete.
    moves = [each for each in open_moves(cloud) if each.server not in lost]
    hosts = {each.id: each.host for each in seen.servers.values()}
    statuses = {each.id: each.status for each in seen.servers.values()}
    wrong = [*wrong_records(moves, hosts, statuses, seen.left), *_wrong_addresses(cloud, seen)]
    wrong += _wrong_seconds(cloud, lost)
    wrong += [
        f"{file.name} lies on {file.parent.parent.name}, and nobody takes it in"
        for file in sorted((cloud.room / "hosts").glob("*/arriving/*"))
        if file.parent.parent.name in cloud.roles
    ]
    wrong += [
        f"{file.parent.parent.name} keeps in mind that {file.name} left it"
        for file in sorted((cloud.room / "hosts").glob("*/departed/*"))
        if file.parent.parent.name in cloud.roles
    ]
    return wrong


def _wrong_addresses(cloud: "SimulatedCloud", seen: Census) -> list[str]:
    """What is shown of a card's addresses is what its port has; while a move waits, ports may keep some of the segments that they left."""
    wrong: list[str] = []
    for server, said in cloud.watch.shown.items():
        shown: dict[str, set[str]] = {}
        for each in (each for network in said["addresses"].values() for each in network):
            if each["OS-EXT-IPS:type"] == "fixed":
                shown.setdefault(each["OS-EXT-IPS-MAC:mac_addr"], set()).add(each["addr"])
        for port in seen.ports.get(server, ()):
            has = {each["ip_address"] for each in port["fixed_ips"]}
            told = shown.get(port["mac_address"], has)
            if told != has and not (server in seen.left and told < has):
                wrong.append(f"{server} is shown with {sorted(told)}, and its port {port['id']} has {sorted(has)}")
    return wrong
