"""Typed calls to hosts, with deadlines.

A call is a command that is sent again until its result comes: the agent answers a repeated turn and step with the result that it kept
(RULES §10), so repeating is safe, and a lost message only costs time.  Results arrive under the calling conductor's own subject.

How a call may end:

    the answer                 the host has done it
    HostFailed                 the host reports that it could not; `code` is the host's code.  Nothing is pending there any more.
    HostFailed(host_silent)    no heartbeat for `silent_s`, and nothing was sent.  A read, which changes nothing, ends so too when it was sent.
    HostUnanswered             the same, but the command was sent, or may have been (`CommandContext.unsure`): it may have worked.
    BusOut                     the bus is out, which says nothing about the host.  It may have begun.
    UnknownOutcome             no answer in time: the command may have worked, or may still; a command with a higher turn prevents that
"""

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from moorage.bus import legacy_subjects, subjects
from moorage.bus.acknowledgements import Acknowledgements
from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.command_messages import EMPTY, Command, Result, ResultTaken
from moorage.bus.command_sender import CommandSender
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
    waits_s,
)
from moorage.bus.host_messages import Heartbeat
from moorage.bus.host_silence import HostSilence
from moorage.bus.image_tickets import needed_by
from moorage.bus.messages import encode, pack
from moorage.bus.sender_checks import Senders
from moorage.bus.sender_shares import OF_RESULTS
from moorage.bus.silence import LOOK_EVERY_S
from moorage.bus.transport import Bus, Handler, Subscription
from moorage.bus.verbs import Verb
from moorage.bus.volume_payloads import AttachVolume, Connector, DetachVolume, ExtendVolume, SwapVolume
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import GuestSpec, PowerState, Quiesce, VifData, VolumeDisk
from moorage.model.host_ports import PortOrder
from moorage.model.ids import CellId, ConductorId, ImageId, OperationId, ServerId
from moorage.model.image_ticket import TicketSecret

AnswerT = TypeVar("AnswerT", bound=msgspec.Struct)

NOT_SUPPORTED, TURN_IS_PAST = "not_supported", "turn_is_past"
"""Codes of refusals."""
ANY_CELL: tuple[CellId | None, ...] = (None,)


@dataclass(frozen=True)
class AudibleHosts:
    """Which hosts a process hears."""

    cells: Sequence[CellId] = ()
    """Only hosts of these cells, where the broker separates cells; empty: all."""
    earlier: bool = True
    """Hosts of release 0.1.0 too, which name themselves in their messages only."""


class AgentClient:
    """Calls hosts; each process that executes sagas has one. Call `start` before the first call."""

    def __init__(
        self,
        bus: Bus,
        me: ConductorId,
        clock: Clock,
        *,
        resend_s: float = 2.0,
        silent_s: float = 15.0,
        taken_after_s: float = 30.0,
        audible: AudibleHosts = AudibleHosts(),
    ) -> None:
        self._cells, self._earlier = audible.cells, audible.earlier
        self._bus = bus
        self._me = me
        self._clock = clock
        self._silence = HostSilence(bus, clock, silent_s)
        self._outages = bus.outages
        self._watching: asyncio.Task[None] | None = None
        self._acknowledgements = Acknowledgements(clock, taken_after_s)
        self._sender = CommandSender(bus, me, clock, self._silence, self._acknowledgements, resend_s=resend_s)
        self._subscriptions: list[Subscription] = []
        self._senders = Senders(clock, share=OF_RESULTS)

    def sign_with(self, tickets: TicketSecret | None) -> None:
        """Send tickets for images with orders from now on; None: hosts have an account at the image service."""
        self._sender.tickets = tickets

    @property
    def me(self) -> ConductorId:
        """The name under which hosts answer this process."""
        return self._me

    @property
    def under_way(self) -> int:
        """How many commands wait for their answers."""
        return self._sender.under_way

    @property
    def forged(self) -> int:
        """How many messages were ignored, because their sender may not send them."""
        return self._senders.forged

    @property
    def excess(self) -> int:
        """How many messages were ignored unread, because their sender sent more than its share."""
        return self._senders.excess

    async def start(self) -> None:
        self._silence.begin()
        self._watching = asyncio.create_task(self._watch_bus(), name="bus-watch")
        handlers: list[tuple[str, Handler]] = []
        for cell in self._cells or ANY_CELL:
            handlers.append((subjects.results_for(self._me, cell), self._on_result))
            handlers.append((subjects.heartbeats(cell), self._on_heartbeat))
        if self._earlier:
            handlers.append((legacy_subjects.results_for(self._me), self._on_result))
            handlers.append((legacy_subjects.ALL_HEARTBEATS, self._on_heartbeat))
        self._subscriptions = [await self._bus.subscribe(pattern, handler) for pattern, handler in handlers]

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._sender.stop()

    # ---- the verbs ---------------------------------------------------------------------------------------------------

    async def start_guest(self, to: HostAddress, command_context: CommandContext, guest: GuestSpec) -> PowerState:
        """Make the guest and start it; a guest that exists already is success."""
        return await self._change(to, command_context, guest.server, Verb.START_GUEST, StartGuest(guest))

    async def build_guest(
        self, to: HostAddress, command_context: CommandContext, guest: GuestSpec, order: PortOrder
    ) -> GuestNow:
        """Do the same on a host that first makes or binds the ports itself; HostFailed has the ports that it `left`."""
        command = self._command(command_context, guest.server, Verb.START_GUEST, StartGuest(guest, order))
        return await self._answer(to, command_context, command, GuestNow)

    async def destroy_guest(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, release: DestroyGuest | None = None
    ) -> None:
        """Destroy the guest; a missing one is success.  The turn stays on the host as a tombstone: a later `start_guest` with a lower turn
        is refused.

        `release`: a host of level 1 or 2 also releases the server's ports.
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
        """Copy the guest's disk on the host; the guest keeps running."""
        return await self._change(to, command_context, server, Verb.TAKE_SNAPSHOT, TakeSnapshot(image, quiesce))

    async def upload_snapshot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, image: ImageId
    ) -> None:
        """Let the host upload the copy into the image; the context's patience must be enough for the largest disk."""
        await self._change(to, command_context, server, Verb.UPLOAD_SNAPSHOT, OfSnapshot(image))

    async def drop_snapshot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, image: ImageId
    ) -> None:
        """Remove the copy; a missing one is success."""
        await self._change(to, command_context, server, Verb.DROP_SNAPSHOT, OfSnapshot(image))

    async def swap_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, old: str, disk: VolumeDisk
    ) -> None:
        """Copy a volume to another one under the running guest, which then uses the new one; the time depends on the size."""
        await self._change(to, command_context, server, Verb.SWAP_VOLUME, SwapVolume(old, disk))

    async def extend_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, volume: str, size_gib: int
    ) -> None:
        await self._change(to, command_context, server, Verb.EXTEND_VOLUME, ExtendVolume(volume, size_gib))

    async def volume_connector(self, to: HostAddress, server: ServerId, patience_s: float = 20.0) -> dict[str, Any]:
        """Return what the volume service needs to know of the host to export a volume to it: a read, without a turn."""
        return (await self.ask(to, server, Verb.VOLUME_CONNECTOR, None, Connector, patience_s)).connector

    async def console_output(
        self, to: HostAddress, server: ServerId, lines: int | None, patience_s: float = 20.0
    ) -> str:
        """Return the guest's console output: a read, without a turn."""
        return (await self.ask(to, server, Verb.CONSOLE_OUTPUT, ConsoleOutput(lines), ConsoleText, patience_s)).text

    async def change_guest(
        self,
        to: HostAddress,
        command_context: CommandContext,
        server: ServerId,
        verb: Verb,
        payload: msgspec.Struct | None = None,
    ) -> PowerState:
        """Send any verb that changes a guest. Returns the guest's state afterwards."""
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
        """Send any verb of `READS`: it has no turn, and the host does not keep its answer.

        Raises HostFailed (`not_supported`) when the host cannot do it, also for a host of an earlier release: its agent treats an unknown
        read as a command, and refuses it as outdated because it has no turn.
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
        """Acknowledge a start with the next message to the host: the operation has recorded the server as built there.

        Until the host knows this, it switches the guest off when it loses contact (RULES §23).  If the message is lost, or this process
        dies, the host asks its cell.
        """
        self._acknowledgements.start_counts(host, server, operation_seq)

    # ---- sending -----------------------------------------------------------------------------------------------------

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
        raw = await self.call(
            to.host,
            to.cell,
            command,
            though_silent=command_context.though_silent,
            unsure=command_context.unsure,
        )
        return msgspec.json.decode(raw, type=kind)

    def _command(
        self, command_context: CommandContext, server: ServerId, verb: Verb, payload: msgspec.Struct | None
    ) -> Command:
        patience_s = command_context.patience_s + waits_s(payload)
        return Command(
            server=server,
            turn=command_context.turn,
            step=command_context.step,
            verb=verb,
            operation=command_context.operation,
            deadline=self._clock.now() + patience_s,
            left_s=patience_s,
            reply_to=self._me,
            request_id=command_context.request_id,
            until_done=command_context.until_done,
            knows_senders=True,
            payload=EMPTY if payload is None else pack(payload),
            tickets=() if self._sender.tickets is None else needed_by(verb, payload),
        )

    async def call(
        self, host: str, cell: CellId, command: Command, *, though_silent: bool = False, unsure: bool = False
    ) -> msgspec.Raw:
        """Send the command until its result comes, and return the result's payload. Raises as the docstring of this module says."""
        return await self._sender.call(HostAddress(cell, host), command, though_silent=though_silent, unsure=unsure)

    # ---- receiving -----------------------------------------------------------------------------------------------------

    async def _on_result(self, subject: str, payload: bytes) -> None:
        result = self._senders.read(subject, payload)
        if not isinstance(result, Result):
            return
        self._silence.note_alive(result.host)
        call = self._sender.settle(result)
        if call is not None:
            self._acknowledgements.note(result, starts=call.command.verb == Verb.START_GUEST)

    async def _on_heartbeat(self, subject: str, payload: bytes) -> None:
        beat = self._senders.read(subject, payload)
        if not isinstance(beat, Heartbeat):
            return
        self._silence.note_alive(beat.host)
        (self._sender.without_questions.discard if beat.takes_questions else self._sender.without_questions.add)(
            beat.host
        )
        if results := self._acknowledgements.wanted_by(beat):
            await self._bus.publish(subjects.to_host(beat.cell, beat.host), encode(ResultTaken(results)))

    def is_silent(self, host: str) -> bool:
        """Tell whether the host is silent: no sign of life for too long, counted from when we could receive one; never while the bus is out."""
        return self._silence.is_silent(host)

    def silent(self, hosts: Iterable[str]) -> list[str]:
        return [host for host in hosts if self._silence.is_silent(host)]

    async def _watch_bus(self) -> None:
        """When the bus is back, send commands under way again soon, without waiting for the end of their pauses."""
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            outages = self._bus.outages
            self._silence.check()
            if outages == self._outages or not self._bus.healthy:
                continue
            self._outages = outages
            self._sender.send_all_again()
