"""A server is deleted while its host is silent: it is gone at once, and nothing that its guest may use is released."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from moorage.bus.agent_calls import HostAddress
from moorage.conductor.reconcilers.host_debts import HostDebts, HostDebtsDone
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.model.clock import SystemClock
from moorage.model.debt import DebtKind
from moorage.model.guest import PowerState
from moorage.model.host import Host
from moorage.model.ids import HostId
from moorage.operations.delete.delete import Delete
from moorage.operations.registry import SAGAS
from moorage.operations.steps import moving
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage.sql import Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.region import debts
from moorage.store.region import servers as region_servers
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_debts import come_home
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion, a_server
from moorage_testing.region_moved import resizing
from moorage_testing.region_states import MADE, booting_from_volume, with_volume, with_volumes_ready
from moorage_testing.region_volumes import VOLUME
from moorage_testing.saga_proof import PROVED_OPERATION

HOST = "host1"
DELETES = ("delete/2", "delete/3", "delete/4", "delete/5")
USED = ("claims", "used", "ports", "volumes", "guests", "vifs", "disks")
"""What a guest has and uses."""


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def delete(small: SmallRegion, name: str, *, seq: int = 3) -> None:
    saga, asked = SAGAS[name], Delete(a_server(operation=PROVED_OPERATION), seq=seq, request_id="req-delete")
    await execute(saga, PROVED_OPERATION, asked, small.context, MemoryJournal(first_lines(saga), small.transact))


async def unwinds(small: SmallRegion, name: str, asked: Any) -> None:
    saga = SAGAS[name]
    journal = MemoryJournal(first_lines(saga), small.transact)
    with pytest.raises(Unwound):
        await execute(saga, PROVED_OPERATION, asked, small.context, journal, clock=ManualClock())


async def pay(small: SmallRegion) -> HostDebtsDone:
    done = await HostDebts(small.context, SystemClock()).run()
    await small.region.write(
        lambda tx: tx.run(debts.debts.update().values(next_at=0))
    )  # no pause before the next round
    return done


async def kinds_owed(small: SmallRegion) -> list[tuple[DebtKind, str]]:
    return [(each.kind, each.host) for each in await small.region.read(debts.page)]


async def held(small: SmallRegion) -> dict[str, object]:
    now = await small.held()
    return {each: now[each] for each in USED}


async def is_free(small: SmallRegion) -> bool:
    """Whether nothing of the server is left anywhere."""
    now = await small.held()
    free = now["claims"] == now["used"] == now["guests"] == 0 and now["vifs"] == now["disks"] == []
    return free and not any(port.device_id or port.host for port in small.network.ports.values())


@pytest.mark.parametrize("name", DELETES)
async def test_a_silent_host_keeps_what_its_guest_uses_until_it_is_home(small: SmallRegion, name: str) -> None:
    await with_volume(small, goes=True)
    before = await held(small)
    small.hosts.silent.add(HOST)
    await delete(small, name)
    record, quota = (await records.find(small.context, SERVER)).server, (await small.held())["quota"]
    assert record is not None
    assert record.deleted
    assert not any(quota.values())
    assert await held(small) == before
    assert await kinds_owed(small) == [(DebtKind.DESTROY, HOST)]

    assert await pay(small) == HostDebtsDone(waiting=1)
    await OrphanPorts(small.context).run()
    await OrphanAttachments(small.context).run()
    await OrphanAllocations(small.context).run()
    assert await held(small) == before, "the rounds that look for strays leave it, too"

    small.hosts.silent.clear()
    assert await pay(small) == HostDebtsDone(ended=1)
    assert await is_free(small)
    assert VOLUME not in small.volumes.volumes, "it was to go with its server"
    assert await kinds_owed(small) == []


async def said_down(small: SmallRegion, *, heard_after_s: float = 0.0) -> None:
    """An administrator says that the host is off; its cell heard it so long after that."""
    host = Host(1, HostId(HOST), "service", HOST, HOST, CELLS[0])
    now = 1_000_000_000

    def work(tx: Tx) -> None:
        cell_hosts.report(tx, host, now + int(heard_after_s * 1e6))
        cell_hosts.set_forced_down(tx, HOST, True, now, "admin")

    await small.cells[CELLS[0]].write(work)


async def test_an_administrator_says_that_the_guest_does_not_run(small: SmallRegion) -> None:
    await with_volume(small)
    small.hosts.silent.add(HOST)
    await delete(small, "delete/4")
    await said_down(small)
    assert await pay(small) == HostDebtsDone(ended=1)
    small.hosts.guests.clear()
    small.hosts.vifs.clear()
    small.hosts.disks.clear()
    assert await is_free(small)
    assert small.volumes.attachments == {}


async def test_nothing_is_owed_by_a_host_that_is_forced_down(small: SmallRegion) -> None:
    await with_volume(small)
    small.hosts.silent.add(HOST)
    await said_down(small)
    await delete(small, "delete/4")
    assert await kinds_owed(small) == []
    assert small.volumes.attachments == {}


async def test_a_word_about_an_earlier_outage_proves_nothing(small: SmallRegion) -> None:
    await with_volume(small)
    small.hosts.silent.add(HOST)
    await said_down(small, heard_after_s=60.0)
    await delete(small, "delete/4")
    assert await kinds_owed(small) == [(DebtKind.DESTROY, HOST)]
    assert await pay(small) == HostDebtsDone(waiting=1)
    assert small.volumes.attachments != {}


class Off:
    """A fence plug-in that sees whether a machine is off."""

    name, off_within_s = "power", 1.0

    async def is_off(self, host: str) -> bool:
        return host == HOST

    def can_switch_off(self, host: str) -> bool:
        return False


async def test_a_fence_plugin_sees_that_the_machine_is_off(small: SmallRegion) -> None:
    await with_volume(small)
    small.hosts.silent.add(HOST)
    await delete(small, "delete/4")
    small.context = dataclasses.replace(small.context, fence=cast("Any", Off()))
    assert await pay(small) == HostDebtsDone(ended=1)
    assert small.volumes.attachments == {}


async def test_a_host_that_cannot_is_asked_again(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    await with_volume(small)
    small.hosts.silent.add(HOST)
    await delete(small, "delete/4")
    small.hosts.silent.clear()
    before = await held(small)
    turn = small.hosts.turns[HOST, SERVER]
    small.hosts.turns[HOST, SERVER] = type(turn)(99)
    assert await pay(small) == HostDebtsDone(waiting=1)
    (debt,) = await small.region.read(debts.page)
    assert (debt.tries, debt.problem) == (1, "too late")
    assert await held(small) == before
    small.hosts.turns[HOST, SERVER] = turn
    assert await pay(small) == HostDebtsDone(ended=1)
    assert await is_free(small)


async def test_the_row_of_a_server_that_may_run_stays(small: SmallRegion) -> None:
    await with_volume(small)
    small.hosts.silent.add(HOST)
    await delete(small, "delete/4")
    later = 1 << 62
    assert await small.region.read(lambda tx: region_servers.long_deleted(tx, later)) == []
    small.hosts.silent.clear()
    await pay(small)
    assert await small.region.read(lambda tx: region_servers.long_deleted(tx, later)) == [SERVER]


@pytest.mark.parametrize("by_user", [False, True])
async def test_a_boot_that_failed_at_a_silent_host_keeps_what_its_guest_uses(small: SmallRegion, by_user: bool) -> None:
    """Its server is in ERROR meanwhile, and may be deleted."""
    await with_volumes_ready(small)
    asked = msgspec.structs.replace(booting_from_volume(), forced_host=HOST)
    small.hosts.loses = 1
    await unwinds(small, "boot/2", asked)
    assert await kinds_owed(small) == [(DebtKind.DESTROY, HOST)]
    ports, disks = [each.device_id for each in small.network.ports.values()], small.hosts.disks
    assert ports.count(SERVER) == len(asked.nics)
    assert {each.volume for each in small.volumes.attachments.values()} == {VOLUME, MADE}
    assert {each[2] for each in disks} == {VOLUME, MADE}
    if by_user:
        await small.hand_to(PROVED_OPERATION)
        await delete(small, "delete/2", seq=2)
        assert (await records.find(small.context, SERVER)).server is not None
    await OrphanPorts(small.context).run()
    await OrphanAttachments(small.context).run()
    assert {each.volume for each in small.volumes.attachments.values()} == {VOLUME, MADE}
    assert [each.device_id for each in small.network.ports.values()] == ports
    await come_home(small)
    assert await kinds_owed(small) == []
    assert await is_free(small)
    assert small.volumes.attachments == {}
    assert MADE not in small.volumes.volumes, "it was made for this server"


async def test_a_move_that_a_delete_ends_leaves_a_guest_on_its_silent_new_host(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old host is heard, and destroys its guest; the volumes wait for the new one."""
    asked, start = await resizing(small, volumes=True), small.hosts.start_guest

    async def unanswered(to: HostAddress, *order: Any) -> PowerState:
        small.hosts.loses = small.hosts.commands + 1
        return await start(to, *order)

    async def is_to_be_deleted(run: object) -> bool:
        return True

    monkeypatch.setattr(small.hosts, "start_guest", unanswered)
    monkeypatch.setattr(moving, "for_delete", is_to_be_deleted)
    await unwinds(small, "resize/1", asked)
    (new,) = small.hosts.fell_silent
    assert await kinds_owed(small) == [(DebtKind.DESTROY, new)]
    await small.hand_to(PROVED_OPERATION)
    await delete(small, "delete/4")
    assert list(small.hosts.guests) == [(new, SERVER)]
    assert {each.volume for each in small.volumes.attachments.values()} == {VOLUME, MADE}
    await come_home(small)
    assert await is_free(small)
    assert small.volumes.attachments == {}


async def test_two_hosts_may_have_a_guest(small: SmallRegion) -> None:
    """What they use is released when both have destroyed theirs."""
    await with_volume(small)
    small.hosts.silent |= {HOST, "host3"}
    await delete(small, "delete/4")
    (one,) = await small.region.read(debts.page)
    other = msgspec.structs.replace(one, host="host3", thing="host3")
    await small.region.write(lambda tx: debts.owe(tx, other))
    small.hosts.silent -= {HOST}
    assert await pay(small) == HostDebtsDone(ended=1, waiting=1)
    assert {each.volume for each in small.volumes.attachments.values()} == {VOLUME}
    small.hosts.silent.clear()
    assert await pay(small) == HostDebtsDone(ended=1)
    assert await is_free(small)
    assert small.volumes.attachments == {}
