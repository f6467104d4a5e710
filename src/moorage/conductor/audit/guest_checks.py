"""Checks the guests that hosts reported against records."""

from collections.abc import Iterator

from moorage.conductor.audit.finding_builder import finding
from moorage.conductor.audit.snapshot import ServicesSnapshot, SnapshotPage
from moorage.model.audit import Finding
from moorage.model.migration import MigrationStatus
from moorage.model.server import VmState

WITH_GUEST = frozenset(
    {
        VmState.ACTIVE,
        VmState.STOPPED,
        VmState.PAUSED,
        VmState.SUSPENDED,
        VmState.RESCUED,
        VmState.RESIZED,
        VmState.SHELVED,
        VmState.SOFT_DELETED,
    }
)
"""In these states a server on a host has a guest; in ERROR it may have one."""


def of_servers(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Servers without their guest, and servers with an additional one."""
    for _, server in page.settled:
        if server.host is None or server.host not in site.guests:
            continue
        hosts = page.guests.get(server.id, [])
        if server.host not in hosts and server.vm_state in WITH_GUEST:
            yield finding("guest_missing", server.id, server.host, server.id, expected="a guest", found="none")
        leaving = {
            each.source_host for each in page.moves.get(server.id, []) if each.status is not MigrationStatus.DONE
        }
        leaving |= {str(each.dest_host) for each in page.moves.get(server.id, [])}
        for host in sorted(set(hosts) - leaving - {server.host}):
            kind = "guest_on_two_hosts" if server.host in hosts else "guest_elsewhere"
            yield finding(kind, server.id, host, server.id, expected=server.host, found=", ".join(sorted(hosts)))


def guests_without_server(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Guests whose servers are gone, or are on no host."""
    for id, hosts in sorted(page.guests.items()):
        where = page.mapped.get(id)
        if where is None or where.operation is not None or page.moves.get(id):
            continue
        record = page.record(id)
        if where.deleted or (record is not None and record.host is None):
            whose = "a deleted server" if where.deleted else "a server that is on no host"
            for host in sorted(hosts):
                yield finding("guest_orphaned", id, host, id, expected="none", found=f"a guest of {whose}")


def unknown(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Guests that neither the region nor a cell knows; they are not touched (RULES §22)."""
    if not site.cells_complete:
        return
    for id, hosts in sorted(page.guests.items()):
        if id not in page.mapped and id not in page.records and id not in page.gone:
            for host in sorted(hosts):
                yield finding("guest_unknown", id, host, id, expected="none", found="a guest of no server")
