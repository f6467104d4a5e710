"""A host's agent: hears commands, looks at their turns, obeys through the driver, and keeps each answer until it was taken (RULES §10).

It is given a bus, a driver and a journal, and nothing else: no database of the region or a cell, and no client of the network
service, for ports arrive bound (S0.20).  Only a host of level 1 or 2 is given its `Plumbing` besides (`legacy.py`).
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping
from functools import partial

import msgspec

from moorage.agent.converge import converge
from moorage.agent.journal import Journal
from moorage.agent.lanes import Lanes
from moorage.agent.legacy import Plumbing
from moorage.agent.report import LEVEL, changes, described, digest, report
from moorage.agent.verbs import VERBS
from moorage.bus import subjects
from moorage.bus.carrier import Bus, Subscription
from moorage.bus.messages import (
    EMPTY,
    MAX_LISTED,
    READS,
    AgentReturned,
    Command,
    Heartbeat,
    ReportWanted,
    Result,
    ResultKey,
    ResultTaken,
    ServersOfHost,
    ServerTurn,
    Verb,
    encode,
    pack,
    read,
)
from moorage.drivers.driver import Driver
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed, Problem
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, ServerId
from moorage.model.turn import Turn

_log = logging.getLogger(__name__)

LATE_S = 5.0
"""Clocks of two machines may differ by so much before a command in time is taken for a late one."""
LEAST_S = 1.0
LEAST_DESTROY_S = 30.0
MAX_UNTAKEN_SAID = 50
TOMBSTONES_MAX = 1_000
"""Turns remembered of servers without a guest, before the cell is asked which of them are gone for ever."""
TOMBSTONES_ASKED_MAX = 500
"""At once."""
ASK_FIRST_S, ASK_LAST_S = 0.25, 5.0


class Agent:
    """One host.  `start` returns at once; `home` is set when the cell has said who belongs here."""

    def __init__(
        self,
        host: str,
        cell: CellId,
        bus: Bus,
        driver: Driver,
        journal: Journal,
        clock: Clock,
        *,
        plumbing: Plumbing | None = None,
        beat_s: float = 5.0,
        beats_per_look: int = 12,
        at_once: int = 16,
    ) -> None:
        self.host = host
        self.cell = cell
        self.boot = uuid.uuid4().hex
        self.home = asyncio.Event()
        self._bus = bus
        self._driver = driver
        self._journal = journal
        self._clock = clock
        self.level = LEVEL if plumbing is None else plumbing.level
        self._plumbing = plumbing
        self._verbs = VERBS if plumbing is None else plumbing.verbs()
        self._beat_s = beat_s
        self._beats_per_look = beats_per_look
        self._lanes = Lanes(at_once)
        self._queued: set[ResultKey] = set()
        self._doing: dict[ServerId, tuple[Turn, asyncio.Timeout]] = {}
        self._to_go: dict[ServerId, Turn] = {}
        """Servers for which a destroy waits: what is older is not begun any more."""
        self._answer: asyncio.Future[ServersOfHost] | None = None
        self._subscription: Subscription | None = None
        self._life: asyncio.Task[None] | None = None
        self._said: Mapping[ServerId, PowerState] = {}
        self._digest = digest({})
        self._description = b""
        self._was_cut = False
        self._asked_last = ServerId("")
        """Of the tombstones: the next time those after it are asked of."""

    async def start(self) -> None:
        await self._journal.open()
        await self._driver.start()
        self._subscription = await self._bus.subscribe(subjects.to_host(self.cell, self.host), self._hear)
        self._life = asyncio.create_task(self._live())

    async def stop(self) -> None:
        """Leave everything where it is: what was not finished is asked again, in the same turn."""
        if self._subscription is not None:
            await self._subscription.close()
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        await self._lanes.stop()
        await self._journal.flush()
        await self._driver.close()

    # ---- coming home, and the beat ---------------------------------------------------------------------------------

    async def _live(self) -> None:
        while not self.home.is_set():
            try:
                await self._come_home(await self._ask_who_belongs_here())
            except Exception as failure:  # noqa: BLE001 - whatever a driver does, the host comes home when it can
                _log.error("%s cannot come home yet: %s", self.host, _why(failure))
                await self._clock.sleep(ASK_LAST_S)
        beat = 0
        while True:
            try:
                await self._beat(beat)
            except Exception as failure:  # noqa: BLE001 - a host that cannot see its guests shows it by silence, and no longer
                _log.error("%s cannot say how it is: %s", self.host, _why(failure))
            beat += 1
            await self._clock.sleep(self._beat_s)

    async def _ask_who_belongs_here(self) -> ServersOfHost:
        wait_s = ASK_FIRST_S
        self._answer = asyncio.get_running_loop().create_future()
        while not self._answer.done():
            await self._ask()
            await asyncio.wait([self._answer], timeout=wait_s)
            wait_s = min(wait_s * 2, ASK_LAST_S)
        return await self._answer

    async def _ask(self) -> None:
        guests = sorted(await self._driver.guests())
        known = [*guests, *sorted(self._journal.turns().keys() - set(guests))]  # what may have to go is asked of first
        question = AgentReturned(self.host, self.cell, self.boot, tuple(known[:MAX_LISTED]))
        await self._bus.publish(subjects.returned(self.cell), encode(question))

    async def _ask_what_to_forget(self) -> None:
        """A destroy leaves its turn behind; a host that is never restarted would remember every server it ever had."""
        tombstones = sorted(self._journal.turns().keys() - (await self._driver.guests()).keys())
        if len(tombstones) <= TOMBSTONES_MAX:
            return
        asked = ([each for each in tombstones if each > self._asked_last] or tombstones)[:TOMBSTONES_ASKED_MAX]
        self._asked_last = asked[-1]
        question = AgentReturned(self.host, self.cell, self.boot, tuple(asked), home=True)
        await self._bus.publish(subjects.returned(self.cell), encode(question))

    async def _ask_again_after_a_cut(self) -> None:
        """While we could not be heard, servers may have been given to other hosts.  Asked once: if it is lost, the cell, which has
        missed our beats, tells us unasked."""
        if not self._bus.healthy:
            self._was_cut = True
        elif self._was_cut:
            self._was_cut = False
            await self._ask()

    async def _beat(self, beat: int) -> None:
        await self._ask_again_after_a_cut()
        if beat % self._beats_per_look == 0:
            now = described(await self._driver.describe())
            if now != self._description:
                await self._report()
                self._description = now
            await self._ask_what_to_forget()
            await self._journal.flush()
        states = await self._driver.guests()
        differ: dict[ServerId, PowerState] = {}
        if states is not self._said:
            differ = changes(self._said, states)
            self._said = states
            if differ:
                self._digest = digest(states)
        message = Heartbeat(
            self.host,
            self.cell,
            self.boot,
            beat,
            len(states),
            self._digest,
            differ if len(differ) <= MAX_LISTED else {},
            self._journal.untaken(MAX_UNTAKEN_SAID),
        )
        await self._bus.publish(subjects.heartbeat(self.cell), encode(message))

    async def _report(self) -> None:
        whole = report(
            self.host, self.cell, self.boot, await self._driver.describe(), await self._driver.guests(), self.level
        )
        await self._bus.publish(subjects.report(self.cell), encode(whole))

    # ---- what is heard -------------------------------------------------------------------------------------------------

    async def _hear(self, subject: str, payload: bytes) -> None:
        match read(payload):
            case Command() as command:
                self._journal.taken(command.taken)
                self._take(command)
            case ServersOfHost() as answer:
                self._believe(answer)
            case ResultTaken() as taken:
                self._journal.taken(taken.results)
                self._journal.forget(taken.gone)
            case ReportWanted():
                if self.home.is_set():
                    await self._report()
            case _:
                return

    def _take(self, command: Command) -> None:
        key = ResultKey(command.server, command.turn, command.step)
        if key in self._queued:
            return  # sent again while it is being done; its answer is on the way

        async def job() -> None:
            try:
                await self.home.wait()
                await self._obey(key, command)
            finally:
                self._queued.discard(key)
                if self._to_go.get(command.server) == command.turn:
                    del self._to_go[command.server]

        if self._lanes.submit(command.server, job):
            self._queued.add(key)
            self._overtake(command)
        else:
            _log.warning("%s: too many commands wait, %s of %s is let lie", self.host, command.verb, command.server)

    def _overtake(self, command: Command) -> None:
        """What a destroy of a higher turn would have to wait for is given up, as at its deadline: nobody wants it any more."""
        if command.verb != Verb.DESTROY_GUEST:
            return
        self._to_go[command.server] = max(command.turn, self._to_go.get(command.server, command.turn))
        doing = self._doing.get(command.server)
        if doing is not None and doing[0] < command.turn and not doing[1].expired():
            doing[1].reschedule(asyncio.get_running_loop().time())

    # ---- obeying -------------------------------------------------------------------------------------------------------

    async def _obey(self, key: ResultKey, command: Command) -> None:
        """Turn first, then the deed, then the answer; the first and the last are on the disk before the next begins."""
        if command.verb in READS:
            await self._send(command, (await self._perform(command))[0])
            return
        known = self._journal.turn_of(command.server)
        if max(command.turn, known or command.turn, self._to_go.get(command.server, command.turn)) > command.turn:
            await self._send(
                command, self._refuse(command, "turn_is_past", f"{command.turn} came after {known}, or is overtaken")
            )
            return
        if (kept := self._journal.result_of(key)) is not None:
            await self._bus.publish(subjects.result_for(self.cell, command.reply_to), kept)
            return
        if self._clock.now() > command.deadline + LATE_S and command.verb != Verb.DESTROY_GUEST:
            await self._send(command, self._refuse(command, "too_late", "the deadline was over"))
            return
        if known != command.turn:
            await self._journal.raise_turn(command.server, command.turn)
        result, running = await self._perform(command)
        answer = encode(result)
        if result.ok or command.verb != Verb.DESTROY_GUEST:  # a destroy that failed is tried anew, in the same turn
            await self._journal.keep(key, answer, running)
        await self._bus.publish(subjects.result_for(self.cell, command.reply_to), answer)

    async def _perform(self, command: Command) -> tuple[Result, bool | None]:
        verb = self._verbs.get(command.verb)
        if verb is None:
            return self._refuse(command, "not_supported", f"no verb {command.verb}"), None
        least_s = LEAST_DESTROY_S if command.verb == Verb.DESTROY_GUEST else LEAST_S
        try:
            async with asyncio.timeout(max(command.deadline - self._clock.now(), least_s)) as limit:
                if command.verb not in READS:
                    self._doing[command.server] = command.turn, limit
                answer, running = await verb(self._driver, command)
        except HostFailed as problem:
            return self._refuse(command, problem.code, problem.private, problem.public), None
        except TimeoutError:
            why = "the driver had not finished at the deadline, or before a destroy overtook it"
            return self._refuse(command, "host_timed_out", why), None
        except msgspec.MsgspecError as error:
            return self._refuse(command, "garbled", str(error)), None
        except Exception as error:  # noqa: BLE001 - a boundary: whatever a driver does, the conductor hears of it
            _log.exception("%s: %s of %s broke", self.host, command.verb, command.server)
            return self._refuse(command, "driver_broke", f"{type(error).__name__}: {error}"), None
        finally:
            self._doing.pop(command.server, None)
        payload = pack(answer)
        return Result(
            self.host,
            self.cell,
            command.server,
            command.turn,
            command.step,
            True,
            payload=payload,
            operation=command.operation,
        ), running

    def _refuse(self, command: Command, code: str, private: str, public: str = "the host could not do it") -> Result:
        left = None if self._plumbing is None else self._plumbing.take_left(command.server)
        return Result(
            self.host,
            self.cell,
            command.server,
            command.turn,
            command.step,
            False,
            code,
            public,
            private,
            payload=EMPTY if left is None else pack(left),
            operation=command.operation,
        )

    async def _send(self, command: Command, result: Result) -> None:
        await self._bus.publish(subjects.result_for(self.cell, command.reply_to), encode(result))

    # ---- converging ------------------------------------------------------------------------------------------------------

    def _believe(self, answer: ServersOfHost) -> None:
        """The answer that we wait for; or, when we are home, what the cell says unasked, or says again, which changes nothing."""
        if not self.home.is_set():
            if answer.boot == self.boot and self._answer is not None and not self._answer.done():
                self._answer.set_result(answer)
        elif answer.boot in ("", self.boot):
            for told in answer.servers:
                self._lanes.submit(told.server, partial(self._settle, told))

    async def _come_home(self, answer: ServersOfHost) -> None:
        """All that is older goes before anything is reported, obeyed or started; only then may what was on be on again."""
        for told in answer.servers:
            await self._settle_but_start(told)
        await self._journal.flush()
        _log.info("%s is home: the cell spoke of %d servers", self.host, len(answer.servers))
        self.home.set()
        for told in answer.servers:
            self._lanes.submit(told.server, partial(self._settle, told))

    async def _settle(self, told: ServerTurn) -> None:
        if await self._settle_but_start(told):
            try:
                await self._driver.power_on(told.server)
            except HostFailed as problem:
                _log.error(
                    "%s: %s was on and does not start: %s", self.host, told.server, problem.private or problem.public
                )

    async def _settle_but_start(self, told: ServerTurn) -> bool:
        """What `converge` says of one server is done, except that it is started: whether it should be, is returned."""
        server = told.server
        plan = converge(await self._driver.guests(), self._journal.turns(), self._journal.running(), (told,))
        if plan.destroy:
            _log.warning("%s: the guest of %s does not belong here any more and is destroyed", self.host, server)
            await self._destroy(server)
        for _, turn in plan.know:
            await self._journal.raise_turn(server, turn)
        self._journal.forget(plan.forget)
        return bool(plan.start)

    async def _destroy(self, server: ServerId) -> None:
        """Until it works: nothing may be done for this server before."""
        wait_s = ASK_FIRST_S
        while True:
            try:
                await self._driver.destroy_guest(server)
            except HostFailed as problem:
                _log.error("%s: %s must go and does not: %s", self.host, server, problem.private or problem.public)
                await self._clock.sleep(wait_s)
                wait_s = min(wait_s * 2, ASK_LAST_S)
            else:
                return


def _why(failure: Exception) -> str:
    return (failure.private or failure.public) if isinstance(failure, Problem) else repr(failure)
