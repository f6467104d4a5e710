"""What must be true at rest of servers that were moved: records of moves, what the left host keeps, bindings, and what was sent."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa

from moorage.embedded.network.store.tables import ports
from moorage.model.migration import Migration, MigrationStatus
from moorage.sql import Tx
from moorage.store.cell import migrations
from moorage.testing.census import Census, Seen
from moorage.testing.census_moves import Left

if TYPE_CHECKING:
    from moorage.testing.simulation.cloud import Cloud

VERIFY = "VERIFY_RESIZE"
MAY_WAIT = frozenset({VERIFY, "ERROR"})
"""Statuses of a server that can be confirmed or reverted; the second is an administrator's word."""
_migration = msgspec.json.Decoder(Migration).decode


def _open(tx: Tx) -> list[Migration]:
    return [
        _migration(row.doc)
        for row in tx.rows(sa.select(migrations.migrations.c.doc).where(migrations.migrations.c.is_open))
    ]


def open_moves(cloud: "Cloud") -> list[Migration]:
    """Of all cells."""
    return [each for cell in cloud.config.cells for each in cloud.stores[cell.name].look(_open)]


def left_behind(cloud: "Cloud", servers: Mapping[str, Seen]) -> dict[str, Left]:
    """Server → what it has on the host that it left."""
    found: dict[str, Left] = {}
    for each in open_moves(cloud):
        old, shown = each.old_flavor, servers.get(each.server)
        if (
            each.status is MigrationStatus.FINISHED
            and old is not None
            and shown is not None
            and shown.status in MAY_WAIT
        ):
            found[each.server] = Left(each.uuid, each.source_host, old.vcpus, old.ram_mib)
    return found


def inactive_bindings(cloud: "Cloud") -> dict[str, list[str]]:
    """Port → hosts, as the network service has them."""

    def work(tx: Tx) -> dict[str, list[str]]:
        rows = tx.rows(sa.select(ports.c.id, ports.c.doc))
        return {row.id: _others(row.doc) for row in rows}

    return {port: hosts for port, hosts in cloud.stores["network"].look(work).items() if hosts}


def _others(doc: str) -> list[str]:
    return sorted(str(each["host"]) for each in msgspec.json.decode(doc)["_bindings"])


def wrong_moves(cloud: "Cloud", seen: Census) -> list[str]:
    """A move that is not ended is one that waits to be confirmed or reverted, and nothing lies where guests arrive."""
    wrong: list[str] = []
    for each in open_moves(cloud):
        if each.server in cloud.restores.touched and each.server not in seen.servers:
            continue  # its operation is lost with the database that was put back, and tidy ends the move an hour after the delete
        if seen.left.get(each.server, None) is None or seen.left[each.server].move != each.uuid:
            said = seen.servers[each.server].status if each.server in seen.servers else "gone"
            wrong.append(f"the move {each.uuid} of {each.server}, which is {said}, is {each.status.value}")
    wrong += [
        f"{server.id} is {VERIFY}, and no move of it is recorded"
        for server in seen.servers.values()
        if server.status == VERIFY and server.id not in seen.left
    ]
    for server, left in seen.left.items():
        if server in seen.servers and seen.servers[server].host == left.host:
            wrong.append(f"{server} has left {left.host}, and is there")
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
