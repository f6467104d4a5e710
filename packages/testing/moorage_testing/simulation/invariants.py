"""Invariants that must hold at every event and at rest, and their checks."""

import sqlite3
from collections import Counter
from typing import Any

import sqlalchemy as sa

from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage.sql import Tx
from moorage.store.region import operations
from moorage_testing.leak_audit import SHELVED_OFFLOADED, Census, ShownServer, drives_alone, in_region_of, leaks
from moorage_testing.simulation.cells import watch_records
from moorage_testing.simulation.client import ClientReply, SimulatedClient
from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.guest_duties import still_too_long
from moorage_testing.simulation.moves import inactive_bindings, left_behind, wrong_moves
from moorage_testing.simulation.order_book import Booked, OrderBook
from moorage_testing.simulation.plan import HOSTS, ZONE
from moorage_testing.simulation.stores import stores_of, wrong_disks, wrong_stores

PAGE = 1_000
RESTING = {
    "ACTIVE": PowerState.RUNNING,
    "ERROR": None,
    "SHUTOFF": PowerState.SHUTDOWN,
    "PAUSED": PowerState.PAUSED,
    "SUSPENDED": PowerState.SUSPENDED,
    "RESCUE": PowerState.RUNNING,
    "SHELVED": PowerState.SHUTDOWN,
    "SHELVED_OFFLOADED": None,
    "SOFT_DELETED": PowerState.SHUTDOWN,
    "VERIFY_RESIZE": None,
}
"""Status → what its guest does, unless something happened to it."""

_LOG = """
DROP TABLE IF EXISTS temp.simulated_claims;
CREATE TEMP TABLE simulated_claims (consumer, provider, class, change);
DROP TRIGGER IF EXISTS temp.simulated_claims_made;
DROP TRIGGER IF EXISTS temp.simulated_claims_gone;
DROP TRIGGER IF EXISTS temp.simulated_claims_changed;
CREATE TEMP TRIGGER simulated_claims_made AFTER INSERT ON main.allocations
BEGIN INSERT INTO simulated_claims VALUES (new.consumer, new.provider, new.class, new.used); END;
CREATE TEMP TRIGGER simulated_claims_gone AFTER DELETE ON main.allocations
BEGIN INSERT INTO simulated_claims VALUES (old.consumer, old.provider, old.class, -old.used); END;
CREATE TEMP TRIGGER simulated_claims_changed AFTER UPDATE ON main.allocations
BEGIN INSERT INTO simulated_claims VALUES (new.consumer, new.provider, new.class, new.used - old.used); END;
"""


def _charged(servers: dict[str, ShownServer]) -> dict[str, dict[str, int]]:
    counted: dict[str, Counter[str]] = {}
    for each in servers.values():
        counts = counted.setdefault(each.project, Counter())
        counts.update({"instances": 1, "cores": each.vcpus, "ram": each.ram_mib})
    return {project: dict(counts) for project, counts in counted.items()}


class InvariantWatch:
    """Checks every committed claim, and records what was acknowledged."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        self.cloud = cloud
        self.book = OrderBook()
        self.admin = SimulatedClient(cloud, cloud.known.admin_token)
        self.demo = SimulatedClient(cloud, cloud.known.demo_token)
        self._asked: dict[str, dict[str, Any]] = {}
        """What each accepted boot asked for, by server."""
        self._claimed: dict[str, str] = {}
        """The host that each server claimed last."""
        self._left: dict[str, str] = {}
        """The one before that."""
        self._shown_power: dict[str, int] = {}
        self.shown: dict[str, dict[str, Any]] = {}
        """Every server, as an administrator was shown it in the last look."""
        self._hosts = {provider: host for host, provider in cloud.known.providers.items()}
        self.listen()
        cloud.stores["region"].after_commit.append(self._committed)
        if len(cloud.config.cells) > 2:
            watch_records(cloud)
        for host in HOSTS[-2:]:
            self.book.setting(host, "zone", usual=True)

    def listen(self) -> None:
        """Record claims from now on; to be called again when the region's database is replaced."""
        self.cloud.stores["region"].raw.executescript(_LOG)

    # ------------------------------------------------------------------------------------------------- promises

    def answered(self, what: str, reply: ClientReply) -> None:
        """Count and note an answer."""
        if reply.status in {0, -1} or reply.status >= 500:
            self.book.unanswered += 1
        elif reply.status >= 400:
            self.book.refused += 1
        else:
            self.book.answered += 1
        said = "" if reply.status < 400 else f" {str(reply.body)[:120]}"
        self.cloud.trace.note("answer", f"{what}: {reply.status}{said}")

    def accepted_boot(self, booked: Booked, args: dict[str, Any]) -> None:
        self._asked[booked.id] = args
        self.cloud.trace.note("order", f"s{booked.ref} is {booked.id}")

    def host_of(self, ref: int) -> str | None:
        """Where the server ordered as this is to be, by its claim."""
        return self._claimed.get(self.book.of(ref).id)

    def left_by(self, ref: int) -> str | None:
        """The host that it had claimed before that: where a server that is moved comes from."""
        return self._left.get(self.book.of(ref).id)

    def resized(self, booked: Booked) -> None:
        """Nobody knows any more which flavor it has."""
        if booked.id in self._asked:
            self._asked[booked.id] = {**self._asked[booked.id], "flavor": "any"}

    # ------------------------------------------------------------------------------------------------- claims

    def _committed(self, raw: sqlite3.Connection, label: str) -> None:
        rows = raw.execute("SELECT consumer, provider, class, change FROM temp.simulated_claims").fetchall()
        if not rows:
            return
        raw.execute("DELETE FROM temp.simulated_claims")
        net: Counter[tuple[str, str]] = Counter()
        mine: Counter[tuple[str, str, str]] = Counter()
        for consumer, provider, resource, change in rows:
            net[provider, resource] += change
            mine[consumer, provider, resource] += change
        for (provider, resource), change in net.items():
            if change > 0:
                self._within_capacity(raw, provider, resource, label)
        for (consumer, provider, resource), change in mine.items():
            if change > 0 and resource == "VCPU" and provider in self._hosts:
                self.cloud.trace.note("claim", f"{consumer[:8]} on {self._hosts[provider]} ({label})")
                if self._claimed.get(consumer, self._hosts[provider]) != self._hosts[provider]:
                    self._left[consumer] = self._claimed[consumer]
                self._claimed[consumer] = self._hosts[provider]
                restored = self.cloud.restores.begun and not label  # what had been claimed before is written again
                if (
                    net[provider, resource] > 0 and not restored
                ):  # else it goes from a move to its server, or to the move
                    self._check_host_settings(consumer, self._hosts[provider])

    def _within_capacity(self, raw: sqlite3.Connection, provider: str, resource: str, label: str) -> None:
        found = raw.execute(
            "SELECT used, cap FROM inventories WHERE provider = ? AND class = ?", (provider, resource)
        ).fetchone()
        if found is None or found[0] > found[1]:
            self.cloud.violated(
                f"a claim ({label}) beyond what {provider} has of {resource}: (used, capacity) = {found}"
            )

    def _check_host_settings(self, consumer: str, host: str) -> None:
        """What an administrator was answered 200 for holds for every claim that commits after it."""
        asked = self._asked.get(consumer)
        for what in ("disabled", "forced_down"):
            word = self.book.setting(host, what)
            if word.certain and word.value:
                self.cloud.violated(f"{consumer} claimed {host}, of which an administrator was told that it is {what}")
        if asked is None:
            return
        zone = self.book.setting(host, "zone")
        if zone.certain and asked.get("zone") == ZONE and not zone.value:
            self.cloud.violated(f"{consumer} claimed {host}, which is not in {ZONE}")
        trait = self.book.setting(host, "trait")
        if trait.certain and asked.get("flavor") == "traited" and not trait.value:
            self.cloud.violated(f"{consumer} claimed {host}, which does not have the trait that its flavor requires")

    # ------------------------------------------------------------------------------------------------- at rest

    def unended(self) -> list[str]:
        """Operations that are not ended, by a look into the region's database."""

        def work(tx: Tx) -> list[str]:
            table = operations.operations
            rows = [
                row
                for row in tx.rows(sa.select(table).where(table.c.ended_at.is_(None)))
                if row.server not in self.cloud.restores.by_hand
            ]
            return [f"{row.saga} of {row.server} is {row.status} {row.waiting or row.fault or ''}" for row in rows]

        return self.cloud.stores["region"].inspect(work)

    def stuck_servers(self) -> set[str]:
        """Servers with operations that wait for a person."""
        read = "SELECT server FROM operations WHERE ended_at IS NULL AND status = 'stuck'"
        return {row[0] for row in self.cloud.stores["region"].raw.execute(read)}

    async def wrong(self) -> list[str]:
        """Everything that is not as it must be when nothing happens any more; empty: all is well."""
        if unended := self.unended():
            return [f"unfinished: {each}" for each in unended]
        seen = await self._census()
        if isinstance(seen, str):
            return [seen]
        wrong = [*leaks(seen), *self._broken_promises(seen), *self._not_as_shown(seen), *wrong_disks(self.cloud, seen)]
        wrong += [*wrong_moves(self.cloud, seen), *still_too_long(self.cloud)]
        stored = await wrong_stores(self.cloud, seen)
        excepted = {*self.cloud.lost, *self.cloud.restores.excepted()}
        return [each for each in [*wrong, *stored] if not any(server in each for server in excepted)]

    def _broken_promises(self, seen: Census) -> list[str]:
        wrong: list[str] = []
        excepted = self.cloud.restores.excepted()
        for booked in self.book.servers.values():
            if not booked.id or booked.id in excepted or (booked.id in self.cloud.restores.touched and booked.deleted):
                continue
            shown = seen.servers.get(booked.id)
            if booked.deleted and shown is not None and not booked.restore_asked:
                wrong.append(f"s{booked.ref} {booked.id}: its delete was accepted, and it is {shown.status}")
            elif shown is None and not booked.delete_asked:
                wrong.append(f"s{booked.ref} {booked.id} was accepted, and nobody knows it")
            elif shown is not None and shown.status not in RESTING:
                wrong.append(f"s{booked.ref} {booked.id} is still {shown.status}")
            locked = None if shown is None else self.shown[booked.id]["locked"]
            if locked is not None and booked.locked.certain and locked is not booked.locked.value:
                wrong.append(f"s{booked.ref} {booked.id} is shown locked={locked}, and its owner was told otherwise")
        return wrong

    def _not_as_shown(self, seen: Census) -> list[str]:
        """The shown power state is that of the guest; ACTIVE is on or crashed, SHUTOFF is off.

        A hypervisor that executed a command and reported a failure leaves the status unchanged: the action ended in Error.
        """
        wrong: list[str] = []
        reset = {booked.id for booked in self.book.servers.values() if booked.reset}
        for server, power in self._shown_power.items():
            where = self.cloud.guests.get(ServerId(server), {})
            if server not in seen.servers:
                continue  # one of which nothing is compared
            status = seen.servers[server].status
            left = seen.left.get(server)
            if left is not None and where.get(left.host) is PowerState.RUNNING:
                wrong.append(f"{server} was moved, and its guest on {left.host} runs")
            host = seen.servers[server].host
            if host is None or host not in where:
                continue  # the census says what is wrong
            state = where[host]
            if server in reset:
                continue
            wrongly_off = status in {"ACTIVE", "RESCUE"} and state is PowerState.SHUTDOWN
            wrongly_on = status != "ACTIVE" and RESTING[status] is not None and state is PowerState.RUNNING
            wrongly_on = wrongly_on and RESTING[status] is not PowerState.RUNNING
            if power != state or ((wrongly_off or wrongly_on) and host not in self.cloud.half_done):
                wrong.append(f"{server} is shown {status} with power state {power}, and its guest is {state.name}")
        return wrong

    async def _census(self) -> Census | str:
        shown = await self.admin.ask(
            "compute", "GET", "/servers/detail", all_tenants="1", limit=str(PAGE), soft_deleted="True"
        )
        ports = await self.admin.ask("network", "GET", "/ports")
        subnets = await self.admin.ask("network", "GET", "/subnets", ip_version="4")
        for reply in (shown, ports, subnets):
            if reply.status != 200:
                return f"the cloud cannot be looked at: {reply.status} {str(reply.body)[:200]}"
        servers: dict[str, ShownServer] = {}
        excepted = self.cloud.restores.excepted()
        reset = {booked.id for booked in self.book.servers.values() if booked.reset}
        self._shown_power.clear()
        self.shown.clear()
        for each in shown.body["servers"]:
            if each["status"] == "UNKNOWN":
                if each["id"] not in excepted:
                    return f"{each['id']} is UNKNOWN"
                continue
            left_host = each["OS-EXT-SRV-ATTR:host"] is None and each["id"] in reset
            servers[each["id"]] = ShownServer(
                each["id"],
                SHELVED_OFFLOADED if left_host else each["status"],  # an administrator has said something else of it
                each["OS-EXT-SRV-ATTR:host"],
                each["tenant_id"],
                each["flavor"]["vcpus"],
                each["flavor"]["ram"],
                tuple(one["id"] for one in each["os-extended-volumes:volumes_attached"]),
            )
            self.shown[each["id"]] = each
            self._shown_power[each["id"]] = each["OS-EXT-STS:power_state"]
        by_device: dict[str, list[dict[str, Any]]] = {}
        for port in ports.body["ports"]:
            by_device.setdefault(port["device_id"], []).append(port)
        segments = {each["id"]: each["segment_id"] for each in subnets.body["subnets"] if each.get("segment_id")}
        held, drift, used, open_ones = self.cloud.stores["region"].inspect(in_region_of)
        guests = {str(server): sorted(hosts) for server, hosts in self.cloud.guests.items()}
        for each in excepted:
            for found in (guests, by_device, held, servers):
                found.pop(each, None)
        if excepted:
            used = _charged(servers)  # what is missing is charged, and not shown
        drives = drives_alone(self.cloud.room / "hosts")
        stores = await stores_of(self.cloud, self.admin)
        if isinstance(stores, str):
            return stores
        left, inactive = left_behind(self.cloud, servers), inactive_bindings(self.cloud)
        return Census(
            servers, guests, by_device, held, drift, used, open_ones, segments, drives, stores, left, inactive
        )
