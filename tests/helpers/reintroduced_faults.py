"""Faults that the cloud once had, reintroduced one at a time: the simulation must find them.

Each is a context manager that makes the product behave as it did.  None of them changes the simulation's rules.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import sqlalchemy as sa

from moorage.agent.agent import Agent
from moorage.agent.authority import Authority
from moorage.agent.held_guests import Hold
from moorage.bus.command_messages import Command
from moorage.bus.command_sender import CommandSender
from moorage.bus.host_messages import Heartbeat, ServerTurn
from moorage.bus.silence import Listening
from moorage.bus.verbs import Verb
from moorage.clients.deadline import LEASE_MARGIN_S
from moorage.clients.network.network_api import NetworkApi
from moorage.conductor import operation_runner, worker
from moorage.conductor.agent_identity import AgentAdmission
from moorage.conductor.bus_reach import BusReach
from moorage.conductor.cell_conductor import CellConductor
from moorage.conductor.guest_reconciliation import Belonging
from moorage.conductor.known_hosts import KnownHost
from moorage.conductor.reconcilers import orphan_ports
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.conductor.worker import Conductor
from moorage.main import store_consistency
from moorage.model.errors import Problem
from moorage.model.fencing_token import LAST_ATTEMPT, UNDO, FencingToken
from moorage.model.network import minted_macs
from moorage.operations.delete.delete import DELETE, DELETE_BEFORE_SHOWN, find_server
from moorage.operations.interfaces import port_sync
from moorage.operations.steps import moving
from moorage.operations.steps import servers as records
from moorage.operations.volumes import attach_volume
from moorage.placement import claims
from moorage.placement.engine import Engine
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.region import conductors
from moorage.store.region import servers as region_servers
from moorage_testing.simulation.bus import Hub
from moorage_testing.simulation.loop import PROCESS

REGRESSIONS: dict[str, Callable[[], Any]] = {}
SCENE_OF: dict[str, str] = {}
"""The scene of `moorage_testing.simulation.scenes` that brings out each; half of all seeds have some scene."""


def regression(scene: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Any]]:
    """Register it, with the scene that its plans have."""

    def registered(function: Callable[[], Iterator[None]]) -> Callable[[], Any]:
        made = contextmanager(function)
        REGRESSIONS[function.__name__] = made
        SCENE_OF[function.__name__] = scene
        return made

    return registered


NOT_FOUND_YET: dict[str, Callable[[], Any]] = {}
"""Faults that can be reintroduced, and for which no seed is known that finds them; `broken.py` looks for one when it is given their names."""


def not_found_yet(scene: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Any]]:
    """Keep it apart, with the scene in which it is looked for."""

    def kept(function: Callable[[], Iterator[None]]) -> Callable[[], Any]:
        NOT_FOUND_YET[function.__name__] = contextmanager(function)
        SCENE_OF[function.__name__] = scene
        return NOT_FOUND_YET[function.__name__]

    return kept


@regression("a_far_database_is_out")
def a_lost_lease_stays_lost() -> Iterator[None]:
    """A renewal has what is left of the lease, and a tenth of a second when nothing is: with a far database that is never enough."""

    async def beat(self: Conductor) -> None:
        lease = self.lease
        left_s = lease._ends - LEASE_MARGIN_S - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(left_s, 0.1)):
                began = self._clock.monotonic()

                def renewed(tx: Tx) -> None:
                    now = conductors.clock(tx)
                    table = conductors.conductors
                    tx.run(sa.update(table).where(table.c.id == lease.id).values(alive_until=now + lease.lease_s))

                await lease._region.write(renewed)
                lease._lost = False
                lease._granted(began)
        finally:
            if not lease.alive:
                await self._drop_all()

    with patch.object(Conductor, "beat", beat):
        yield


@regression("a_host_falls_silent_in_a_boot")
def a_host_that_was_silent_keeps_what_it_has() -> Iterator[None]:
    """It never asks again, and what it has is compared with nothing."""

    with (
        patch.object(Authority, "held", property(lambda _: True)),
        patch.object(Authority, "covers", lambda *_: True),
        patch.object(Agent, "_leave_home", lambda *_: None),
    ):
        yield


@regression("a_host_falls_silent_in_a_boot")
def every_start_counts_at_once() -> Iterator[None]:
    """A host that is cut off leaves on what it has just started, though nobody knows of it."""
    with patch.object(Hold, "begin", lambda _: None):
        yield


@regression("a_boot_finds_the_region_full")
def what_is_torn_is_taken_up_again_at_once() -> Iterator[None]:
    """After a write of unknown outcome an operation is taken up again without a pause."""
    with (
        patch.object(operation_runner, "AGAIN_FIRST_S", 0.0),
        patch.object(operation_runner, "AGAIN_MOST_S", 0.0),
        patch.object(worker, "AGAIN_MOST_S", 0.0),
    ):
        yield


@regression("the_bus_is_out_for_a_boot")
def every_host_is_silent_while_the_bus_is_out() -> Iterator[None]:
    """Silence is counted whether or not anybody could have been heard."""

    def unheard_for_s(self: Listening, heard: float) -> float:
        return self._clock.monotonic() - max(heard, self._first)  # type: ignore[attr-defined]

    begin = Listening.__init__

    def begun(self: Listening, *said: Any) -> None:
        begin(self, *said)
        self._first = self._since  # type: ignore[attr-defined]

    with (
        patch.object(Listening, "__init__", begun),
        patch.object(Listening, "unheard_for_s", unheard_for_s),
        patch.object(Listening, "out_for_s", lambda _: 0.0),
    ):
        yield


@regression("the_bus_is_out_for_a_boot")
def an_outage_closes_the_carrier_for_good() -> Iterator[None]:
    """Whoever lost the bus once never has it again, while its process lives."""

    def stays(self: Hub, down: bool) -> None:
        if down:
            self.down_since = self.down_since or self._loop.now
        elif self._noticed(self.down_since):
            self.cut |= dict.fromkeys(("conductor1", "conductor2"), self.down_since)  # type: ignore[misc]
            self.down_since = None
        else:
            self.down_since = None

    def healed(self: Hub) -> None:
        self.set_down(False)

    with patch.object(Hub, "set_down", stays), patch.object(Hub, "heal", healed):
        yield


@regression("conductors_return_to_boots_that_wait")
def adopted_boots_know_no_zones() -> Iterator[None]:
    """Aggregates come into the picture by a round that begins after operations do."""
    begin = Engine.__init__

    def begun(self: Engine, *said: Any, aggregates: Any = None, **named: Any) -> None:
        late = str(PROCESS.get()).startswith("conductor")  # an API had them from its own requests
        begin(self, *said, aggregates=None if late else aggregates, **named)
        self._later = aggregates  # type: ignore[attr-defined]

    async def read(self: Engine) -> int:
        await asyncio.sleep(0.5)
        found = await self._region.read(self._later)  # type: ignore[attr-defined]
        self.picture.set_host_aggregates(found)
        return len(found)

    with patch.object(Engine, "__init__", begun), patch.object(Engine, "read_aggregates", read):
        yield


@regression("a_cell_is_out_for_a_delete")
def a_delete_gives_up() -> Iterator[None]:
    """One whose cell is out for some time is taken back, though it was answered 204."""
    with (
        patch.object(find_server, "patience_s", 20.0),
        patch.object(DELETE, "forward_only", False),
        patch.object(DELETE_BEFORE_SHOWN, "forward_only", False),
    ):
        yield


@regression("a_role_is_lost")
def a_port_that_is_not_listed_is_unplugged() -> Iterator[None]:
    """Who lost a role is shown empty lists, and believes them."""

    async def lost(context: Any, server: Any, nics: Sequence[Any], deleted: Collection[str]) -> Any:
        return await port_sync._detach_lost(context, server, nics)

    with patch.object(port_sync, "_lost", lost):
        yield


@regression("an_administrator_and_a_user_at_once")
def overrides_are_read_later() -> Iterator[None]:
    """A claim is judged by capacity alone: an old picture decides."""
    take = claims.take_rows

    def taken(tx: Tx, asked: Any, at: Any, choice: Any) -> Any:
        return take(tx, asked, at, msgspec.structs.replace(choice, versions={}))

    with patch.object(claims, "take_rows", taken):
        yield


@regression("a_guest_crashes_while_its_cell_is_full")
def a_beat_that_was_not_stored_is_lost() -> Iterator[None]:
    """Its number is noted before it is written, and what it said is not asked for again."""

    async def take_beat(self: CellConductor, beat: Heartbeat) -> None:
        known = self._known[beat.host]
        self._note_alive(known)
        known.beat, known.guests, known.digest = beat.beat, beat.guests, beat.digest
        if beat.changed:
            states = {server: int(state) for server, state in beat.changed.items()}
            await self._database.write(lambda tx: cell_servers.observe(tx, beat.host, states))

    with patch.object(CellConductor, "take_beat", take_beat), patch.object(KnownHost, "want", lambda *_: None):
        yield


@regression("two_agents_of_one_name")
def two_agents_of_one_name_are_both_obeyed() -> Iterator[None]:
    """Nobody notices the second one."""

    async def admits(*_: Any) -> bool:
        return True

    with patch.object(AgentAdmission, "admits", admits):
        yield


@regression("one_database_is_restored")
def what_a_cell_has_lost_is_destroyed() -> Iterator[None]:
    """The region knows the server, its restored cell does not: that it is absent is taken for a word."""
    say = Belonging._turn_for

    def said(self: Belonging, server: Any, host: str, row: Any, where: Any, *, turns_only: bool) -> Any:
        if row is None and where is not None and where.operation is None and not where.deleted:
            return ServerTurn(server, FencingToken(where.op_seq, LAST_ATTEMPT, UNDO), here=False)
        return say(self, server, host, row, where, turns_only=turns_only)

    with patch.object(Belonging, "_turn_for", said):
        yield


@regression("one_database_is_restored")
def databases_know_nothing_of_one_another() -> Iterator[None]:
    """Whatever is at a database's place is used."""

    async def check(*_: Any) -> None:
        pass

    with patch.object(store_consistency, "check", check):
        yield


@regression("a_round_looks_during_an_attach")
def stray_ports_go_whatever_was_done_meanwhile() -> Iterator[None]:
    """All ports that the record, read a moment ago, does not list are taken away, as they are now."""

    async def mend(self: OrphanPorts, server: Any, ports: Any) -> Any:
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None:
            return orphan_ports.ReleasedPorts()
        found = await records.find(self._context, server)
        if found.missing_in is not None:
            return orphan_ports.ReleasedPorts()
        listed = set() if found.server is None else {str(nic.port) for nic in found.server.nics}
        if set(ports) <= listed:
            return orphan_ports.ReleasedPorts()
        network: Any = self._context.network
        rows = await NetworkApi(network.service).ports_of(server)
        mine = minted_macs(server)
        for row in rows:
            if row["id"] not in listed and row["mac_address"] in mine:
                await NetworkApi(network.service).delete_port(row["id"])
        return orphan_ports.ReleasedPorts(1)

    with patch.object(OrphanPorts, "repair", mend):
        yield


def _answered_as_if_never_sent(verb: Verb) -> Iterator[None]:
    """An order of this kind that was sent and not answered ends with the code of one that was never sent."""
    silent = CommandSender._silent

    def ended(self: CommandSender, host: str, command: Command, *, sent: bool) -> Problem:
        return silent(self, host, command, sent=sent and command.verb != verb)

    with patch.object(CommandSender, "_silent", ended):
        yield


async def _owes_nothing(*_: Any, **__: Any) -> bool:
    return False


@not_found_yet("an_answer_of_a_host_is_lost")
def a_released_volume_stays_in_a_guest() -> Iterator[None]:
    """An attach whose answer was lost lets the volume go without an order to the host that is owed to it."""
    with patch.object(attach_volume, "owe", _owes_nothing):
        yield


@regression("an_answer_of_a_host_is_lost")
def a_detach_that_was_done_is_taken_back() -> Iterator[None]:
    """Also at a point of no return."""
    yield from _answered_as_if_never_sent(Verb.DETACH_VOLUME)


@regression("an_answer_of_a_host_is_lost")
def a_swap_that_was_done_is_taken_back() -> Iterator[None]:
    """The same, of a swap."""
    yield from _answered_as_if_never_sent(Verb.SWAP_VOLUME)


@not_found_yet("an_answer_of_a_host_is_lost")
def a_shelve_that_failed_leaves_its_server_off() -> Iterator[None]:
    """A host that is forced down does not owe to switch on again what the undone operation had switched off."""
    with patch.object(moving, "owe", _owes_nothing):
        yield


@regression("a_conductor_loses_the_bus")
def a_conductor_without_the_bus_keeps_its_lease() -> Iterator[None]:
    """Its beat renews the lease whether or not it reaches the bus."""
    with patch.object(BusReach, "_better_placed", lambda _: []):
        yield
