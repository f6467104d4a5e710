"""A cell's conductor: processes the reports of its hosts, answers hosts that return, and writes what they observe.

It writes only observed columns; the intended state belongs to the sagas (RULES §3). Heartbeats are kept in memory and
written for many hosts at once, every other second.

The guests of a host and the records are compared (RULES §23):

    with each heartbeat     in memory: its number follows the last one, and its digest changes only by what it reports
    every 45 s              digest and count of the last heartbeat with the records, one statement for many hosts
    with each full report   guest by guest; it is requested after a difference, a silence, a pause or a loss
"""

import asyncio
import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from moorage.bus import legacy_subjects, subjects
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport, ReportWanted, ServersOfHost, ServerTurn
from moorage.bus.messages import encode
from moorage.bus.sender_checks import Senders
from moorage.bus.silence import Listening
from moorage.bus.transport import Bus, Subscription
from moorage.conductor import host_overrides
from moorage.conductor.agent_identity import AgentAdmission
from moorage.conductor.approvals import Approvals
from moorage.conductor.digest_comparison import compare_some
from moorage.conductor.guest_reconciliation import Belonging
from moorage.conductor.host_reports import device_of, host_of, inventory_of
from moorage.conductor.known_hosts import NEVER, Beats, KnownHost, KnownHosts
from moorage.conductor.report_comparison import ReportComparison
from moorage.conductor.turn_resets import TurnResets
from moorage.model.clock import Clock
from moorage.model.errors import Conflict, Problem
from moorage.model.host import NO_TROUBLES, Host
from moorage.model.ids import CellId, ServerId
from moorage.placement.engine import Engine
from moorage.sql import Database, Tx, label
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers

logger = logging.getLogger(__name__)

FLUSH_S = 30.0
SILENT_S = 30.0
WATCH_S = 2.0
FIRST_REPORT_S = 2.0
"""The first report and the first heartbeat of an agent are sent at the same time."""
STORED_WITHIN_S = 2.0


@dataclass(frozen=True)
class CellConductorOptions:
    """How a cell's conductor treats its hosts."""

    zone: str = "nova"
    """The availability zone of hosts without one."""
    silent_s: float = SILENT_S
    """Seconds without a message after which a host is down."""
    alone: bool = False
    """No agent from before this process can be alive, because they all lived in its predecessor."""
    cells: Mapping[CellId, Database] | None = None
    """The databases of all cells, for servers that left this one; without it, this cell alone."""
    earlier: bool = True
    """Accept hosts of release 0.1.0 too, which name themselves only in their messages."""
    approves_itself: bool = True
    """Hosts need no operator's approval (`approvals.py`)."""


class CellConductor:
    """Serves one cell, in each process that is configured for it; several may run, and write the same."""

    def __init__(
        self,
        cell: CellId,
        database: Database,
        region: Database,
        engine: Engine,
        bus: Bus,
        clock: Clock,
        options: CellConductorOptions = CellConductorOptions(),
    ) -> None:
        self.cell = cell
        self._host_subjects = (subjects.hosts_of, *((legacy_subjects.of_cell,) if options.earlier else ()))
        self._database = database
        self._region = region
        self._engine = engine
        self._bus = bus
        self._clock = clock
        self._zone = options.zone
        self._silent_s = options.silent_s
        self._alone = options.alone
        self._belonging = Belonging(cell, database, region, engine)
        self.comparison = ReportComparison(
            self._belonging, cell, bus, clock, region, engine, options.cells or {cell: database}
        )
        self._admission = AgentAdmission(cell, database, bus, clock, reports_in_hand=lambda: self._taking_reports)
        self._subscriptions: list[Subscription] = []
        self._life: asyncio.Task[None] | None = None
        self._known = KnownHosts()
        self._approvals = Approvals(cell, region, clock, automatic=options.approves_itself)
        self._turn_resets = TurnResets(cell, region, bus)
        self._senders = Senders(clock, self._approvals.refuse_forged)
        self._to_flush: set[str] = set()
        self._forced_down: set[str] = set()
        self._taking_reports = 0
        self._storing_since: float | None = None
        self._listening = Listening(bus, clock)

    async def start(self) -> None:
        """Begin to receive messages. A host counts as alive when any conductor received it recently; others are asked.

        When no conductor was running for a while, hosts that were alive when the last one ran count as alive too: a
        boot that comes now finds them, and waits for its host as for any host. A host that does not report in time is
        down from then on.
        """
        self._listening = Listening(self._bus, self._clock)
        began = self._clock.monotonic()
        await self._approvals.refresh()
        if self._alone:
            await self._database.write(cell_hosts.forget_agents)
        rows, noted = await self._database.read(lambda tx: (cell_hosts.listed(tx), cell_hosts.troubles(tx)))
        listened_at = max((row.seen_at for row in rows), default=0)
        for row in rows:
            known = self._known[row.host]
            known.noted = noted.get(row.host, NO_TROUBLES)
            known.agent = "" if self._alone else row.agent
            known.confirmed = bool(known.agent)
            if row.forced_down:
                self._forced_down.add(row.host)
            age_s = max(0.0, self._clock.now() - row.seen_at / 1_000_000)
            if not self._approvals.allows(row.host):
                known.silent = True
            elif age_s <= self._silent_s:
                known.heard = began - age_s
            else:
                known.silent = True
                known.awaited = not self._alone and listened_at - row.seen_at <= self._silent_s * 1_000_000
            self._engine.set_alive(row.host, known.counts_as_up and row.host not in self._forced_down)
        self._subscriptions = [
            await self._bus.subscribe(pattern(self.cell, kind), self._on_message)
            for kind in (subjects.REPORT, subjects.RETURNED, subjects.HEARTBEAT)
            for pattern in self._host_subjects
        ]
        for known in self._known:
            known.want(began, self._known.spread_s(known))
            await self._ask_if_due(known)
        self._life = asyncio.create_task(self._watching(), name=f"cell-{self.cell}")

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    @property
    def known(self) -> KnownHosts:
        """What is remembered of each host."""
        return self._known

    @property
    def senders(self) -> Senders:
        """Counts the messages that were ignored because of their senders."""
        return self._senders

    def beats(self) -> Beats:
        """How many hosts are alive, and the longest silence among them."""
        return self._known.beats(self._forced_down, self._clock.monotonic())

    def _now_us(self) -> int:
        return int(self._clock.now() * 1_000_000)

    async def ask(self, host: str) -> None:
        """Request its full report now."""
        self._known[host].want(self._clock.monotonic())
        await self._ask_if_due(self._known[host])

    def unheard(self) -> list[str]:
        """Hosts that are silent; without those that an operator forced down."""
        return [known.host for known in self._known if known.silent and known.host not in self._forced_down]

    # ------------------------------------------------------------------------------------------------ messages

    async def _on_message(self, subject: str, payload: bytes) -> None:
        message = self._senders.read(subject, payload)
        if message is None or not self._approvals.admits(message):
            return
        try:
            with label("hosts"):
                match message:
                    case HostReport():
                        self._taking_reports += 1
                        try:
                            await self.take_report(message)
                        finally:
                            self._taking_reports -= 1
                    case AgentReturned():
                        await self.on_agent_returned(message)
                    case Heartbeat():
                        await self.take_beat(message)
                    case _:
                        return
        except Conflict as conflict:
            self._approvals.refuse(message.host, conflict.public)
        except Problem as problem:
            logger.warning("cell %s could not process a message of a host: %s %s", self.cell, problem, problem.private)

    async def take_report(self, report: HostReport) -> None:
        """Store a report: inventory, the host's record and its servers' power states; and compare its guests.

        A report that could not be stored does not count: it is requested again.
        """
        known = self._known[report.host]
        if not await self._admission.admits(known, report.boot, report.replaces or (), by=HostReport):
            return
        self._note_alive(known)
        doubts, self._storing_since = known.doubts, self._clock.monotonic()
        try:
            await self._store(known, report)
        except BaseException:
            known.want(self._clock.monotonic())
            raise
        finally:
            self._storing_since = None
        known.stored(report, doubts)
        await self.comparison.compare(known, report)

    async def _store(self, known: KnownHost, report: HostReport) -> None:
        provider = await self._engine.report_host(inventory_of(report, self.cell, self._zone))
        if report.physical_functions:
            await self._engine.report_devices([device_of(report, each) for each in report.physical_functions])
        now, host = self._now_us(), host_of(report, provider, self.cell, self._zone)

        def work(tx: Tx) -> Host:
            known = cell_hosts.report(tx, host, now)
            cell_servers.observe(tx, report.host, {each: int(state) for each, state in report.guests.items()})
            return known

        row = await self._database.write(work)
        if row.agent and row.agent != report.boot:
            known.begin(row.agent)  # another agent was first
        elif row.agent:
            known.confirmed = True

    async def take_beat(self, beat: Heartbeat) -> None:
        """Process a heartbeat: the host is alive, and the power states that changed since the last one."""
        known = self._known[beat.host]
        if beat.leaving:
            await self._admission.left(known, beat.boot)
            return
        if not (known.agent == beat.boot and known.confirmed) and not await self._admission.admits(
            known, beat.boot, by=Heartbeat
        ):
            return
        was_silent = self._note_alive(known)
        now = self._clock.monotonic()
        if beat.changed:
            states = {server: int(state) for server, state in beat.changed.items()}
            try:
                await self._database.write(lambda tx: cell_servers.observe(tx, beat.host, states))
            except BaseException:
                known.want(
                    now
                )  # the next heartbeat does not follow this one either, because this one was not processed
                raise
        followed = beat.beat == known.beat + 1 and not was_silent
        same = bool(beat.changed) or (beat.guests, beat.digest) == (known.guests, known.digest)
        known.take(beat)
        if known.reported != beat.boot:
            known.want(now, FIRST_REPORT_S if beat.beat == 0 else 0.0)
        elif not followed or not same:
            known.want(now, self._known.spread_s(known))
        if known.wanted is not None:
            await self._ask_if_due(known)

    def _note_alive(self, known: KnownHost) -> bool:
        """Returns whether it was silent until now."""
        known.heard = self._clock.monotonic()
        self._to_flush.add(known.host)
        was_silent, known.silent, known.awaited = known.silent, False, False
        if was_silent:
            logger.info("host %s reports again", known.host)
            known.want(known.heard)
        self._engine.set_alive(known.host, known.host not in self._forced_down)
        return was_silent

    async def on_agent_returned(self, returned: AgentReturned) -> None:
        """Tell a returning host which servers are its own; it destroys the others (RULES §10)."""
        known = self._known[returned.host]
        replaces = () if returned.home else returned.replaces
        if not await self._admission.admits(known, returned.agent or returned.boot, replaces):
            return
        self._note_alive(known)
        if returned.home:
            judged = await self._belonging.judge(returned.host, returned.guests, turns_only=True)
            await self.comparison.send_wrong_turns(returned.host, judged)
            return
        judged = await self._belonging.judge(returned.host, returned.guests)
        answer = ServersOfHost(returned.boot, judged.turns, knows_senders=True, newest=judged.newest)
        await self._bus.publish(subjects.to_host(self.cell, returned.host), encode(answer))
        if known.reported:  # it was away: its guests are compared in full
            known.want(self._clock.monotonic())

    async def servers_of(
        self, host: str, servers: Collection[ServerId], *, turns_only: bool = False
    ) -> tuple[ServerTurn, ...]:
        """The answer about a host's own servers and those about which it asked (belonging.py)."""
        return (await self._belonging.judge(host, servers, turns_only=turns_only)).turns

    async def _ask_if_due(self, known: KnownHost) -> None:
        now = self._clock.monotonic()
        if self._storing_since is not None and now - self._storing_since > STORED_WITHIN_S:
            return  # the database hangs: more reports would only queue up, and all be stored when it is back
        if known.due(now):
            known.report_requested(now)
            wanted = ReportWanted(known.host, knows_senders=True)
            await self._bus.publish(subjects.to_host(self.cell, known.host), encode(wanted))

    # --------------------------------------------------------------------------------------------- silent hosts

    async def _watching(self) -> None:
        flushed = self._clock.monotonic()
        while True:
            await self._clock.sleep(WATCH_S)
            try:
                now = self._clock.monotonic()
                await self._apply_approvals()
                self.check_bus_silence()
                self.mark_silent_hosts()
                for known in self._known:
                    if known.wanted is not None and not known.silent:
                        await self._ask_if_due(known)
                await self.compare_some()
                if now - flushed >= FLUSH_S or self._to_flush:
                    flushed = now
                    await self.flush()
            except Exception as failure:  # noqa: BLE001  the task must go on: without it silent hosts would stay up
                logger.warning("cell %s: %r", self.cell, failure)
            self._listening.check(gap_max_s=math.inf)  # a slow database does not mean that this process stood still

    async def _apply_approvals(self) -> None:
        """Apply the approvals. While the region does not answer, earlier ones hold, and silent hosts are still noticed."""
        try:
            self._forget_revoked(await self._approvals.refresh())
            await self._turn_resets.send(self._approvals.reset_at, self._now_us())
        except Problem as problem:
            logger.warning("cell %s cannot read which hosts are approved: %s %s", self.cell, problem, problem.private)

    def _forget_revoked(self, hosts: Collection[str]) -> None:
        """An operator removed their approval: they are down, whatever they report from now on."""
        for host in hosts:
            logger.warning("cell %s: host %s is no longer approved; its messages are ignored", self.cell, host)
            known = self._known[host]
            known.silent, known.awaited, known.silent_since = True, False, self._clock.monotonic()
            self._engine.set_alive(host, False)

    def check_bus_silence(self) -> None:
        """After this process stood still or the bus was down: changes meanwhile are found by comparing."""
        if self._listening.check():
            for known in self._known:
                known.compared = NEVER

    def mark_silent_hosts(self) -> None:
        """Mark hosts as down that have been silent for too long although they could be received."""
        for known in self._known:
            if not known.silent and (unheard_s := self._listening.unheard_for_s(known.heard)) > self._silent_s:
                known.silent, known.silent_since = True, self._clock.monotonic()
                self._engine.set_alive(known.host, False)
                logger.warning("host %s has been silent for %.0f s", known.host, unheard_s)
            elif known.awaited and self._listening.unheard_for_s(NEVER) > self._silent_s:
                known.awaited = False
                self._engine.set_alive(known.host, False)
                logger.warning("host %s has not reported since this conductor started, and is down", known.host)

    async def compare_some(self) -> None:
        """Compare digests of the hosts' last heartbeats with the records, many hosts with one statement."""
        await compare_some(self._known, self._database, self._clock.monotonic())
        await self.comparison.devices.compare_digests(self._known, self._clock.monotonic())

    async def flush(self) -> None:
        """Write the last heartbeats of all hosts at once; read what operators set for hosts."""
        names, self._to_flush = self._to_flush, set()
        now = self._now_us()

        def work(tx: Tx) -> cell_hosts.HostOverrides:
            cell_hosts.record_heartbeats(tx, names, now)
            return cell_hosts.host_overrides(tx)

        try:
            with label("hosts"):
                overrides = await self._database.write(work)
        except BaseException:
            self._to_flush |= names
            raise
        for host in overrides.forced_down ^ self._forced_down:
            self._engine.set_alive(host, host not in overrides.forced_down and self._known[host].counts_as_up)
        self._forced_down = set(overrides.forced_down)
        await host_overrides.mirror(self.cell, overrides, self._database, self._region, self._engine)
