"""A cell's conductor and hosts that are not approved, or that report more than they were approved for."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.bus import subjects
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport
from moorage.bus.memory import MemoryBus
from moorage.bus.messages import Message, encode
from moorage.conductor.cell_conductor import CellConductor, CellConductorOptions
from moorage.model.clock import SystemClock
from moorage.model.guest import ResourceInventory
from moorage.model.ids import CellId, OperationId
from moorage.store.cell import hosts as cell_hosts
from moorage.store.region import host_approvals
from moorage.store.region.host_approvals import HostApproval
from moorage_testing.region_fixture import SmallRegion, a_server
from moorage_testing.waiting import until

NEW, LIFE = "new1.example.org", "life-1"


class ApprovingConductor:
    """A conductor of the first cell that hears only who was approved, and what hosts are told."""

    def __init__(self, small: SmallRegion, cell: CellId) -> None:
        self.small, self.cell, self.bus = small, cell, MemoryBus()
        self.told: list[tuple[str, bytes]] = []
        self.conductor = self.another(approves_itself=False)

    def another(self, **said: Any) -> CellConductor:
        small = self.small
        return CellConductor(
            self.cell, small.cells[self.cell], small.region, small.engine, self.bus, SystemClock(),
            CellConductorOptions(**said),
        )  # fmt: skip

    async def on_message(self, subject: str, payload: bytes) -> None:
        self.told.append((subject, payload))

    async def say(self, message: Message, subject: str = "") -> None:
        await self.conductor._on_message(subject or "a subject", encode(message))
        await until(lambda: self.bus.quiet)

    async def speaks(self, host: str = NEW, cell: CellId | None = None, **more: Any) -> None:
        """All that a host says of itself."""
        where = self.cell if cell is None else cell
        await self.say(AgentReturned(host, where, "q", agent=LIFE))
        await self.say(HostReport(host, where, "x", LIFE, inventory={"VCPU": ResourceInventory(8)}, **more))
        await self.say(Heartbeat(host, where, LIFE, 1))

    async def look(self) -> None:
        self.conductor._forget_revoked(await self.conductor._approvals.refresh())

    async def approve(self, host: str, cell: CellId, now: int = 1) -> None:
        await self.small.region.write(lambda tx: host_approvals.approve(tx, host, cell, None, now, "operator"))

    async def row(self, host: str = NEW) -> HostApproval | None:
        return await self.small.region.read(lambda tx: host_approvals.get(tx, host))

    async def listed(self) -> set[str]:
        return {each.host for each in await self.small.cells[self.cell].read(cell_hosts.listed)}

    def placed(self, host: str = NEW) -> bool:
        return self.small.engine.host_named(host) is not None


@pytest.fixture
async def approving(tmp_path: Path) -> AsyncIterator[ApprovingConductor]:
    small = await SmallRegion.open(tmp_path)
    await small.fresh(a_server(), OperationId("boot"))
    found = ApprovingConductor(small, next(iter(small.cells)))
    await found.bus.subscribe("moorage.cell.*.host.*", found.on_message)
    yield found
    await small.close()


async def test_a_host_without_approval_is_unusable_and_gets_no_data(approving: ApprovingConductor) -> None:
    await approving.speaks()
    assert (approving.told, approving.placed(), NEW in await approving.listed()) == ([], False, False)
    await approving.look()
    row = await approving.row()
    assert row is not None
    assert (row.cell, row.approved_at, row.key) == (approving.cell, None, None)
    await approving.approve(NEW, approving.cell)
    await approving.speaks()
    assert not approving.placed(), "what operators said is read with the next look"
    await approving.look()
    await approving.speaks()
    assert approving.placed()
    assert NEW in await approving.listed()
    assert {subject for subject, _ in approving.told} == {subjects.to_host(approving.cell, NEW)}


async def test_a_host_approved_for_another_cell_is_refused_and_shown(approving: ApprovingConductor) -> None:
    other = next(cell for cell in approving.small.cells if cell != approving.cell)
    await approving.approve(NEW, other)
    await approving.look()
    await approving.speaks()
    await approving.look()
    row = await approving.row()
    assert row is not None
    assert row.refused_why == f"it reports that it is in cell {approving.cell}, and is approved for {other}"
    assert row.refused_at is not None
    assert (approving.told, approving.placed(), row.cell) == ([], False, other)
    await approving.approve(NEW, approving.cell, now=2)
    row = await approving.row()
    assert row is not None
    assert row.refused_why == "", "an operator has decided"


async def test_a_message_in_another_hosts_name_is_refused_and_shown(approving: ApprovingConductor) -> None:
    """In another's name under its own subject, and of another's node."""
    for host in (NEW, "victim"):
        await approving.approve(host, approving.cell)
    await approving.look()
    await approving.speaks("victim")
    await approving.speaks()
    forged = HostReport("victim", approving.cell, "x", LIFE, inventory={"VCPU": ResourceInventory(100_000)})
    await approving.say(forged, subjects.from_host(approving.cell, NEW, subjects.REPORT))
    await approving.look()
    row = await approving.row()
    assert row is not None
    assert "it claims to come from host 'victim'" in row.refused_why
    await approving.say(HostReport(NEW, approving.cell, "x", LIFE, hypervisor_hostname="victim"))
    await approving.look()
    row, victim = await approving.row(), await approving.row("victim")
    assert row is not None
    assert victim is not None
    assert row.refused_why == f"host {NEW} reports node victim, which is host victim's"
    assert victim.refused_at is None
    found = approving.small.engine.host_named("victim")
    assert found is not None


async def test_a_revoked_approval_marks_the_host_as_down(approving: ApprovingConductor) -> None:
    await approving.approve(NEW, approving.cell)
    await approving.look()
    await approving.speaks()
    world = approving.small.engine.world()
    slot = world.slots_by_name[NEW]
    assert world.alive[slot]
    assert await approving.small.region.write(lambda tx: host_approvals.revoke(tx, NEW))
    await approving.look()
    assert not approving.small.engine.world().alive[slot]
    await approving.speaks()
    assert not approving.small.engine.world().alive[slot]
    # and a conductor that begins now does not take it for up because it was heard lately
    await approving.small.cells[approving.cell].write(lambda tx: cell_hosts.record_heartbeats(tx, [NEW], 2**52))
    approving.small.engine.set_alive(NEW, True)
    another = approving.another(approves_itself=False)
    await another.start()
    try:
        assert not approving.small.engine.world().alive[slot]
    finally:
        await another.stop()


async def test_automatically_approved_hosts_stay_approved(approving: ApprovingConductor) -> None:
    approving.conductor = approving.another(approves_itself=True)
    await approving.speaks()
    assert approving.placed()
    await approving.look()
    row = await approving.row()
    assert row is not None
    assert (row.approved_by, row.cell) == ("automatic", approving.cell)
    approving.conductor = approving.another(approves_itself=False)
    await approving.look()
    approving.told.clear()
    await approving.speaks()
    assert approving.told, "it is approved where operators have to"
