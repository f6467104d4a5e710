"""Compares the volumes and interfaces of guests with the servers' records (RULES §23).

    with each heartbeat     nothing is read: the digest of the host's devices is kept
    every 45 s              of hosts whose digest changed since it last agreed, and of each host every ten minutes: the digest with
                            that of the records, one statement for many hosts; two differences are followed by a full report
    with each full report   guest by guest

A difference counts when two full reports in a row show it, and no operation held the server or worked on it from the first to the
second: the region counts a server's operations.  A guest of which the host says nothing is not compared.  Neither is a server to
which a host owes something: what is owed is done first, and may be what differs.

Nothing is changed here.  The differences are kept in memory; `moorage audit` shows them, looks again, and repairs.
"""

import logging
from collections.abc import Mapping, Sequence

from moorage.bus.host_messages import HostReport
from moorage.conductor.known_hosts import DeviceDifference, KnownHost, KnownHosts
from moorage.model.guest_devices import GuestDevices, devices_digest
from moorage.model.ids import ServerId
from moorage.sql import Database, label
from moorage.store.cell.recorded_devices import listed_devices
from moorage.store.region.server_standing import standings

LOOK_EVERY_S = 45.0
ALL_EVERY_S = 600.0
"""A record may change although the guest does not, for instance when a database is put back."""
HOSTS_PER_LOOK = 200
KEPT_MAX = 1_000
"""Differing servers of one host that are kept."""

logger = logging.getLogger(__name__)


class DeviceComparison:
    """For the hosts of one cell."""

    def __init__(self, database: Database, region: Database) -> None:
        self._database, self._region = database, region

    async def compare(self, known: KnownHost, report: HostReport, now: float) -> bool:
        """Compare the guests that a full report names. Returns whether another report is needed to be sure."""
        if not report.devices_digest:
            known.differing, known.devices_agreed = {}, ""
            return False
        listed = (await self._database.read(lambda tx: listed_devices(tx, [report.host])))[report.host]
        odd = {
            server: devices
            for server, devices in report.devices.items()
            if server in listed and devices.names != listed[server].names
        }
        differing = await self._settled(known, odd) if odd else {}
        kept = {  # a report that has no room for a guest says nothing of it
            server: each
            for server, each in known.differing.items()
            if server in report.guests and server not in report.devices
        }
        for server, each in differing.items():
            if each.looks == 2:
                logger.warning("host %s: %s", report.host, described(server, each.devices, listed[server]))
        known.differing = dict(list({**kept, **differing}.items())[:KEPT_MAX])
        known.devices_compared = now
        # of those that an operation holds the digest is compared again, for as long as it takes
        known.devices_agreed = report.devices_digest if len(differing) == len(odd) else None
        return any(each.looks < 2 for each in differing.values())

    async def _settled(
        self, known: KnownHost, odd: Mapping[ServerId, GuestDevices]
    ) -> dict[ServerId, DeviceDifference]:
        """Differences of servers that no operation holds, and that no host owes anything."""
        where = await self._region.read(lambda tx: standings(tx, odd))
        found: dict[ServerId, DeviceDifference] = {}
        for server, devices in odd.items():
            stands = where.get(server)
            if stands is None or stands.operation is not None or stands.deleted or stands.debts:
                continue
            before = known.differing.get(server)
            again = before is not None and (before.devices.names, before.seq) == (devices.names, stands.op_seq)
            looks = before.looks + 1 if again and before is not None else 1
            found[server] = DeviceDifference(devices, stands.op_seq, looks)
        return found

    async def compare_digests(self, hosts: KnownHosts, now: float) -> None:
        """Compare the digests of the hosts' last heartbeats with the records. `now`: monotonic, seconds."""
        due = [
            each for each in hosts if each.devices and each.wanted is None and not each.silent and _is_due(each, now)
        ]
        due.sort(key=lambda each: each.devices_compared)
        for known in await self._differing(due[:HOSTS_PER_LOOK], now):
            known.devices_differ += 1
            if known.devices_differ >= 2:
                known.devices_differ = 0
                known.want(now, hosts.spread_s(known))

    async def hosts_that_differ(self, hosts: KnownHosts, now: float) -> list[str]:
        """Compare the digests of all hosts at once; return those that differ."""
        up = [each for each in hosts if each.devices and not each.silent]
        differing = [each for each in up if each.differing]  # also what a hypervisor shows beside its driver's records
        for first in range(0, len(up), HOSTS_PER_LOOK):
            differing += await self._differing(up[first : first + HOSTS_PER_LOOK], now)
        return sorted({each.host for each in differing})

    async def _differing(self, hosts: Sequence[KnownHost], now: float) -> list[KnownHost]:
        if not hosts:
            return []
        with label("hosts"):
            listed = await self._database.read(lambda tx: listed_devices(tx, [each.host for each in hosts]))
        differing: list[KnownHost] = []
        for known in hosts:
            known.devices_compared = now
            if devices_digest(listed[known.host]) == known.devices:
                known.devices_agreed, known.devices_differ = known.devices, 0
            else:
                differing.append(known)
        return differing


def _is_due(known: KnownHost, now: float) -> bool:
    changed = known.devices != known.devices_agreed
    return now - known.devices_compared >= (LOOK_EVERY_S if changed else ALL_EVERY_S)


def described(server: ServerId, has: GuestDevices, listed: GuestDevices) -> str:
    """The difference as a sentence for the log."""
    (volumes, ports), (its_volumes, its_ports) = has.names, listed.names
    parts = [
        ("has a volume that its record does not list", volumes - its_volumes),
        ("lacks a volume that its record lists", its_volumes - volumes),
        ("has an interface that its record does not list", ports - its_ports),
        ("lacks an interface that its record lists", its_ports - ports),
    ]
    differences = "; ".join(f"it {what}: {', '.join(sorted(ids))}" for what, ids in parts if ids)
    return f"the guest of {server} differs from its record ({differences}); `moorage audit` says what to do"
