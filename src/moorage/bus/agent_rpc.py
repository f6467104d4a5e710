"""Typed calls to hosts, with deadlines.

A call is a command that is sent again until its result comes: the agent answers a repeated turn and step with the result it kept
(RULES §10), so repeating is safe and a lost message costs time only.  Results arrive under the asking conductor's own subject.

How a call may end:

    the answer                 the host did it
    HostFailed                 the host says that it could not; `code` is the host's word.  Nothing waits there any more.
    HostFailed(host_silent)    no heartbeat for `silent_s`.  It may have begun, if it was asked before it fell silent.
    BusOut                     the bus is out, which says nothing about the host.  It may have begun.
    UnknownOutcome             nobody answered in time: it may have worked, or may still; a higher turn closes the door
"""

import asyncio
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, takewhile
from typing import Any, TypeVar

import msgspec

from moorage.bus import legacy_subjects, subjects
from moorage.bus.command_messages import EMPTY, Command, Result, ResultKey, ResultTaken
from moorage.bus.guest_payloads import (
    AttachInterface,
    ConsoleOutput,
    ConsoleText,
    DestroyGuest,
    DetachInterface,
    GuestNow,
    OfSnapshot,
    PowerOff,
    Reboot,
    StartGuest,
    TakeSnapshot,
)
from moorage.bus.host_messages import Heartbeat
from moorage.bus.messages import encode, pack
from moorage.bus.sender_checks import Senders
from moorage.bus.silence import LOOK_EVERY_S, Listening
from moorage.bus.transport import Bus, Handler, Subscription
from moorage.bus.verbs import Verb
from moorage.bus.volume_payloads import AttachVolume, Connector, DetachVolume, ExtendVolume, SwapVolume
from moorage.model.clock import Clock
from moorage.model.errors import BusOut, HostFailed, UnknownOutcome
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import GuestSpec, PowerState, Quiesce, VifData, VolumeDisk
from moorage.model.host_ports import PortOrder
from moorage.model.ids import CellId, ConductorId, ImageId, OperationId, ServerId
from moorage.model.tracing import SpanType, span, traceparent

AnswerT = TypeVar("AnswerT", bound=msgspec.Struct)

MAX_TAKEN_WAITING = 1_000
"""Acknowledgements kept per host until it is next heard; the host forgets old results by itself when a higher turn comes."""
MAX_TAKEN_PER_MESSAGE = 50
MAX_STARTS_WAITING = 10_000
"""Starts that were answered and have not been said to count: boots under way, and some that failed since."""
RESEND_MOST_S = 10.0
BUS_GRACE_S = 3.0
"""A bus that is out for longer is said to be: calls under way end, and none is begun."""
HERE = "the host"
"""What stands for its own name in what a host says to owners of servers; drivers and older agents may name it."""
NOT_SUPPORTED, TURN_IS_PAST = "not_supported", "turn_is_past"
"""Codes of refusals."""
AGAIN_SPREAD_S = 1.0
"""When the bus is back, what is under way is sent again within this time, not all at once."""


class HostAddress(msgspec.Struct, frozen=True):
    """Where a host is: its cell and the name people know it by."""

    cell: CellId
    host: str


class CommandContext(msgspec.Struct, frozen=True):
    """On whose behalf a host is called, and for how long."""

    operation: OperationId
    turn: FencingToken
    step: str
    patience_s: float = 60.0
    though_silent: bool = False
    """Call even a host without heartbeats, and wait all of the patience."""
    request_id: str = ""
    until_done: bool = False
    """What fails is asked again in the same turn and step, and is to be tried anew then."""


class _PendingCall:
    """One command under way, and everybody in this process who waits for it."""

    def __init__(self, address: HostAddress, command: Command, fails_fast: bool, ends: float) -> None:
        self.address = address
        self.command = command
        self.fails_fast = fails_fast
        self.ends = ends
        """On our own clock: how long the host is given is said with each sending, as a duration."""
        self.waiters: set[asyncio.Future[Result]] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.again: Callable[[], None] | None = None
        """Sends it again, now."""

    def settle(self, result: Result | None, problem: Exception | None = None) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if result is not None:
                waiter.set_result(result)
            elif problem is not None:
                waiter.set_exception(problem)


ANY_CELL: tuple[CellId | None, ...] = (None,)


class AgentClient:
    """Made once per process that tells sagas; `start` before the first call."""

    def __init__(
        self,
        bus: Bus,
        me: ConductorId,
        clock: Clock,
        *,
        resend_s: float = 2.0,
        silent_s: float = 15.0,
        taken_after_s: float = 30.0,
        cells: Sequence[CellId] = (),
        earlier: bool = True,
    ) -> None:
        """`cells`: whose hosts may be heard, where the broker tells cells apart; empty: all. `earlier`: hosts of release 0.1.0 too."""
        self._cells, self._earlier = cells, earlier
        self._bus = bus
        self._me = me
        self._clock = clock
        self._resend_s = resend_s
        self._silent_s = silent_s
        self._taken_after_s = taken_after_s
        self._calls: dict[ResultKey, _PendingCall] = {}
        self._heard: dict[str, float] = {}
        self._listening = Listening(bus, clock)
        self._outages = bus.outages
        self._watching: asyncio.Task[None] | None = None
        self._dice = random.Random(me)
        self._taken: dict[str, dict[ResultKey, float]] = {}
        self._started: dict[ServerId, tuple[str, ResultKey]] = {}
        self._counting: dict[str, dict[ResultKey, float]] = {}
        """Starts that count, by host, and until when their hosts are told so."""
        self._subscriptions: list[Subscription] = []
        self._senders = Senders(clock)
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def me(self) -> ConductorId:
        """Whom hosts answer."""
        return self._me

    @property
    def under_way(self) -> int:
        """Commands whose answers are waited for."""
        return len(self._calls)

    @property
    def forged(self) -> int:
        """Messages that were left lying, for they were not their sender's."""
        return self._senders.forged

    async def start(self) -> None:
        self._listening = Listening(self._bus, self._clock)
        self._watching = asyncio.create_task(self._watch_bus(), name="bus-watch")
        heard: list[tuple[str, Handler]] = []
        for cell in self._cells or ANY_CELL:
            heard.append((subjects.results_for(self._me, cell), self._on_result))
            heard.append((subjects.heartbeats(cell), self._on_heartbeat))
        if self._earlier:
            heard.append((legacy_subjects.results_for(self._me), self._on_result))
            heard.append((legacy_subjects.ALL_HEARTBEATS, self._on_heartbeat))
        self._subscriptions = [await self._bus.subscribe(pattern, hear) for pattern, hear in heard]

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()
        for call in self._calls.values():
            if call.timer is not None:
                call.timer.cancel()
        ending = [*self._sending, *(() if self._watching is None else (self._watching,))]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    # ---- what a host can be asked --------------------------------------------------------------------------------

    async def start_guest(self, to: HostAddress, command_context: CommandContext, guest: GuestSpec) -> PowerState:
        """Make the guest and start it; if it is there already, this is success."""
        return await self._change(to, command_context, guest.server, Verb.START_GUEST, StartGuest(guest))

    async def build_guest(
        self, to: HostAddress, command_context: CommandContext, guest: GuestSpec, order: PortOrder
    ) -> GuestNow:
        """The same on a host that first sees to the ports itself; HostFailed brings along what it `left` of them."""
        command = self._command(command_context, guest.server, Verb.START_GUEST, StartGuest(guest, order))
        return await self._answer(to, command_context, command, GuestNow)

    async def destroy_guest(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, release: DestroyGuest | None = None
    ) -> None:
        """Absent is success.  The turn stays there as a tombstone: a later `start_guest` of a lower turn is refused.

        `release`: an old host is to see to the server's ports too.
        """
        await self._change(to, command_context, server, Verb.DESTROY_GUEST, release)

    async def power_on(self, to: HostAddress, command_context: CommandContext, server: ServerId) -> PowerState:
        return await self._change(to, command_context, server, Verb.POWER_ON)

    async def power_off(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, graceful_s: float = 60.0
    ) -> PowerState:
        return await self._change(to, command_context, server, Verb.POWER_OFF, PowerOff(graceful_s))

    async def reboot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, *, hard: bool
    ) -> PowerState:
        return await self._change(to, command_context, server, Verb.REBOOT, Reboot(hard))

    async def pause(self, to: HostAddress, command_context: CommandContext, server: ServerId) -> PowerState:
        return await self._change(to, command_context, server, Verb.PAUSE)

    async def unpause(self, to: HostAddress, command_context: CommandContext, server: ServerId) -> PowerState:
        return await self._change(to, command_context, server, Verb.UNPAUSE)

    async def suspend(self, to: HostAddress, command_context: CommandContext, server: ServerId) -> PowerState:
        return await self._change(to, command_context, server, Verb.SUSPEND)

    async def resume(self, to: HostAddress, command_context: CommandContext, server: ServerId) -> PowerState:
        return await self._change(to, command_context, server, Verb.RESUME)

    async def attach_interface(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, vif: VifData
    ) -> None:
        await self._change(to, command_context, server, Verb.ATTACH_INTERFACE, AttachInterface(vif))

    async def detach_interface(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, port: str
    ) -> None:
        await self._change(to, command_context, server, Verb.DETACH_INTERFACE, DetachInterface(port))

    async def attach_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, disk: VolumeDisk
    ) -> None:
        await self._change(to, command_context, server, Verb.ATTACH_VOLUME, AttachVolume(disk))

    async def detach_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, volume: str
    ) -> None:
        await self._change(to, command_context, server, Verb.DETACH_VOLUME, DetachVolume(volume))

    async def take_snapshot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, image: ImageId, quiesce: Quiesce
    ) -> PowerState:
        """Copy the guest's disk on the host; the guest goes on."""
        return await self._change(to, command_context, server, Verb.TAKE_SNAPSHOT, TakeSnapshot(image, quiesce))

    async def upload_snapshot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, image: ImageId
    ) -> None:
        """The host sends the copy into the image; the errand's patience is that of the largest disk."""
        await self._change(to, command_context, server, Verb.UPLOAD_SNAPSHOT, OfSnapshot(image))

    async def drop_snapshot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, image: ImageId
    ) -> None:
        """Absent is success."""
        await self._change(to, command_context, server, Verb.DROP_SNAPSHOT, OfSnapshot(image))

    async def swap_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, old: str, disk: VolumeDisk
    ) -> None:
        """The guest goes on with another volume, with the same on it; it may take as long as its size takes."""
        await self._change(to, command_context, server, Verb.SWAP_VOLUME, SwapVolume(old, disk))

    async def extend_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, volume: str, size_gib: int
    ) -> None:
        await self._change(to, command_context, server, Verb.EXTEND_VOLUME, ExtendVolume(volume, size_gib))

    async def volume_connector(self, to: HostAddress, server: ServerId, patience_s: float = 20.0) -> dict[str, Any]:
        """What the volume service must know of the host to export a volume to it: a read, with no turn."""
        return (await self.ask(to, server, Verb.VOLUME_CONNECTOR, None, Connector, patience_s)).connector

    async def console_output(
        self, to: HostAddress, server: ServerId, lines: int | None, patience_s: float = 20.0
    ) -> str:
        """What the guest wrote to its console: a read, with no turn."""
        return (await self.ask(to, server, Verb.CONSOLE_OUTPUT, ConsoleOutput(lines), ConsoleText, patience_s)).text

    async def change_guest(
        self,
        to: HostAddress,
        command_context: CommandContext,
        server: ServerId,
        verb: Verb,
        payload: msgspec.Struct | None = None,
    ) -> PowerState:
        """Any verb that changes a guest and answers how it is afterwards."""
        return await self._change(to, command_context, server, verb, payload)

    async def ask(
        self,
        to: HostAddress,
        server: ServerId,
        verb: Verb,
        payload: msgspec.Struct | None,
        kind: type[AnswerT],
        patience_s: float = 20.0,
    ) -> AnswerT:
        """Any verb of `READS`: it carries no turn, and its answer is kept nowhere.

        Raises HostFailed (`not_supported`) for a host that cannot do that, also one of an earlier release: its agent takes a read
        that it does not know for a command, and refuses one without a turn as an old one.
        """
        command_context = CommandContext(
            OperationId(""), FencingToken(0), f"{verb.value}/{uuid.uuid4().hex}", patience_s
        )
        try:
            return await self._answer(to, command_context, self._command(command_context, server, verb, payload), kind)
        except HostFailed as failure:
            if failure.code != TURN_IS_PAST:
                raise
            raise HostFailed("this host cannot do that", private=failure.private, code=NOT_SUPPORTED) from failure

    def start_counts(self, host: str, server: ServerId, operation_seq: int) -> None:
        """This operation has recorded the server as built on this host: its start is acknowledged with what is sent there next.

        Until it is told so, a host that can be heard no more keeps the guest off (RULES §23).  If that is lost, or we die, the
        host asks its cell.
        """
        on, key = self._started.pop(server, ("", None))
        if key is None or on != host or key.turn.operation_seq != operation_seq:
            return
        counting = self._counting.setdefault(host, {})
        if len(counting) < MAX_TAKEN_WAITING:
            counting[key] = self._clock.monotonic() + self._taken_after_s

    # ---- how it is asked ---------------------------------------------------------------------------------------------

    async def _change(
        self,
        to: HostAddress,
        command_context: CommandContext,
        server: ServerId,
        verb: Verb,
        payload: msgspec.Struct | None = None,
    ) -> PowerState:
        return (
            await self._answer(to, command_context, self._command(command_context, server, verb, payload), GuestNow)
        ).power_state

    async def _answer(
        self, to: HostAddress, command_context: CommandContext, command: Command, kind: type[AnswerT]
    ) -> AnswerT:
        raw = await self.call(to.host, to.cell, command, though_silent=command_context.though_silent)
        return msgspec.json.decode(raw, type=kind)

    def _command(
        self, command_context: CommandContext, server: ServerId, verb: Verb, payload: msgspec.Struct | None
    ) -> Command:
        return Command(
            server=server,
            turn=command_context.turn,
            step=command_context.step,
            verb=verb,
            operation=command_context.operation,
            deadline=self._clock.now() + command_context.patience_s,
            left_s=command_context.patience_s,
            reply_to=self._me,
            request_id=command_context.request_id,
            until_done=command_context.until_done,
            knows_senders=True,
            payload=EMPTY if payload is None else pack(payload),
        )

    async def call(self, host: str, cell: CellId, command: Command, *, though_silent: bool = False) -> msgspec.Raw:
        """Send the command until its result comes; the result's payload."""
        facts = {"host": host, "server": command.server, "operation": command.operation}
        with span(SpanType.COMMAND, command.verb, **facts) as doing:
            if trace := traceparent():
                command = msgspec.structs.replace(command, trace=trace)
            try:
                return await self._called(host, cell, command, though_silent=though_silent)
            except HostFailed as failure:
                doing.came_to("failed")
                doing.annotate(problem=failure.code)
                raise

    async def _called(self, host: str, cell: CellId, command: Command, *, though_silent: bool) -> msgspec.Raw:
        if self._listening.out_for_s() > BUS_GRACE_S:
            raise self._bus_out()
        if not though_silent:
            self._refuse_silent(host)
        key = ResultKey(command.server, command.turn, command.step)
        call = self._calls.get(key)
        patience_s = max(0.0, command.deadline - self._clock.now()) if command.left_s is None else command.left_s
        waiter: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        is_new = call is None
        if call is None:
            ends = self._clock.monotonic() + patience_s
            call = self._calls[key] = _PendingCall(HostAddress(cell, host), command, not though_silent, ends)
        call.waiters.add(waiter)
        try:
            async with asyncio.timeout(patience_s):
                if is_new:
                    await self._send(call, self._resend_s)
                result = await waiter
        except TimeoutError:
            if self._listening.out_for_s() > 0:
                raise self._bus_out() from None
            raise UnknownOutcome(
                "the host did not answer in time",
                private=f"{host}: {command.verb} of {command.server}, turn {command.turn}",
            ) from None
        finally:
            call.waiters.discard(waiter)
            if not call.waiters:
                self._forget(key)
        return self._open(host, result)

    def _forget(self, key: ResultKey) -> None:
        call = self._calls.pop(key, None)
        if call is not None and call.timer is not None:
            call.timer.cancel()

    async def _send(self, call: _PendingCall, again_s: float) -> None:
        if not call.waiters:
            return  # answered or given up in the moment in which it was to be sent again: nobody would end it any more
        address, loop = call.address, asyncio.get_running_loop()

        def again() -> None:
            if self._listening.out_for_s() > BUS_GRACE_S:
                call.settle(None, self._bus_out())
                return
            if call.fails_fast and self.is_silent(address.host):
                call.settle(None, self._silence(address.host))
                return
            task = loop.create_task(self._send(call, min(again_s * 2, RESEND_MOST_S)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

        call.again = again
        if call.timer is not None:
            call.timer.cancel()  # one chain of sendings, also when the bus came back in the moment of one
        call.timer = loop.call_later(again_s * (1.0 + 0.1 * self._dice.random()), again)
        left_s = max(0.0, call.ends - self._clock.monotonic())
        command = msgspec.structs.replace(call.command, left_s=left_s, taken=self._some_taken(address.host))
        await self._bus.publish(subjects.to_host(address.cell, address.host), encode(command))

    def _open(self, host: str, result: Result) -> msgspec.Raw:
        if result.ok:
            return result.payload
        left = b"" if result.payload == EMPTY else bytes(result.payload)
        raise HostFailed(
            _unnamed(result.public, host) or "the host could not do it",
            private=f"{host}: {result.private}",
            code=result.code or None,
            left=left,
        )

    # ---- what is heard -------------------------------------------------------------------------------------------------

    async def _on_result(self, subject: str, payload: bytes) -> None:
        result = self._senders.read(subject, payload)
        if not isinstance(result, Result):
            return
        self._heard[result.host] = self._clock.monotonic()
        call = self._calls.get(result.key)
        if call is None or call.address != HostAddress(result.cell, result.host):
            return  # late, or said twice, or an earlier host of the same server
        call.settle(result)
        if call.command.verb == Verb.START_GUEST and result.ok:  # taken when it counts, and not before
            self._started[result.server] = result.host, result.key
            while len(self._started) > MAX_STARTS_WAITING:
                del self._started[next(iter(self._started))]
            return
        taken = self._taken.setdefault(result.host, {})
        if len(taken) < MAX_TAKEN_WAITING:
            taken[result.key] = self._clock.monotonic()

    async def _on_heartbeat(self, subject: str, payload: bytes) -> None:
        beat = self._senders.read(subject, payload)
        if not isinstance(beat, Heartbeat):
            return
        self._heard[beat.host] = self._clock.monotonic()
        taken = self._taken.get(beat.host)
        counting = self._counted(beat.host)
        if not taken and not counting:
            return
        # Only when the host still keeps what we have taken is a message of its own spent on it.
        mine = tuple(key for key in (*counting, *self._settled(beat.host)) if key in beat.untaken)
        if mine:
            await self._bus.publish(
                subjects.to_host(beat.cell, beat.host), encode(ResultTaken(mine[:MAX_TAKEN_PER_MESSAGE]))
            )
        elif not beat.untaken and taken:
            taken.clear()

    def _counted(self, host: str) -> list[ResultKey]:
        """Starts of this host that count; those that it was told of for long enough are forgotten."""
        counting = self._counting.get(host)
        if not counting:
            return []
        now = self._clock.monotonic()
        for key in [key for key, until in counting.items() if until < now]:
            del counting[key]
        return list(counting)

    def _settled(self, host: str) -> list[ResultKey]:
        """Results that came long enough ago: whoever waited wrote them down, or died and its adopter has asked again."""
        before = self._clock.monotonic() - self._taken_after_s
        oldest_first = self._taken.get(host, {}).items()
        return [
            key for key, _ in islice(takewhile(lambda each: each[1] <= before, oldest_first), MAX_TAKEN_PER_MESSAGE)
        ]

    def _some_taken(self, host: str) -> tuple[ResultKey, ...]:
        """Acknowledgements that ride on a command, once; if it is lost, the host forgets when its server's turn is next raised."""
        riders = [*self._counted(host), *self._settled(host)][:MAX_TAKEN_PER_MESSAGE]
        for key in riders:
            for waiting in (self._counting, self._taken):
                waiting.get(host, {}).pop(key, None)
        return tuple(riders)

    def is_silent(self, host: str) -> bool:
        """No sign of life for too long, counted at the earliest from when we could hear one: never while the bus is out."""
        return self._listening.unheard_for_s(self._heard.get(host, 0.0)) > self._silent_s

    def silent(self, hosts: Iterable[str]) -> list[str]:
        return [host for host in hosts if self.is_silent(host)]

    def _refuse_silent(self, host: str) -> None:
        if self.is_silent(host):
            raise self._silence(host)

    def _bus_out(self) -> BusOut:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._listening.out_since or self._clock.now()))
        return BusOut(f"waiting for the message bus since {since}")

    async def _watch_bus(self) -> None:
        """When the bus is back, what is under way is sent again soon, rather than when its pause is over."""
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            outages = self._bus.outages
            self._listening.check()
            if outages == self._outages or not self._bus.healthy:
                continue
            self._outages = outages
            loop = asyncio.get_running_loop()
            for call in self._calls.values():
                if call.timer is not None and call.again is not None:
                    call.timer.cancel()
                    call.timer = loop.call_later(AGAIN_SPREAD_S * self._dice.random(), call.again)

    def _silence(self, host: str) -> HostFailed:
        return HostFailed(
            "the host has not been heard of for a while",
            private=f"{host}: no heartbeat for {self._silent_s:.0f} s",
            code="host_silent",
        )


def _unnamed(said: str, host: str) -> str:
    return re.sub(rf"(?<![\w.-])(the host |host )?{re.escape(host)}(?![\w-])", HERE, said)
