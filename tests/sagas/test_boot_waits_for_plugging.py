"""ACTIVE waits for the network if an operator configured it: inbox and port are both read (RULES §20)."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import msgspec
import pytest

from moorage.bus.memory import MemoryBus
from moorage.bus.messages import EventHint, encode
from moorage.clients.http import CALL_DEADLINE_S
from moorage.conductor.external_events import Events
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed, Unavailable
from moorage.model.ids import OperationId
from moorage.operations.boot.boot import BOOT, VIF_PLUGGING_MAX_S, await_vifs
from moorage.operations.context import SagaSettings
from moorage.operations.steps import vif_plugging
from moorage.operations.steps.ports import VIF_PLUGGED
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage.saga.journal import Failed
from moorage.store.cell import servers
from moorage.store.region import inbox
from moorage.store.region.inbox import ExternalEvent
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server
from moorage_testing.waiting import until

OPERATION = OperationId("waiting")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    await region.fresh(a_server(), OPERATION)
    yield region
    await region.close()


async def boot(small: SmallRegion, **settings: object) -> MemoryJournal:
    paper = MemoryJournal(first_lines(BOOT), small.transact)
    context = dataclasses.replace(small.context, settings=SagaSettings(vif_plugging_timeout_s=0.6, **settings))  # type: ignore[arg-type]
    await execute(BOOT, OPERATION, a_boot(OPERATION), context, paper, max_attempts=2)
    return paper


async def is_active(small: SmallRegion) -> bool:
    rows = [await database.read(lambda tx: servers.get(tx, SERVER)) for database in small.cells.values()]
    return any(row is not None and row.vm_state == "active" for row in rows)


def events(small: SmallRegion, status: str) -> list[ExternalEvent]:
    nics = a_boot(OPERATION).nics
    return [ExternalEvent(SERVER, "network-vif-plugged", nic.port or nic.mac, status, 1) for nic in nics]


async def keep(small: SmallRegion, told: list[ExternalEvent]) -> None:
    """As an earlier attempt's events are kept: the server has no place any more."""
    rows = [msgspec.structs.asdict(each) for each in told]
    await small.region.write(lambda tx: tx.run(inbox.inbox.insert(), rows))


async def test_an_event_that_arrived_before_the_wait_counts(small: SmallRegion) -> None:
    await keep(small, events(small, "completed"))
    await boot(small)
    assert await is_active(small)


async def test_a_missing_event_fails_each_host_and_finally_the_boot(small: SmallRegion) -> None:
    with pytest.raises(Unwound) as unwound:
        await boot(small)
    assert isinstance(unwound.value.cause, HostFailed)
    assert unwound.value.at == "await_vifs"
    assert not small.hosts.guests


async def test_a_missing_event_is_no_failure_when_so_configured(small: SmallRegion) -> None:
    await boot(small, vif_plugging_is_fatal=False)
    assert await is_active(small)


async def test_a_failed_plug_fails_at_once(small: SmallRegion) -> None:
    await keep(small, events(small, "failed"))
    with pytest.raises(Unwound):
        await boot(small)
    assert not small.hosts.guests


async def test_a_failed_plug_at_one_host_does_not_fail_the_next(small: SmallRegion) -> None:
    await keep(small, events(small, "failed"))
    await boot(small, vif_plugging_is_fatal=False)
    assert await is_active(small)


async def test_an_event_counts_only_for_the_host_that_the_port_is_bound_to_now(small: SmallRegion) -> None:
    """What came of another host is neither a plug nor a failure here (RULES §20)."""
    await keep(small, events(small, "completed"))
    await boot(small)
    (host,) = {host for host, _ in small.hosts.guests}
    ports = {each.tag for each in events(small, "completed")}
    for status in ("completed", "failed"):
        await small.region.write(lambda tx: inbox.drop(tx, SERVER, VIF_PLUGGED))
        await keep(small, events(small, status))
        assert await vif_plugging.plugged_ports(small.context, SERVER, ports, "elsewhere") == set()
        if status == "completed":
            assert await vif_plugging.plugged_ports(small.context, SERVER, ports, host) == ports
        else:
            with pytest.raises(HostFailed):
                await vif_plugging.plugged_ports(small.context, SERVER, ports, host)


async def test_an_outage_of_the_network_service_does_not_end_the_wait(small: SmallRegion) -> None:
    await keep(small, events(small, "completed"))
    asked, ports_of = 0, small.network.ports_of

    async def out_at_first(*args: object, **named: object) -> object:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise Unavailable("out")
        return await ports_of(*args, **named)  # type: ignore[arg-type]

    small.network.ports_of = out_at_first  # type: ignore[method-assign,assignment]
    paper = await boot(small)
    assert await is_active(small)
    assert asked == 2
    assert not [line for line in paper.written() if isinstance(line, Failed)]


def test_the_longest_wait_is_within_the_patience_of_its_step() -> None:
    assert await_vifs.patience_s > VIF_PLUGGING_MAX_S + CALL_DEADLINE_S


async def test_a_port_that_is_active_already_is_not_waited_for(small: SmallRegion) -> None:
    ensured = small.network.ensure_ports

    async def up(*args: object, **named: object) -> object:
        made = await ensured(*args, **named)  # type: ignore[arg-type]
        for port in made:
            small.network.ports[port.id] = msgspec.structs.replace(small.network.ports[port.id], status="ACTIVE")
        return made

    small.network.ensure_ports = up  # type: ignore[method-assign,assignment]
    await boot(small)
    assert await is_active(small)


async def test_an_event_wakes_the_waiter_without_polling(small: SmallRegion) -> None:
    """One look at the beginning, one for the event; the pauses between looks are far longer than the test."""
    looks, ports_of = 0, small.network.ports_of

    async def counted(*args: object, **named: object) -> object:
        nonlocal looks
        looks += 1
        return await ports_of(*args, **named)  # type: ignore[arg-type]

    small.network.ports_of = counted  # type: ignore[assignment,method-assign]
    context = dataclasses.replace(small.context, settings=SagaSettings(vif_plugging_timeout_s=300.0))
    events_of = Events(context, MemoryBus(), SystemClock())
    paper = MemoryJournal(first_lines(BOOT), small.transact)
    booting = asyncio.create_task(execute(BOOT, OPERATION, a_boot(OPERATION), context, paper, max_attempts=1))
    await until(lambda: looks == 1)
    await keep(small, events(small, "completed"))
    hint = EventHint(SERVER, "network-vif-plugged", None)
    await events_of._on_hint("", encode(hint))  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(vif_plugging.LOOK_FIRST_S / 2):
        await booting
    assert looks == 2
    assert await is_active(small)


async def test_a_lost_hint_delays_the_boot_until_the_next_poll(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vif_plugging, "LOOK_FIRST_S", 0.05)
    context = dataclasses.replace(small.context, settings=SagaSettings(vif_plugging_timeout_s=300.0))
    paper = MemoryJournal(first_lines(BOOT), small.transact)
    booting = asyncio.create_task(execute(BOOT, OPERATION, a_boot(OPERATION), context, paper, max_attempts=1))
    await until(lambda: small.hosts.guests)
    await keep(small, events(small, "completed"))
    async with asyncio.timeout(120):
        await booting
    assert await is_active(small)
