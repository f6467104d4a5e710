"""A conductor's side of a call: repeated until it is answered, one answer for all callers, and answers of others are ignored."""

import asyncio

import msgspec
import pytest
from tests.helpers.agent_host import CELL, HOST, SERVER, command_context

from moorage.bus import subjects
from moorage.bus.agent_rpc import AgentClient
from moorage.bus.command_messages import Command, Result, ResultKey, ResultTaken
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.host_messages import Heartbeat
from moorage.bus.memory import MemoryBus
from moorage.bus.messages import encode, pack, read
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed, HostUnanswered, UnknownOutcome
from moorage.model.guest import PowerState
from moorage.model.ids import ConductorId
from moorage_testing.waiting import until

ME = ConductorId("k1")


def result_of(command: Command, host: str = HOST.host, step: str | None = None) -> Result:
    payload = pack(GuestNow(PowerState.SHUTDOWN))
    return Result(host, CELL, command.server, command.turn, step or command.step, True, payload=payload)


class HandHost:
    """A host whose answers the test writes itself."""

    def __init__(self, bus: MemoryBus) -> None:
        self.bus = bus
        self.commands: list[Command] = []
        self.taken: list[ResultKey] = []

    async def start(self) -> None:
        await self.bus.subscribe(subjects.to_host(CELL, HOST.host), self.on_message)

    async def on_message(self, _: str, payload: bytes) -> None:
        message = read(payload)
        if isinstance(message, Command):
            self.commands.append(message)
            self.taken += message.taken
        elif isinstance(message, ResultTaken):
            self.taken += message.results

    async def answer(self, command: Command, *, host: str = HOST.host, step: str | None = None) -> None:
        result = result_of(command, host, step)
        await self.bus.publish(subjects.result_from(CELL, host, command.reply_to), encode(result))

    async def beat(self, *untaken: ResultKey) -> None:
        await self.bus.publish(
            subjects.from_host(CELL, HOST.host, subjects.HEARTBEAT),
            encode(Heartbeat(HOST.host, CELL, "b", untaken=untaken)),
        )


class HandClock(SystemClock):
    """Time passes as on any clock, and by hand besides."""

    passed_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_s


async def begun(
    resend_s: float = 0.02, silent_s: float = 15.0, taken_after_s: float = 30.0, clock: SystemClock | None = None
) -> tuple[HandHost, AgentClient]:
    bus = MemoryBus()
    host, caller = (
        HandHost(bus),
        AgentClient(bus, ME, clock or SystemClock(), resend_s=resend_s, silent_s=silent_s, taken_after_s=taken_after_s),
    )
    await host.start()
    await caller.start()
    return host, caller


async def test_a_command_is_resent_until_it_is_answered() -> None:
    host, caller = await begun()
    waiting = asyncio.create_task(caller.power_off(HOST, command_context(), SERVER))
    await until(lambda: len(host.commands) >= 3)
    lefts = [command.left_s for command in host.commands]
    assert lefts == sorted(lefts, reverse=True), "each time it says how much longer the answer is waited for"
    assert len({encode(msgspec.structs.replace(command, left_s=None)) for command in host.commands}) == 1
    await host.answer(host.commands[0])
    assert await waiting is PowerState.SHUTDOWN
    await until(lambda: host.bus.quiet)
    sent = len(host.commands)
    with pytest.raises(TimeoutError):
        await until(lambda: len(host.commands) > sent, patience_s=0.2)
    await caller.stop()


async def test_an_answer_during_a_resend_stops_the_resending() -> None:
    """Else it would be sent for ever, and obeyed once more when the host has forgotten what it answered."""
    host, caller = await begun(resend_s=600)
    waiting = asyncio.create_task(caller.power_off(HOST, command_context(), SERVER))
    await until(lambda: host.commands)
    (call,) = caller._sender._calls.values()
    assert call.again is not None
    call.settle(result_of(host.commands[0]))
    call.again()
    assert await waiting is PowerState.SHUTDOWN
    await until(lambda: host.bus.quiet and not caller._sender._sending)
    assert len(host.commands) == 1
    assert call.timer is not None
    assert call.timer.cancelled()
    await caller.stop()


async def test_two_reasons_to_resend_share_one_loop() -> None:
    host, caller = await begun(resend_s=600)
    waiting = asyncio.create_task(caller.power_off(HOST, command_context(), SERVER))
    await until(lambda: host.commands)
    (call,) = caller._sender._calls.values()
    assert call.again is not None
    call.again()
    soon = call.timer = asyncio.get_running_loop().call_later(600, call.again)  # as when the bus is back
    await until(lambda: len(host.commands) == 2)
    assert soon.cancelled()
    await host.answer(host.commands[0])
    assert await waiting is PowerState.SHUTDOWN
    await caller.stop()


async def test_identical_calls_share_one_command() -> None:
    host, caller = await begun(resend_s=600)
    waiting = [asyncio.create_task(caller.power_off(HOST, command_context(), SERVER)) for _ in range(2)]
    await until(lambda: host.commands)
    await host.answer(host.commands[0])
    assert await asyncio.gather(*waiting) == [PowerState.SHUTDOWN] * 2
    assert len(host.commands) == 1
    await caller.stop()


async def test_answers_of_another_host_step_or_deadline_are_ignored() -> None:
    host, caller = await begun(resend_s=600)
    waiting = asyncio.create_task(caller.power_off(HOST, command_context(patience_s=0.3), SERVER))
    await until(lambda: host.commands)
    await host.answer(host.commands[0], host="n2")
    await host.answer(host.commands[0], step="other")
    with pytest.raises(UnknownOutcome):
        await waiting
    await host.answer(host.commands[0])  # too late: nobody waits, nothing breaks
    await until(lambda: host.bus.quiet)
    await caller.stop()


async def test_a_cancelled_caller_does_not_cancel_the_other() -> None:
    host, caller = await begun(resend_s=600)
    first, second = (asyncio.create_task(caller.power_off(HOST, command_context(), SERVER)) for _ in range(2))
    await until(lambda: host.commands)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await host.answer(host.commands[0])
    assert await second is PowerState.SHUTDOWN
    await caller.stop()


async def test_a_pending_call_ends_when_the_host_falls_silent() -> None:
    _, caller = await begun(silent_s=0.1)
    with pytest.raises(HostUnanswered):  # it was sent: the host may have done it
        await caller.power_off(HOST, command_context(patience_s=30), SERVER)
    assert caller.silent([HOST.host, "n2"]) == [HOST.host, "n2"]
    with pytest.raises(HostFailed) as silent:
        await caller.power_off(HOST, command_context(2, patience_s=30), SERVER)
    assert silent.value.code == "host_silent", "nothing was sent"
    unsure = msgspec.structs.replace(command_context(3, patience_s=30), unsure=True)
    with pytest.raises(HostUnanswered):  # an earlier executor may have sent it
        await caller.power_off(HOST, unsure, SERVER)
    with pytest.raises(HostFailed):  # a read changes nothing
        await caller.console_output(HOST, SERVER, None)
    await caller.stop()


async def test_who_joins_a_command_that_was_sent_learns_that_it_was() -> None:
    host, caller = await begun(silent_s=0.2, resend_s=600.0)
    first = asyncio.create_task(caller.power_off(HOST, command_context(patience_s=600), SERVER))
    await until(lambda: len(host.commands) == 1)
    await until(lambda: caller.is_silent(HOST.host))
    with pytest.raises(HostUnanswered):
        await caller.power_off(HOST, command_context(patience_s=600), SERVER)
    first.cancel()
    await caller.stop()


async def test_a_result_is_acknowledged_once_when_settled() -> None:
    host, caller = await begun(resend_s=600, taken_after_s=3600.0, clock=(clock := HandClock()))

    async def done(seq: int) -> ResultKey:
        waiting = asyncio.create_task(caller.power_off(HOST, command_context(seq), SERVER))
        await until(lambda: len(host.commands) == seq)
        await host.answer(host.commands[-1])
        await waiting
        return ResultKey(SERVER, host.commands[-1].turn, host.commands[-1].step)

    first = await done(1)
    await host.beat(first)
    await until(lambda: host.bus.quiet)
    assert host.taken == []  # it may not be written down yet
    clock.passed_s += 3600.0
    await host.beat(first)
    await until(lambda: first in host.taken)
    host.taken.clear()
    second = await done(2)
    clock.passed_s += 3600.0
    await done(3)
    assert host.taken == [first, second]  # riding on the third command; `first` too, for the host had not confirmed it
    host.taken.clear()
    await host.beat(first)
    await until(lambda: host.bus.quiet)
    assert host.taken == []
    await caller.stop()
