"""Moves in a small region: what hosts in dicts do with guests that come and go, and servers that were moved; for proofs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from moorage.bus.agents import HostAddress
from moorage.bus.messages import OfMove, SendGuest, TakeGuest, Verb
from moorage.model.errors import HostFailed
from moorage.model.guest import MoveTarget, PowerState
from moorage.model.ids import CellId, ServerId
from moorage.model.migration import MigrationStatus
from moorage.store.cell import migrations, servers
from moorage.store.region import quotas


@dataclass
class MoveVerbs:
    """Of `DictHosts`, which says how a turn is obeyed."""

    guests: dict[tuple[str, ServerId], PowerState] = field(default_factory=dict)
    sent: set[tuple[str, ServerId, str]] = field(default_factory=set)
    """(host, server, move) of what arrived on a host and is no guest there yet."""
    left: dict[tuple[str, ServerId], str] = field(default_factory=dict)
    """The move of a guest that has an older one beside it."""

    async def ask(
        self,
        to: HostAddress,
        server: ServerId,
        verb: Verb,
        payload: msgspec.Struct | None,
        kind: type[MoveTarget],
        patience_s: float = 20.0,
    ) -> MoveTarget:
        assert verb is Verb.MOVE_TARGET
        return MoveTarget("", to.host)

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
                return self.guests[key]
            case _:
                return None
        self.guests[key] = PowerState.SHUTDOWN
        return PowerState.SHUTDOWN

    def _drop_moves(self, to: HostAddress, server: ServerId) -> None:
        self.sent -= {each for each in self.sent if each[:2] == (to.host, server)}
        self.left.pop((to.host, server), None)


async def moves_held(
    small: Any, hosts: Sequence[tuple[str, CellId]], project: str, *, under_way: bool
) -> dict[str, Any]:
    """Whether guest, ports and record are on one host, how many guests run, and what the records say of moves and sizes."""
    rows = [
        each
        for database in small.cells.values()
        for host, _ in hosts
        for each in await database.read(partial(servers.on_host, host=host))
    ]
    moves = [
        each.status.value
        for database in small.cells.values()
        for each in await database.read(lambda tx: migrations.listed(tx, migrations.MigrationQuery(10)))
        if each.status is not MigrationStatus.ERROR
    ]
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
        "bound elsewhere": sorted(bound - host),
        "exported elsewhere": sorted(exported - host),
        "moves": sorted(moves),
        "states": sorted((each.vm_state.value, each.flavor.id, each.moved is not None) for each in rows),
        "host stays": [each.host == "host1" for each in rows],
    }
