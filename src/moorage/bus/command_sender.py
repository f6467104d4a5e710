"""Sends commands to hosts again and again until their results come; `agent_rpc.py` says how a call may end."""

import asyncio
import random

import msgspec

from moorage.bus import subjects
from moorage.bus.acknowledgements import Acknowledgements
from moorage.bus.agent_calls import HostAddress, PendingCall, payload_of
from moorage.bus.command_messages import Command, Result, ResultKey
from moorage.bus.host_silence import HostSilence
from moorage.bus.messages import encode
from moorage.bus.transport import Bus
from moorage.bus.verbs import READS, Verb
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed, HostUnanswered, Problem, UnknownOutcome
from moorage.model.ids import ConductorId
from moorage.model.image_ticket import TicketSecret
from moorage.model.tracing import SpanType, span, traceparent

RESEND_MOST_S = 10.0
CHANGES_NOTHING = READS - {Verb.SET_ADMIN_PASSWORD}
AGAIN_SPREAD_S = 1.0
"""When the bus is back, commands under way are sent again within this time, not all at once."""


class CommandSender:
    """Sends the commands of one caller, and waits for their results."""

    def __init__(
        self,
        bus: Bus,
        me: ConductorId,
        clock: Clock,
        silence: HostSilence,
        acknowledgements: Acknowledgements,
        *,
        resend_s: float,
    ) -> None:
        """`resend_s`: the first pause before a command is sent again; each further one is twice as long, up to `RESEND_MOST_S`."""
        self._bus = bus
        self._clock = clock
        self._silence = silence
        self._acknowledgements = acknowledgements
        self._resend_s = resend_s
        self._dice = random.Random(me)
        self._calls: dict[ResultKey, PendingCall] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self.tickets: TicketSecret | None = None
        """Signs tickets for images each time that an order is sent, so that they count from then on."""
        self.without_questions: set[str] = set()
        """Hosts that say they do not hear questions where those belong: their release is earlier."""

    @property
    def under_way(self) -> int:
        """How many commands wait for their answers."""
        return len(self._calls)

    async def stop(self) -> None:
        """Send nothing more; callers that wait for an answer wait until their deadline."""
        for call in self._calls.values():
            if call.timer is not None:
                call.timer.cancel()
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def call(
        self, address: HostAddress, command: Command, *, though_silent: bool, unsure: bool = False
    ) -> msgspec.Raw:
        """Send the command until its result comes, and return the result's payload. `unsure`: it may have been sent before.

        Raises HostFailed, HostUnanswered, BusOut or UnknownOutcome, as `agent_rpc.py` says.
        """
        facts = {"host": address.host, "server": command.server, "operation": command.operation}
        with span(SpanType.COMMAND, command.verb, **facts) as doing:
            if trace := traceparent():
                command = msgspec.structs.replace(command, trace=trace)
            try:
                return await self._called(address, command, though_silent=though_silent, unsure=unsure)
            except (HostFailed, HostUnanswered) as failure:
                doing.came_to("failed")
                doing.annotate(problem=failure.code)
                raise

    async def _called(
        self, address: HostAddress, command: Command, *, though_silent: bool, unsure: bool
    ) -> msgspec.Raw:
        if self._silence.is_bus_long_out:
            raise self._silence.bus_failure()
        key = ResultKey(command.server, command.turn, command.step)
        call = self._calls.get(key)
        if not though_silent and self._silence.is_silent(address.host):
            raise self._silent(address.host, command, sent=unsure or call is not None)
        patience_s = max(0.0, command.deadline - self._clock.now()) if command.left_s is None else command.left_s
        waiter: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        is_new = call is None
        if call is None:
            ends = self._clock.monotonic() + patience_s
            call = self._calls[key] = PendingCall(address, command, not though_silent, ends)
        call.waiters.add(waiter)
        try:
            async with asyncio.timeout(patience_s):
                if is_new:
                    await self._send(call, self._resend_s)
                result = await waiter
        except TimeoutError:
            if self._silence.is_bus_out:
                raise self._silence.bus_failure() from None
            raise UnknownOutcome(
                "the host did not answer in time",
                private=f"{address.host}: {command.verb} of {command.server}, turn {command.turn}",
            ) from None
        finally:
            call.waiters.discard(waiter)
            if not call.waiters:
                self._forget(key)
        return payload_of(address.host, result)

    def _silent(self, host: str, command: Command, *, sent: bool) -> Problem:
        """The end of a call to a silent host. A read that was sent has changed nothing, so it counts as not sent."""
        if sent and command.verb not in CHANGES_NOTHING:
            return self._silence.unanswered_by(host)
        return self._silence.failure_of(host)

    def _forget(self, key: ResultKey) -> None:
        call = self._calls.pop(key, None)
        if call is not None and call.timer is not None:
            call.timer.cancel()

    async def _send(self, call: PendingCall, again_s: float) -> None:
        if not call.waiters:
            return  # it was answered or given up just before it was sent again: nothing would end it any more
        address, loop = call.address, asyncio.get_running_loop()

        def again() -> None:
            if self._silence.is_bus_long_out:
                call.settle(None, self._silence.bus_failure())
                return
            if call.fails_fast and self._silence.is_silent(address.host):
                call.settle(None, self._silent(address.host, call.command, sent=True))
                return
            task = loop.create_task(self._send(call, min(again_s * 2, RESEND_MOST_S)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

        call.again = again
        if call.timer is not None:
            call.timer.cancel()  # only one series of sendings, also if the bus came back during one
        call.timer = loop.call_later(again_s * (1.0 + 0.1 * self._dice.random()), again)
        left_s = max(0.0, call.ends - self._clock.monotonic())
        command = msgspec.structs.replace(
            call.command, left_s=left_s, taken=self._acknowledgements.riders(address.host)
        )
        if command.tickets and self.tickets is not None:
            command = msgspec.structs.replace(command, tickets=self.tickets.signed(address.host, command.tickets))
        await self._bus.publish(self._subject_of(address, command), encode(command))

    def _subject_of(self, address: HostAddress, command: Command) -> str:
        if command.verb in READS and address.host not in self.without_questions:
            return subjects.ask_host(address.cell, address.host, command.verb)
        return subjects.to_host(address.cell, address.host)

    def settle(self, result: Result) -> PendingCall | None:
        """End the call to which this result belongs; None: it is late, a repeat, or from an earlier host of the same server."""
        call = self._calls.get(result.key)
        if call is None or call.address != HostAddress(result.cell, result.host):
            return None
        call.settle(result)
        return call

    def send_all_again(self) -> None:
        """Send commands under way again within `AGAIN_SPREAD_S`, because the bus is back."""
        loop = asyncio.get_running_loop()
        for call in self._calls.values():
            if call.timer is not None and call.again is not None:
                call.timer.cancel()
                call.timer = loop.call_later(AGAIN_SPREAD_S * self._dice.random(), call.again)
