"""The reconciler that stops servers whose guests ended by themselves, or run although their server is stopped.

It changes nothing in a correct region, and stops none that may run.
"""

import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import msgspec
import pytest
import sqlalchemy as sa
from typing_extensions import override

from moorage.bus.agent_calls import HostAddress
from moorage.conductor.reconcilers import power_states
from moorage.conductor.reconcilers.power_states import SURE_AFTER_S, PowerStates, PowerStatesDone
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable
from moorage.model.guest import PowerState
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.model.operation import Accepted
from moorage.model.server import Server, VmState
from moorage.operations.guest.power import Power
from moorage.operations.steps import servers as records
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.region import servers as region_servers
from moorage.store.servers import server_values
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_states import booted


class Watch(SystemClock):
    """Shows the time that it is told."""

    at = 1_000.0

    @override
    def monotonic(self) -> float:
        return self.at


class Book:
    """Notes what was begun. `before`: what happens first."""

    def __init__(self) -> None:
        self.begun_: list[Accepted] = []
        self.before: Callable[[], Any] | None = None

    async def choose(self, saga: str) -> ConductorId:
        if self.before is not None:
            await self.before()
        return ConductorId("conductor1")

    async def begun(self, accepted: Accepted) -> None:
        self.begun_.append(accepted)


class Ground:
    """A region with one server, which no operation holds."""

    def __init__(self, small: SmallRegion) -> None:
        self.small, self.watch, self.book = small, Watch(), Book()
        self.context = dataclasses.replace(small.context, dispatcher=cast("Any", self.book))
        self.rounds = PowerStates(self.context, self.watch)

    async def observed(self, state: PowerState, *, really: PowerState | None = None) -> None:
        """The host reported it; `really`: as it is by now."""
        self.small.hosts.guests["host1", SERVER] = state if really is None else really
        found = await records.find(self.context, SERVER)
        assert found.cell is not None
        await self.context.cells[found.cell].write(lambda tx: cell_servers.observe(tx, "host1", {SERVER: int(state)}))

    async def became(self, state: VmState) -> None:
        found = await records.find(self.context, SERVER)
        assert found.cell is not None
        fence = Fence(operation=OperationId("proved"), seq=1, epoch=9, line=1)
        await records.change(
            self.context, found.cell, SERVER, fence, lambda server: msgspec.structs.replace(server, vm_state=state)
        )

    async def later(self) -> PowerStatesDone:
        """Two rounds, with enough time between."""
        await self.rounds.run()
        self.watch.at += SURE_AFTER_S
        return await self.rounds.run()

    async def held_by_another(self) -> None:
        await self.small.region.write(lambda tx: region_servers.take(tx, SERVER, OperationId("another"), None))

    async def free(self) -> None:
        def work(tx: Any) -> None:
            where = region_servers.find(tx, SERVER)
            assert where is not None
            assert where.operation is not None
            region_servers.release(tx, SERVER, where.operation, drop_order=True)

        await self.small.region.write(work)

    def stopped(self) -> list[ServerId]:
        asked = [(each.server, msgspec.json.decode(each.asked, type=Power).verb) for each in self.book.begun_]
        assert all(verb == "stop" for _, verb in asked)
        return [server for server, _ in asked if server is not None]


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    small = await SmallRegion.open()
    made = Ground(await booted(small))
    await made.free()
    yield made
    await small.close()


async def test_power_states_already_fine(ground: Ground) -> None:
    before = await ground.small.held()
    for state in (PowerState.RUNNING, PowerState.PAUSED, PowerState.SUSPENDED, PowerState.NOSTATE):
        await ground.observed(state)
        assert await ground.later() == PowerStatesDone()
    await ground.observed(PowerState.RUNNING)
    assert await ground.small.held() == before
    await ground.became(VmState.STOPPED)
    await ground.observed(PowerState.SHUTDOWN)
    assert await ground.later() == PowerStatesDone()
    assert ground.stopped() == []


@pytest.mark.parametrize("state", [PowerState.SHUTDOWN, PowerState.CRASHED])
@pytest.mark.parametrize("shown", [VmState.ACTIVE, VmState.PAUSED])
async def test_a_server_whose_guest_has_ended_is_stopped(ground: Ground, state: PowerState, shown: VmState) -> None:
    await ground.became(shown)
    await ground.observed(state)
    assert await ground.rounds.run() == PowerStatesDone(waiting=(SERVER,)), "it may be about to start"
    assert await ground.later() == PowerStatesDone(begun=(SERVER,))
    assert ground.stopped() == [SERVER]
    assert await ground.rounds.run() == PowerStatesDone(waiting=(SERVER,)), "the stop holds it"


@pytest.mark.parametrize("state", [PowerState.RUNNING, PowerState.PAUSED])
async def test_a_guest_that_runs_although_its_server_is_stopped(ground: Ground, state: PowerState) -> None:
    """Somebody started it past Moorage."""
    await ground.became(VmState.STOPPED)
    await ground.observed(state)
    assert await ground.rounds.run() == PowerStatesDone(waiting=(SERVER,)), "the stop may have been observed late"
    assert await ground.later() == PowerStatesDone(begun=(SERVER,))
    assert ground.stopped() == [SERVER]


async def test_a_guest_that_was_stopped_since_it_was_observed(ground: Ground) -> None:
    await ground.became(VmState.STOPPED)
    await ground.observed(PowerState.RUNNING, really=PowerState.SHUTDOWN)
    assert await ground.later() == PowerStatesDone(waiting=(SERVER,))
    assert ground.stopped() == []


async def test_a_server_that_was_on_again_between_is_not_stopped(ground: Ground) -> None:
    await ground.observed(PowerState.SHUTDOWN)
    await ground.rounds.run()
    await ground.observed(PowerState.RUNNING)
    await ground.rounds.run()
    ground.watch.at += SURE_AFTER_S
    await ground.observed(PowerState.SHUTDOWN)
    assert await ground.rounds.run() == PowerStatesDone(waiting=(SERVER,))


async def test_what_was_reported_is_not_enough(ground: Ground) -> None:
    """Its host starts it again, or cannot be asked."""
    await ground.observed(PowerState.SHUTDOWN, really=PowerState.RUNNING)
    assert await ground.later() == PowerStatesDone(waiting=(SERVER,))
    await ground.observed(PowerState.SHUTDOWN)
    ground.small.hosts.silent.add("host1")
    assert await ground.later() == PowerStatesDone(waiting=(SERVER,))
    ground.small.hosts.silent.clear()
    del ground.small.hosts.guests["host1", SERVER]
    assert await ground.later() == PowerStatesDone(waiting=(SERVER,))
    assert ground.stopped() == []


async def test_another_operation_comes_first(ground: Ground) -> None:
    """Whether it is still under way, or came and went since the host was asked: perhaps it switched the guest on."""
    await ground.observed(PowerState.SHUTDOWN)
    await ground.held_by_another()
    assert await ground.later() == PowerStatesDone(waiting=(SERVER,))
    await ground.free()

    async def came_and_went() -> None:
        await ground.held_by_another()
        await ground.free()

    for before in (ground.held_by_another, came_and_went):
        ground.book.before = before
        assert await ground.later() == PowerStatesDone(waiting=(SERVER,))
        assert ground.stopped() == []
    ground.book.before = None
    assert await ground.later() == PowerStatesDone(waiting=(SERVER,), begun=()), "one that stays holds it"


async def test_the_record_of_a_server_that_is_stopped(ground: Ground) -> None:
    found: Server | None = (await records.find(ground.context, SERVER)).server
    assert found is not None
    await ground.observed(PowerState.CRASHED)
    await ground.later()
    (begun,) = ground.book.begun_
    asked = msgspec.json.decode(begun.asked, type=Power)
    assert (asked.user, asked.by_project) == (found.user, found.project), "as if its owner had asked"


OTHERS = tuple(ServerId(f"00000000-0000-4000-8000-00000000000{n}") for n in range(3))
"""All before the one, by id."""


async def copied(ground: Ground, host: str = "host2") -> None:
    """More servers like the one, on `host`."""
    found = await records.find(ground.context, SERVER)
    assert found.cell is not None
    assert found.server is not None
    rows = [server_values(msgspec.structs.replace(found.server, id=each, host=host)) for each in OTHERS]
    await ground.context.cells[found.cell].write(
        lambda tx: tx.run(cell_servers.servers.insert().values(hidden=False), rows)
    )

    def known(tx: Tx) -> None:
        (row,) = tx.rows(sa.select(region_servers.servers).where(region_servers.servers.c.id == SERVER))
        tx.run(region_servers.servers.insert(), [row._asdict() | {"id": each} for each in OTHERS])

    await ground.small.region.write(known)


async def test_servers_that_cannot_be_stopped_do_not_keep_others_from_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round looks at so many; the next goes on behind them, and what was noticed of the others is kept."""
    monkeypatch.setattr(power_states, "LOOKED_AT_MAX", 1)
    await ground.observed(PowerState.SHUTDOWN)
    await copied(ground)
    ground.small.hosts.silent.add("host2")
    begun = list[ServerId]()
    for _ in range(2 * (len(OTHERS) + 2)):
        begun += (await ground.rounds.run()).begun
        ground.watch.at += SURE_AFTER_S / len(OTHERS)
    assert begun == [SERVER]


async def test_a_host_that_does_not_answer_is_asked_once_in_a_round(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ground.observed(PowerState.SHUTDOWN)
    await copied(ground, "host1")
    asked = list[ServerId]()

    async def ask(at: HostAddress, server: ServerId, *_: object) -> None:
        asked.append(server)
        raise Unavailable("host host1 does not answer")

    monkeypatch.setattr(ground.small.hosts, "ask", ask)
    done = await ground.later()
    assert len(done.waiting) > 1
    assert len(asked) == 1


async def test_a_guest_that_is_gone_does_not_keep_others_of_its_host_from_it(ground: Ground) -> None:
    await ground.observed(PowerState.SHUTDOWN)
    await copied(ground, "host1")  # of these servers the host has no guests
    assert await ground.later() == PowerStatesDone(begun=(SERVER,), waiting=OTHERS)
