"""The state of a process as metrics. Each scrape reads it from values that the process's parts keep anyway."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from moorage import __version__
from moorage.conductor.bulkheads import KINDS
from moorage.drivers.guest_life import SpaceWatcher
from moorage.main.observability.database_reads import CachedRead, CachedReads
from moorage.main.observability.metric_families import FAMILIES
from moorage.main.observability.sources import Sources
from moorage.operations.cell_databases import CellDatabase
from moorage.scheduler.lacks import CAUSES
from moorage.sql import Database, DatabaseLoad
from moorage.sql.postgresql import PostgresqlDatabase
from moorage.sql.sqlite import SqliteDatabase
from moorage.store.region.counts import OPEN_STATES, Backlog
from moorage.store.region.waiting import CauseCount

if TYPE_CHECKING:
    from moorage.conductor.reconcile_loop import ReconcileLoop

Value: TypeAlias = tuple[Sequence[str], float]
US = 1_000_000


def shown(name: str, *values: Value) -> Metric:
    """Build one family of `FAMILIES` with these samples; its name must be in that table."""
    family = FAMILIES[name]
    kind = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
    made = kind(name, family.help, labels=family.labels)
    for labels, value in values:
        made.add_metric(list(labels), float(value))
    return made


def one(name: str, value: float) -> Metric:
    """Build a family without labels."""
    return shown(name, ((), value))


@dataclass(eq=False)
class ProcessMetricsCollector(Collector):
    """Collects the metrics of one process; `sources` may be set after it is made."""

    role: str
    reads: CachedReads
    ready: Callable[[], bool]
    sources: Sources = field(default_factory=Sources)

    @override
    def collect(self) -> Iterator[Metric]:
        version = (__version__, self.role, platform.python_version())
        yield shown("moorage_build_info", (version, 1))
        yield one("moorage_ready", self.ready())
        yield from self._http_servers()
        yield from self._databases()
        yield from self._waiting()
        yield from self._conductor()
        yield from self._hosts()
        yield from self._agents()
        yield from self._bus()
        yield from self._services()
        if (engine := self.sources.engine) is not None:
            yield one("moorage_picture_age_seconds", engine.age_s)
            yield one("moorage_picture_hosts", len(engine.picture.slots_by_name))
        if (proxy := self.sources.proxy) is not None:
            yield one("moorage_consoles_open", proxy.consoles)

    def _http_servers(self) -> Iterator[Metric]:
        keepers = {name: door.doorkeeper for name, door in self.sources.doors.items()}
        if keepers:
            yield shown("moorage_connections", *(((name,), keeper.inside) for name, keeper in keepers.items()))
            refused = {
                (name, str(status)): n for name, keeper in keepers.items() for status, n in keeper.refused.items()
            }
            yield shown("moorage_refused_total", *refused.items())

    def _databases(self) -> Iterator[Metric]:
        databases = self.sources.databases
        loads = {name: load for name, each in databases.items() if (load := load_of(each)) is not None}
        yield shown("moorage_database_answers", *(((name,), cached.answers) for name, cached in self.reads.of.items()))
        yield shown("moorage_database_connections", *(((name,), load.size) for name, load in loads.items()))
        yield shown("moorage_database_connections_in_use", *(((name,), load.in_use) for name, load in loads.items()))
        yield shown("moorage_database_waiting", *(((name,), load.waiting) for name, load in loads.items()))
        for name, counts in (("statements", "statements"), ("commits", "commits")):
            yield shown(
                f"moorage_database_{name}_total",
                *(((shown_as,), _sum(getattr(each.meter, counts), each.name)) for shown_as, each in databases.items()),
            )

    def _waiting(self) -> Iterator[Metric]:
        """The queues in the databases at their last read."""
        readings, now_us = self.reads.shown(), time.time_ns() // 1000
        if (region := readings.get("region")) is not None and region.inbox is not None:
            known = {(each.saga, each.state): each for each in region.operations}
            keys = [(saga, state) for saga in sorted({saga for saga, _ in known}) for state in OPEN_STATES]
            yield shown("moorage_operations", *((key, known[key].count if key in known else 0) for key in keys))
            yield shown(
                "moorage_operations_oldest_seconds",
                *((key, max(0.0, (now_us - each.oldest_at) / US)) for key, each in known.items()),
            )
            for name, values in of_waiting(region.waiting, now_us).items():
                yield shown(name, *values)
            if (owed := region.debts) is not None:
                yield one("moorage_debts", owed.debts)
                yield one(
                    "moorage_debts_oldest_seconds", max(0.0, (now_us - owed.oldest_at) / US) if owed.debts else 0.0
                )
            yield one("moorage_inbox_events", region.inbox.count)
            yield one("moorage_inbox_oldest_seconds", _age_s(region.inbox, now_us))
        outboxes = {name: each.outbox for name, each in readings.items() if each.outbox is not None}
        if outboxes:
            yield shown("moorage_outbox_rows", *(((name,), each.count) for name, each in outboxes.items()))
            yield shown(
                "moorage_outbox_oldest_seconds", *(((name,), _age_s(each, now_us)) for name, each in outboxes.items())
            )

    def _conductor(self) -> Iterator[Metric]:
        conductor, rounds = self.sources.conductor, self.sources.rounds
        if conductor is not None:
            standing = {kind: conductor.bulkheads.standing(kind) for kind in KINDS}
            for place, name in enumerate(("places", "taken", "line")):
                yield shown(f"moorage_conductor_{name}", *(((kind,), each[place]) for kind, each in standing.items()))
            yield one("moorage_conductors_living", len(conductor.peers.living))
            yield one("moorage_conductor_leads", conductor.leads)
            yield one("moorage_lease_held", conductor.alive)
            yield one("moorage_lease_left_seconds", max(0.0, conductor.lease.left_s()))
            yield one("moorage_leases_lost_total", conductor.lease.lost)
        if (waker := self.sources.waker) is not None:
            yield shown("moorage_wakeups_total", *(((why,), count) for why, count in waker.woken.items()))
            yield one("moorage_wakeups_in_vain_total", waker.in_vain)
            yield one("moorage_waiting_searches_total", waker.searches)
        if conductor is not None and (region := self.sources.region) is not None:
            records = region.engine.decision_records
            yield shown("moorage_decision_records_total", *(((outcome,), count) for outcome, count in records.items()))
        if rounds is not None:
            last = {name: runs[-1] for name, runs in rounds.runs.items() if runs}
            now = time.time()
            yield shown(
                "moorage_round_age_seconds", *(((name,), max(0.0, now - run.began_at)) for name, run in last.items())
            )
            yield shown("moorage_round_failed", *(((name,), run.problem is not None) for name, run in last.items()))
            if conductor is not None and conductor.leads:
                yield shown("moorage_doubtful_servers", *doubtful_by_cell(rounds))

    def _hosts(self) -> Iterator[Metric]:
        if (hosts := self.sources.hosts) is not None:
            yield one("moorage_commands_in_flight", hosts.under_way)
            cells = [cell.senders for cell in self.sources.cells]
            yield one("moorage_bus_forged_total", hosts.forged + sum(each.forged for each in cells))
            yield one("moorage_bus_excess_total", hosts.excess + sum(each.excess for each in cells))
        beats = {str(cell.cell): cell.beats() for cell in self.sources.cells}
        if beats:
            yield shown(
                "moorage_hosts",
                *(
                    ((cell, state), getattr(each, state))
                    for cell, each in beats.items()
                    for state in ("up", "silent", "down")
                ),
            )
            yield shown("moorage_beat_oldest_seconds", *(((cell,), each.oldest_s) for cell, each in beats.items()))
            yield shown(
                "moorage_ports_not_wired",
                *(
                    ((str(cell.cell), known.host), len(known.not_wired))
                    for cell in self.sources.cells
                    for known in cell.known
                    if known.not_wired
                ),
            )

    def _agents(self) -> Iterator[Metric]:
        agents = self.sources.agents()
        if not agents:
            return
        home = sum(agent.home.is_set() for agent in agents)
        yield shown("moorage_agents", (("home",), home), (("away",), len(agents) - home))
        yield one("moorage_agent_jobs_waiting", sum(agent.jobs[0] for agent in agents))
        yield one("moorage_agent_lanes", sum(agent.jobs[1] for agent in agents))
        waiting = [each.driver.waiting_for_space for each in agents if isinstance(each.driver, SpaceWatcher)]
        yield one("moorage_guests_without_space", sum(map(len, waiting)))

    def _bus(self) -> Iterator[Metric]:
        if (bus := self.sources.bus) is None:
            return
        yield one("moorage_bus_healthy", bus.healthy)
        yield one("moorage_bus_outages_total", bus.outages)
        yield one("moorage_bus_published_total", bus.published.total())
        yield one("moorage_bus_lost_total", bus.lost)

    def _services(self) -> Iterator[Metric]:
        lost: dict[str, int] = {}
        circuits: dict[str, int] = {}
        refused: dict[str, int] = {}
        for each in self.sources.services:
            lost[each.name] = lost.get(each.name, 0) + each.lost
        for breaker in dict.fromkeys(each.breaker for each in self.sources.services):
            circuits[breaker.name] = circuits.get(breaker.name, 0) + breaker.circuits_open
            refused[breaker.name] = refused.get(breaker.name, 0) + breaker.refused
        for database in self.sources.databases.values():
            if isinstance(database, CellDatabase):
                circuits[f"database of {database.name}"] = len(database.circuits)
        if lost:
            yield shown("moorage_calls_lost_total", *(((name,), count) for name, count in lost.items()))
            yield shown("moorage_breaker_refused_total", *(((name,), count) for name, count in refused.items()))
        if circuits:
            yield shown("moorage_breaker_open", *(((name,), count) for name, count in circuits.items()))


def of_waiting(counts: Mapping[str, CauseCount], now_us: int) -> dict[str, list[Value]]:
    """Every cause has its sample, also where nobody waits."""
    nobody = CauseCount(0, now_us)
    each = {cause: counts.get(cause, nobody) for cause in CAUSES}
    return {
        "moorage_waiting_servers": [((cause,), count.servers) for cause, count in each.items()],
        "moorage_waiting_servers_oldest_seconds": [
            ((cause,), max(0.0, (now_us - count.oldest_at) / US)) for cause, count in each.items()
        ],
    }


def doubtful_by_cell(rounds: "ReconcileLoop") -> list[Value]:
    """The counts of the last round that succeeded; a cell that did not answer it has none."""
    done = next((run.did for run in reversed(rounds.runs.get("doubtful_servers", ())) if run.problem is None), None)
    return [] if done is None else [((cell,), count) for cell, count in done.doubtful.items()]


def load_of(database: Database) -> DatabaseLoad | None:
    """Return the load of a database's connections; None: the database is absent here."""
    inner = database.inner if isinstance(database, CellDatabase) else database
    return inner.load if isinstance(inner, SqliteDatabase | PostgresqlDatabase) else None


def _sum(counts: dict[tuple[str, str], int], database: str) -> int:
    """The sum of the counts of one database; another thread may count meanwhile."""
    return sum(count for (name, _), count in list(counts.items()) if name == database)


def _age_s(backlog: Backlog, now_us: int) -> float:
    return 0.0 if backlog.oldest_at is None else max(0.0, (now_us - backlog.oldest_at) / US)


def unanswered(reads: dict[str, CachedRead]) -> list[str]:
    """Return the names of the databases that did not answer the last read in time."""
    return [name for name, each in reads.items() if not each.answers]
