"""Moves in a small region: what hosts in dicts do with guests that come and go, and servers that were moved; for proofs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.move_payloads import OfMove, SendGuest, SendLive, TakeGuest
from moorage.bus.quiesce_messages import FreezeGuest, ThawGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed, HostUnanswered
from moorage.model.guest import MoveTarget, PowerState
from moorage.model.guest_devices import GuestDevices
from moorage.model.ids import CellId, ServerId
from moorage.model.live_migration import LiveNow, LiveSource, LiveState
from moorage.model.migration import MigrationStatus
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Server
from moorage.operations.steps import servers as records
from moorage.store.region import quotas
from moorage_testing.region_statements import ALLOCATED, MOVES, records_on

AnswerT = TypeVar("AnswerT")
UNDONE = frozenset({MigrationStatus.ERROR, MigrationStatus.FAILED, MigrationStatus.CANCELLED})
"""Of moves that did not come to be."""


@dataclass
class MoveVerbs:
    """Of `DictHosts`, which says how a turn is obeyed."""

    guests: dict[tuple[str, ServerId], PowerState] = field(default_factory=dict)
    sent: set[tuple[str, ServerId, str]] = field(default_factory=set)
    """(host, server, move) of what arrived on a host and is no guest there yet."""
    left: dict[tuple[str, ServerId], str] = field(default_factory=dict)
    """The move of a guest of which an older one still exists."""
    silent: set[str] = field(default_factory=set)
    """Hosts that are silent."""
    refusals_left: dict[str, int] = field(default_factory=dict)
    """Silent host → after how many calls to it it is heard again; a host that is not here stays silent."""
    waits: dict[tuple[str, ServerId], str] = field(default_factory=dict)
    """The move for which a place waits."""
    departed: dict[tuple[str, ServerId], str] = field(default_factory=dict)
    """The move by which a guest left while it ran."""
    still: dict[tuple[str, ServerId], str] = field(default_factory=dict)
    """Why a guest is still."""
    unstilled: set[tuple[str, ServerId, str]] = field(default_factory=set)
    """What guests were still for, and are no more."""

    def is_silent(self, host: str) -> bool:
        return host in self.silent

    def refuse_silent(self, host: str, *, unsure: bool = False) -> None:
        """Raises HostFailed when the host is silent; HostUnanswered when it may have been told before."""
        if host not in self.silent:
            return
        if host in self.refusals_left:
            self.refusals_left[host] -= 1
            if self.refusals_left[host] <= 0:
                del self.refusals_left[host]
                self.silent.discard(host)
        if unsure:
            raise HostUnanswered("nobody hears it, and it may have done it")
        raise HostFailed("nobody hears it", code="host_silent")

    def devices_of(self, host: str, server: ServerId) -> GuestDevices:
        raise NotImplementedError

    async def ask(
        self,
        to: HostAddress,
        server: ServerId,
        verb: Verb,
        payload: msgspec.Struct | None,
        kind: type[AnswerT],
        patience_s: float = 20.0,
    ) -> AnswerT:
        """Answer a command to a guest. Raises HostFailed when the host has no such guest, or it was not frozen."""
        answer: Any = MoveTarget("", to.host)
        if verb is Verb.LIVE_SOURCE:
            answer = LiveSource()
        elif verb is Verb.LIVE_STATUS:
            assert isinstance(payload, OfMove)
            answer = LiveNow(self._stands(to.host, server, payload.move))
        elif verb is Verb.GUEST_POWER:
            self.refuse_silent(to.host)
            if (to.host, server) not in self.guests:
                raise HostFailed("it has none", code="guest_not_found")
            answer = GuestNow(self.guests[to.host, server])
        elif verb is Verb.GUEST_DEVICES:
            answer = self.devices_of(to.host, server)
        elif isinstance(payload, FreezeGuest):
            self.still[to.host, server] = payload.why
            answer = GuestNow(PowerState.RUNNING)
        elif isinstance(payload, ThawGuest):
            if self.still.get((to.host, server)) == payload.why:
                del self.still[to.host, server]
                self.unstilled.add((to.host, server, payload.why))
            if (to.host, server, payload.why) not in self.unstilled:
                raise HostFailed("it was not still", code="not_frozen")
            answer = GuestNow(PowerState.RUNNING)
        return cast("AnswerT", answer)

    def _stands(self, host: str, server: ServerId, move: str) -> LiveState:
        key = (host, server)
        if self.departed.get(key) == move:
            return LiveState.SWITCHED
        if self.waits.get(key) == move:
            return LiveState.WAITING
        arrived = any(each[1] == server and by == move for each, by in self.departed.items())
        return LiveState.ARRIVED if key in self.guests and arrived else LiveState.NONE

    def _live(self, to: HostAddress, server: ServerId, verb: Verb, payload: Any) -> PowerState | None:
        """None: it is no verb of a live migration. What is sent is there at once."""
        key = (to.host, server)
        match verb:
            case Verb.PREPARE_LIVE:
                if key not in self.guests:
                    self.guests[key], self.waits[key] = PowerState.PAUSED, payload.move
            case Verb.SEND_LIVE:
                assert isinstance(payload, SendLive)
                there = (payload.to.where, server)
                if self.waits.get(there) == payload.move and key in self.guests:
                    self.guests[there] = self.guests.pop(key)
                    self.departed[key] = payload.move
                    del self.waits[there]
            case Verb.DROP_LIVE:
                if self.waits.pop(key, None) is not None:
                    self.guests.pop(key)
                elif key in self.guests and self._stands(to.host, server, payload.move) is LiveState.ARRIVED:
                    raise HostFailed("it is here", code="guest_has_arrived")
            case Verb.LAND_LIVE:
                if key not in self.guests or key in self.waits:
                    raise HostFailed("nothing arrived", code="nothing_arrived")
            case Verb.ABORT_LIVE | Verb.FORCE_LIVE:
                pass
            case _:
                return None
        return self.guests.get(key, PowerState.NOSTATE)

    def _makes_guest(self, to: HostAddress, server: ServerId, payload: msgspec.Struct | None) -> bool:
        """Of what was sent, or of what is left of one that departed."""
        departed = self.departed.get((to.host, server))
        return isinstance(payload, TakeGuest) or (isinstance(payload, OfMove) and departed == payload.move)

    def _moved(self, to: HostAddress, server: ServerId, payload: msgspec.Struct | None) -> PowerState | None:
        """None: it is no verb of a move."""
        key = (to.host, server)
        match payload:
            case SendGuest():
                if payload.to.where != to.host:
                    self.sent.add((payload.to.where, server, payload.move))
            case TakeGuest():
                if key in self.guests:
                    self.left[key] = payload.move
                elif (*key, payload.move) not in self.sent:
                    raise HostFailed("nothing arrived", code="nothing_arrived")
                self.sent.discard((*key, payload.move))
            case OfMove():
                if self.left.get(key) == payload.move:
                    del self.left[key]
                if self.departed.get(key) == payload.move and key not in self.guests:
                    del self.departed[key]
                    self.guests[key] = PowerState.SHUTDOWN
                return self.guests[key]
            case _:
                return None
        self.guests[key] = PowerState.SHUTDOWN
        return PowerState.SHUTDOWN

    def _drop_moves(self, to: HostAddress, server: ServerId) -> None:
        self.sent -= {each for each in self.sent if each[:2] == (to.host, server)}
        for kept in (self.left, self.waits, self.departed):
            kept.pop((to.host, server), None)


async def moves_held(
    small: Any, hosts: Sequence[tuple[str, CellId]], project: str, *, under_way: bool
) -> dict[str, Any]:
    """Whether guest, ports and record are on one host, how many guests run, and what the records say of moves and sizes."""
    rows, moves = list[Server](), list[str]()
    for database in small.cells.values():
        records, statuses = await database.read(lambda tx: (records_on(tx, hosts), tx.rows(MOVES)))
        rows += records
        moves += [status for (status,) in statuses if MigrationStatus(status) not in UNDONE]
    quota = await small.region.read(lambda tx: quotas.usage(tx, project))
    if under_way and not any(each.moved for each in rows):
        quota = {name: amount - small.charged_meanwhile.get(name, 0) for name, amount in quota.items()}
    on = {host for (host, _), power in small.hosts.guests.items() if power is PowerState.RUNNING}
    bound = {port.host for port in small.network.ports.values() if port.device_id}
    exported = set(small.volumes.hosts.values())
    host = {each.host for each in rows}
    return {
        "quota": quota,
        "runs": len(on),
        "runs elsewhere": sorted(on - host),
        "addresses": sorted(
            ip.address for port in small.network.ports.values() if port.device_id for ip in port.fixed_ips
        ),
        "bound elsewhere": sorted(bound - host),
        "exported elsewhere": sorted(exported - host),
        "moves": sorted(moves),
        "states": sorted(
            ("" if small.fails_to_error else each.vm_state.value, each.flavor.id, each.moved is not None)
            for each in rows
        ),
        "host stays": [each.host == "host1" for each in rows],
    }


async def addresses_held(small: Any, server: ServerId) -> dict[str, Any]:
    """Which addresses its ports have, its record shows, and are claimed."""
    record = (await records.find(small.context, server)).server
    claimed = await small.region.read(lambda tx: [each for each in tx.rows(ALLOCATED) if each[1] == IPV4_ADDRESS])
    return {
        "addresses": sorted(
            ip.address for port in small.network.ports.values() if port.device_id for ip in port.fixed_ips
        ),
        "shown": sorted(ip.address for nic in (() if record is None else record.nics) for ip in nic.addresses),
        "claimed": sorted(claimed),
    }
