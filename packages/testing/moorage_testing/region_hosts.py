"""Hosts of a small region, in dicts: what RULES §10 says of real ones, their turns first of all."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from typing_extensions import override

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.guest_payloads import DestroyGuest, RebuildGuest
from moorage.bus.rescue_messages import RescueGuest, UnrescueGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed, HostUnanswered
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import GuestSpec, PowerState, VifData
from moorage.model.guest_devices import GuestDevices, GuestInterface, GuestVolume
from moorage.model.ids import ServerId
from moorage_testing.region_images import SnapshotVerbs
from moorage_testing.region_moves import MoveVerbs
from moorage_testing.region_volumes import Disks


@dataclass
class DictHosts(SnapshotVerbs, MoveVerbs, Disks):
    """Hosts with turns: a past one is refused, a repeated one answered from memory (RULES §10)."""

    guests: dict[tuple[str, ServerId], PowerState] = field(default_factory=dict)
    turns: dict[tuple[str, ServerId], FencingToken] = field(default_factory=dict)
    answers: dict[tuple[str, ServerId, FencingToken, str], PowerState] = field(default_factory=dict)
    vifs: set[tuple[str, ServerId, str]] = field(default_factory=set)
    """(host, server, port) of every interface that was plugged into a running guest."""
    wired: set[tuple[str, ServerId, str]] = field(default_factory=set)
    """The same of every interface that a guest has, also those with which it was started."""
    tells_devices: bool = False
    """Whether a guest's devices are compared with its record."""
    bdms: dict[str, str] = field(default_factory=dict)
    """Volume in a guest → the block device for which it was plugged, where that matters."""
    rebuilt: dict[tuple[str, ServerId], RebuildGuest] = field(default_factory=dict)
    """The last order by which a guest was made anew."""
    counting: list[tuple[str, ServerId, int]] = field(default_factory=list)
    """(host, server, place of the operation) of every start that was acknowledged."""
    rescued: set[tuple[str, ServerId]] = field(default_factory=set)
    commands: int = 0
    """How many were obeyed."""
    loses: int = 0
    """The how manyth command is obeyed without an answer that arrives; 0: none."""
    silent_for: int | None = None
    """For how many further calls its host is silent then; None: until the operation is over."""
    fell_silent: set[str] = field(default_factory=set)

    @override
    def _execute_once(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, do: Callable[[], PowerState]
    ) -> PowerState:
        self.refuse_silent(to.host, unsure=command_context.unsure)
        key, now = (to.host, server), command_context.turn
        if now < self.turns.get(key, now):
            raise HostFailed("too late", code="turn_is_past")
        self.turns[key] = now
        said = (to.host, server, now, command_context.step)
        if said not in self.answers:
            self.answers[said] = do()
            self.commands += 1
            if self.commands == self.loses:
                self._fall_silent(to.host)
        return self.answers[said]

    def _fall_silent(self, host: str) -> None:
        """Raises HostUnanswered."""
        self.silent.add(host)
        self.fell_silent.add(host)
        if self.silent_for is not None:
            self.refusals_left[host] = self.silent_for
        raise HostUnanswered("its answer is lost, and it is silent")

    async def start_guest(self, to: HostAddress, command_context: CommandContext, guest: GuestSpec) -> PowerState:
        def do() -> PowerState:
            self.disks |= {(to.host, guest.server, disk.volume) for disk in guest.volumes}
            self.wired |= {(to.host, guest.server, str(vif.port)) for vif in guest.vifs}
            return self._set(to, guest.server, PowerState.RUNNING if guest.power_on else PowerState.SHUTDOWN)

        return self._execute_once(to, command_context, guest.server, do)

    def start_counts(self, host: str, server: ServerId, operation_seq: int) -> None:
        self.counting.append((host, server, operation_seq))

    async def destroy_guest(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, release: DestroyGuest | None = None
    ) -> None:
        def do() -> PowerState:
            self.guests.pop((to.host, server), None)
            self.copies.pop((to.host, server), None)
            self._drop_moves(to, server)
            self.vifs -= {each for each in self.vifs if each[:2] == (to.host, server)}
            self.wired -= {each for each in self.wired if each[:2] == (to.host, server)}
            self.disks -= {each for each in self.disks if each[:2] == (to.host, server)}
            return PowerState.NOSTATE

        self._execute_once(to, command_context, server, do)

    async def power_off(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, graceful_s: float = 60.0
    ) -> PowerState:
        return self._execute_once(to, command_context, server, lambda: self._become(to, server, PowerState.SHUTDOWN))

    async def power_on(self, to: HostAddress, command_context: CommandContext, server: ServerId) -> PowerState:
        return self._execute_once(to, command_context, server, lambda: self._become(to, server, PowerState.RUNNING))

    async def reboot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, *, hard: bool
    ) -> PowerState:
        return self._execute_once(to, command_context, server, lambda: self._become(to, server, PowerState.RUNNING))

    async def pause(self, to: HostAddress, command_context: CommandContext, server: ServerId) -> PowerState:
        return self._execute_once(to, command_context, server, lambda: self._become(to, server, PowerState.PAUSED))

    unpause = power_on
    resume = power_on

    async def suspend(self, to: HostAddress, command_context: CommandContext, server: ServerId) -> PowerState:
        return self._execute_once(to, command_context, server, lambda: self._become(to, server, PowerState.SUSPENDED))

    async def attach_interface(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, vif: VifData
    ) -> None:
        def do() -> PowerState:
            self.vifs.add((to.host, server, vif.port))
            self.wired.add((to.host, server, vif.port))
            return self.guests[to.host, server]

        self._execute_once(to, command_context, server, do)

    async def detach_interface(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, port: str
    ) -> None:
        def do() -> PowerState:
            self.vifs.discard((to.host, server, port))
            self.wired.discard((to.host, server, port))
            return self.guests[to.host, server]

        self._execute_once(to, command_context, server, do)

    @override
    def devices_of(self, host: str, server: ServerId) -> GuestDevices:
        self.refuse_silent(host)
        volumes = sorted(volume for at, of, volume in self.disks if (at, of) == (host, server))
        ports = sorted(port for at, of, port in self.wired if (at, of) == (host, server))
        has = tuple(GuestVolume(each, bdm=self.bdms.get(each, "")) for each in volumes)
        return GuestDevices(has, tuple(map(GuestInterface, ports)))

    async def change_guest(
        self,
        to: HostAddress,
        command_context: CommandContext,
        server: ServerId,
        verb: Verb,
        payload: msgspec.Struct | None = None,
    ) -> PowerState:
        def do() -> PowerState:
            if (live := self._live(to, server, verb, payload)) is not None:
                return live
            if (to.host, server) not in self.guests and not self._makes_guest(to, server, payload):
                raise HostFailed("no guest", code="guest_not_found")
            if isinstance(payload, RebuildGuest):
                self.rebuilt[to.host, server] = payload
                return self._set(to, server, PowerState.RUNNING if payload.guest.power_on else PowerState.SHUTDOWN)
            if isinstance(payload, RescueGuest):
                self.rescued.add((to.host, server))
                return self._set(to, server, PowerState.RUNNING)
            if (power := self._moved(to, server, payload)) is not None:
                return power
            if isinstance(payload, UnrescueGuest):
                self.rescued.discard((to.host, server))
                return self._set(to, server, PowerState.RUNNING if payload.power_on else PowerState.SHUTDOWN)
            return self.guests[to.host, server]

        return self._execute_once(to, command_context, server, do)

    def held(self) -> dict[str, Any]:
        kinds = ("copies", "guests", "rescued", "sent", "left", "waits", "departed")
        made = {kind: len(getattr(self, kind)) for kind in kinds}
        made["still"] = sum(self.images.whole.get(why) is not False for why in self.still.values())
        return {**made, "vifs": sorted(self.vifs), "disks": sorted(each[2] for each in self.disks)}

    def _become(self, to: HostAddress, server: ServerId, state: PowerState) -> PowerState:
        if (to.host, server) not in self.guests:
            raise HostFailed("no guest", code="guest_not_found")
        return self._set(to, server, state)

    def _set(self, to: HostAddress, server: ServerId, state: PowerState) -> PowerState:
        self.guests[to.host, server] = state
        return state
