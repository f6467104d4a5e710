"""A host's agent: checks a command's turn, executes it with the driver, and keeps the result until it is acknowledged (RULES §10).

It has a bus, a driver and a journal, and nothing else: no database of the region or a cell, and no client of the network
service, because ports arrive bound (S0.20).  Only a host of level 1 or 2 also has `Plumbing` (`legacy_ports.py`).
"""

import asyncio
import logging
import uuid
from collections import deque
from functools import partial

from moorage.agent.authority import Authority
from moorage.agent.command_answers import CommandAnswers
from moorage.agent.command_checks import CommandChecks
from moorage.agent.command_runner import CommandRunner
from moorage.agent.commands import VERBS
from moorage.agent.failures import reason_of
from moorage.agent.guest_reconciliation import Settler
from moorage.agent.held_guests import Hold
from moorage.agent.host_questions import HostQuestions
from moorage.agent.journal import AgentJournal
from moorage.agent.options import DEFAULTS, AgentOptions
from moorage.agent.port_descriptions import describe_ports
from moorage.agent.report import LEVEL
from moorage.agent.report_subjects import Outgoing
from moorage.agent.reporter import AgentIdentity, Reporter
from moorage.agent.server_queues import ServerQueues
from moorage.agent.turn_bounds import TurnBounds
from moorage.bus import subjects
from moorage.bus.command_messages import Command, ResultKey, ResultTaken
from moorage.bus.description_messages import PortDescriptions
from moorage.bus.host_messages import MAX_LISTED, AgentRefused, AgentReturned, ReportWanted, ServersOfHost, TurnReset
from moorage.bus.messages import encode, read
from moorage.bus.transport import Bus, Subscription
from moorage.bus.verbs import READS, Verb
from moorage.drivers.driver import Driver
from moorage.drivers.moves import arrivals_at
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.fencing_token import UNDO, FencingToken
from moorage.model.ids import CellId, ServerId
from moorage.model.image_ticket import TicketBox
from moorage.model.tracing import SpanType, span

_log = logging.getLogger(__name__)

ASK_FIRST_S, ASK_LAST_S = 0.25, 5.0
BEATS_PER_SILENCE = 4
"""At least this many heartbeats are sent in the time after which a host counts as silent: a lost one does no harm."""
GIVEN_UP_WITHIN_S = 30.0
"""How long the agent waits, after the end of its authority, until the driver has stopped the commands under way."""
QUESTIONS_KEPT = 16
LATE_S = 5.0
"""For commands of a release without `left_s`: the difference that is allowed between the clocks of two machines."""
PAUSED = "it was unreachable for a while, or suspended"


class Agent:
    """The agent of one host.  `start` returns at once; `home` is set while the cell's answer about its servers is valid."""

    def __init__(
        self,
        host: str,
        cell: CellId,
        bus: Bus,
        driver: Driver,
        journal: AgentJournal,
        clock: Clock,
        options: AgentOptions = DEFAULTS,
    ) -> None:
        plumbing, silence_s = options.plumbing, options.silence_s
        self.host, self.cell = host, cell
        self.boot = uuid.uuid4().hex
        self.home = asyncio.Event()
        self._bus = bus
        self.driver = driver
        self._journal = journal
        self._clock = clock
        self.level = LEVEL if plumbing is None else plumbing.level
        if plumbing is not None:
            plumbing.may_start = self._may_start
        self._beat_s = min(options.beat_s, silence_s / BEATS_PER_SILENCE)
        self._outgoing = Outgoing(bus, cell, host, earlier=options.earlier)
        self._reporter = Reporter(
            AgentIdentity(host, cell, self.boot, self.level),
            self._outgoing, driver, journal, beats_per_look=options.beats_per_look,
        )  # fmt: skip
        self._lanes = ServerQueues(options.at_once)
        self._settler = Settler(host, driver, journal, clock, self._lanes)
        self._hold = Hold(host, driver, journal, clock, self.is_doing)
        self._authority = Authority(clock, silence_s, partial(self._leave_home, "it was unreachable for a while"))
        answers = CommandAnswers(host, cell, plumbing)
        self._checks = CommandChecks(journal, self._settler, clock, answers)
        verbs = VERBS if plumbing is None else plumbing.verbs()
        self._runner = CommandRunner(driver, verbs, clock, self._authority, answers, partial(self._leave_home, PAUSED))
        self._host_questions = HostQuestions(
            clock, journal, self._lanes, self._runner, answers, self._outgoing, self._may_act
        )
        self._tickets = self._host_questions.tickets = options.tickets or TicketBox()
        self._bounds = TurnBounds(host, clock, self._ask)
        self._queued: set[ResultKey] = set()
        self._to_go: dict[ServerId, FencingToken] = {}
        """Servers for which a destroy waits."""
        self._questions: deque[tuple[str, float]] = deque(maxlen=QUESTIONS_KEPT)
        """The last questions whose answers are valid, and when each was asked; questions from before a pause are not among them."""
        self._answer: asyncio.Future[ServersOfHost] | None = None
        self._refused = False
        """Whether another agent runs for this host."""
        self._homecomings = 0
        self._spoken_of: frozenset[ServerId] = frozenset()
        """Time of the last answer with which the host was accepted."""
        self._subscriptions: tuple[Subscription, ...] = ()
        self._life: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None
        self._was_cut = False

    async def start(self) -> None:
        await self._journal.open()
        await self._begin_life()
        await self.driver.start()
        orders, question_pattern = subjects.to_host(self.cell, self.host), subjects.questions_to(self.cell, self.host)
        questions = await self._bus.subscribe(question_pattern, self._host_questions.on_message)
        self._reporter.takes_questions = lambda: not questions.refused
        self._subscriptions = (await self._bus.subscribe(orders, self._on_message), questions)
        self._life = asyncio.create_task(self._live())

    async def _begin_life(self) -> None:
        try:
            await self._journal.begin_life(self.boot)
        except Problem as failure:
            # A full disk, say: should this agent be killed, the next one waits until it counts as silent.
            _log.error("%s cannot note that it has begun: %s", self.host, reason_of(failure))

    async def stop(self) -> None:
        """Stop, and leave everything as it is: unfinished commands are sent again, with the same turn."""
        for subscription in self._subscriptions:
            await subscription.close()
        for task in (self._life, self._returning):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._authority.close()
        await self._hold.stop()
        await self._settler.stop()
        await self._lanes.stop()
        if self.home.is_set():
            self.home.clear()
            await self._reporter.leave()
        await self._journal.flush()
        await self.driver.close()

    def is_doing(self, server: ServerId) -> bool:
        """Tell whether a command for this server is being executed."""
        return self._runner.is_running(server)

    @property
    def jobs(self) -> tuple[int, int]:
        """The number of waiting commands, and of servers with a command under way."""
        return self._lanes.waiting, self._lanes.moving

    def is_waiting(self, server: ServerId) -> bool:
        """Tell whether a command for this server is being executed, or waits."""
        return any(key.server == server for key in self._queued)

    # ---- coming home, and the beat ---------------------------------------------------------------------------------

    async def _live(self) -> None:
        await self._return_home()
        while True:
            try:
                if not self._authority.held:
                    self._leave_home(PAUSED)
                if not self._refused:
                    await self._beat()
            except Exception as failure:  # noqa: BLE001 - a host that cannot see its guests shows it by silence, and no longer
                _log.error("%s cannot say how it is: %s", self.host, reason_of(failure))
            await self._clock.sleep(self._beat_s)

    def _leave_home(self, why: str) -> None:
        """Give up what is under way, and begin nothing before the cell has answered a question that is asked after this."""
        self._questions.clear()
        if not self.home.is_set():
            return
        self.home.clear()
        _log.warning("%s asks its cell before it does anything more: %s", self.host, why)
        self._runner.give_up()
        self._returning = asyncio.create_task(self._return_home())

    async def _return_home(self) -> None:
        while not self.home.is_set():
            self._hold.begin()
            try:
                await self._runner.wait_given_up(GIVEN_UP_WITHIN_S)
                answer = await self._ask_for_servers()
                await self._hold.end()
                await self._come_home(answer)
            except Exception as failure:  # noqa: BLE001 - whatever a driver does, the host comes home when it can
                _log.error("%s cannot ask its cell yet: %s", self.host, reason_of(failure))
                await self._clock.sleep(ASK_LAST_S)

    async def _ask_for_servers(self) -> ServersOfHost:
        wait_s = ASK_FIRST_S
        self._answer = asyncio.get_running_loop().create_future()
        while not self._answer.done():
            await self._ask()
            await asyncio.wait([self._answer], timeout=ASK_LAST_S if self._refused else wait_s)
            wait_s = min(wait_s * 2, ASK_LAST_S)
        return await self._answer

    async def _ask(self) -> None:
        if (
            self._homecomings and not self._refused
        ):  # who counts our silence hears beats: it must not end it while the cell answers
            await self._reporter.beat()
        waiting, guests = sorted({key.server for key in self._queued}), sorted(await self.driver.guests())
        arrived = sorted(await arrivals_at(self.driver))
        known = list(
            dict.fromkeys((*waiting, *guests, *arrived, *sorted(self._journal.turns())))
        )  # what may have to go first
        number = uuid.uuid4().hex
        self._questions.append((number, self._clock.monotonic()))
        question = AgentReturned(
            self.host,
            self.cell,
            number,
            tuple(known[:MAX_LISTED]),
            agent=self.boot,
            replaces=self._journal.earlier_lives,
        )
        await self._outgoing.publish(question)

    async def _ask_again_after_a_cut(self) -> None:
        """Ask the cell again after an outage of the bus: servers may have been given to other hosts meanwhile.  The question is sent
        once: if it is lost, the cell, which missed our heartbeats, answers without a question."""
        if not self._bus.healthy:
            self._was_cut = True
        elif self._was_cut or (self.home.is_set() and self._hold.is_overdue()):
            self._was_cut = False
            await self._ask()

    async def _beat(self) -> None:
        await self._ask_again_after_a_cut()
        at = self._clock.monotonic()
        await self._reporter.beat()
        if self._bus.healthy:
            self._authority.prove(at)

    # ---- what is heard -------------------------------------------------------------------------------------------------

    async def _on_message(self, subject: str, payload: bytes) -> None:
        match read(payload):
            case Command() as command:
                self._outgoing.note_conductor(command.knows_senders)
                self._journal.taken(command.taken)
                self._take(command)
            case ServersOfHost() as answer:
                self._outgoing.note_conductor(answer.knows_senders)
                self._believe(answer)
            case AgentRefused() as refused if refused.agent == self.boot:
                self._take_refusal(refused)
            case ResultTaken() as taken:
                self._journal.taken(taken.results)
                self._journal.forget(taken.gone)
                await self._journal.write_what_counts()
            case ReportWanted() as wanted:
                self._outgoing.note_conductor(wanted.knows_senders)
                if self._homecomings and not self._refused:
                    await self._reporter.report()
            case TurnReset() as reset if reset.host == self.host:
                self._lanes.submit(
                    reset.server, partial(self._journal.reset_turn, reset.server, reset.forged, reset.turn)
                )
            case PortDescriptions() as descriptions if not self._refused:
                describe_ports(self.driver, descriptions)
            case _:
                return

    def _take_refusal(self, refused: AgentRefused) -> None:
        if not self._refused:
            _log.error("%s: this agent is refused, and executes no commands meanwhile: %s", self.host, refused.why)
        self._refused = True
        self._leave_home("another agent speaks for this host")

    def _take(self, command: Command) -> None:
        self._tickets.keep(command.tickets)
        key = ResultKey(command.server, command.turn, command.step)
        if key in self._queued or self._refused:
            return  # sent again while it is being done: its answer is on the way; or meant for the agent that is not refused
        left_s = command.deadline + LATE_S - self._clock.now() if command.left_s is None else command.left_s
        ends = self._clock.monotonic() + left_s
        since = self._homecomings if self.home.is_set() else None

        async def job() -> None:
            try:
                facts = {"host": self.host, "server": command.server, "operation": command.operation}
                with span(SpanType.OBEY, command.verb, parent=command.trace, seed=command.request_id, **facts):
                    await self._execute(key, command, ends, since)
            finally:
                self._queued.discard(key)
                if self._to_go.get(command.server) == command.turn:
                    del self._to_go[command.server]

        if self._lanes.submit(command.server, job):
            self._queued.add(key)
            if command.verb == Verb.DESTROY_GUEST:
                self._to_go[command.server] = max(command.turn, self._to_go.get(command.server, command.turn))
            self._runner.give_way(command)
        else:
            _log.warning("%s: too many commands wait, %s of %s is let lie", self.host, command.verb, command.server)

    # ---- obeying -------------------------------------------------------------------------------------------------------

    async def _may_act(self) -> None:
        """Wait until the cell's answer is valid (RULES §23)."""
        while True:
            await self.home.wait()
            if self._authority.held:
                return
            self._leave_home(PAUSED)

    async def _execute(self, key: ResultKey, command: Command, ends: float, since: int | None) -> None:
        """Write the turn, execute the command, then write the result; turn and result are on the disk before the next command begins.

        `since`: the last acceptance by the cell when the command came; None: the host was not accepted then.
        """
        await self._may_act()
        if command.verb in READS:
            await self._host_questions.answer(command, ends)
            return
        if not await self._raised(key, command, ends, since):
            return
        result, running = await self._runner.perform(command, ends)
        if result is None:
            if self._journal.turn_of(command.server) != command.turn and command.verb == Verb.START_GUEST:
                await self._settler.take_away(command.server)  # the cell has spoken meanwhile, and saw no guest
            return
        if result.ok and command.verb == Verb.DESTROY_GUEST:
            self._settler.gone(command.server)
        answer = encode(result)
        anew = command.verb == Verb.DESTROY_GUEST or command.turn.phase == UNDO or command.until_done
        if result.ok or not anew:  # what takes something back or only goes forward is tried anew in the same turn
            started = result.ok and command.verb == Verb.START_GUEST
            await self._journal.keep(key, answer, running, started=started)
        await self._outgoing.answer(command, answer)

    def _is_good(self, command: Command, since: int | None) -> bool:
        """Whether a command may be executed. One from before the cell's answer may be older than what the cell knows: it is valid if
        the answer covered its server, because then turns decide.  Otherwise it is dropped, and its sender sends it again."""
        return since == self._homecomings or command.verb == Verb.DESTROY_GUEST or command.server in self._spoken_of

    async def _raised(self, key: ResultKey, command: Command, ends: float, since: int | None) -> bool:
        """Whether the command must be executed now; then its turn is on the disk.  If not, it was answered, or needs no answer."""
        while True:
            if not self._is_good(command, since):
                _log.info("%s: %s of %s is let lie: it came too early", self.host, command.verb, command.server)
                return False
            if await self._bounds.is_too_far(command):
                return False
            if (objection := self._checks.objection(key, command, ends, self._to_go.get(command.server))) is not None:
                await self._outgoing.answer(command, objection)
                return False
            await self._checks.begin_turn(command)
            if self._may_start():
                return True
            await self._may_act()  # the machine stood still meanwhile: the cell may have said more of this server

    # ---- converging ------------------------------------------------------------------------------------------------------

    def _believe(self, answer: ServersOfHost) -> None:
        """Take the awaited answer; or, if the host is accepted already, an answer without a question or a repeated one."""
        requested = self._question_sent_at(answer) is not None
        self._bounds.note(answer)
        if not self.home.is_set():
            if requested and self._answer is not None and not self._answer.done():
                self._answer.set_result(answer)
        elif requested or answer.boot in ("", self.boot):
            for turn in answer.servers:
                self._lanes.submit(turn.server, partial(self._settler.settle_in_lane, turn, self._may_start))

    async def _come_home(self, answer: ServersOfHost) -> None:
        """Destroy outdated guests before anything is reported, executed or started; only then start guests that were running."""
        await self._settler.settle(answer.servers)
        await self._journal.flush()
        sent_at = self._question_sent_at(answer)
        if sent_at is None or not self._authority.covers(sent_at):
            return  # the machine stood still meanwhile: the answer is too old
        self._authority.prove(sent_at)
        _log.info("%s is home: the cell spoke of %d servers", self.host, len(answer.servers))
        self._refused, self._homecomings = False, self._homecomings + 1
        self._spoken_of = frozenset(turn.server for turn in answer.servers)
        self.home.set()
        for turn in answer.servers:
            self._lanes.submit(turn.server, partial(self._settler.settle_in_lane, turn, self._may_start))

    def _question_sent_at(self, answer: ServersOfHost) -> float | None:
        return next((at for number, at in self._questions if number == answer.boot), None)

    def _may_start(self) -> bool:
        return self.home.is_set() and self._authority.held
