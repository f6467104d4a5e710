"""The region has a server that its cell does not have: nothing is destroyed, released or unplugged, and it is reported (RULES §22)."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.api.cross_cell import find_server
from moorage.bus import subjects
from moorage.bus.host_messages import HostReport, ServersOfHost
from moorage.bus.memory import MemoryBus
from moorage.bus.messages import encode, read
from moorage.cli.status import databases
from moorage.conductor.cell_conductor import CellConductor
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.model.clock import SystemClock
from moorage.model.errors import NotFound, Unavailable
from moorage.model.guest import PowerState, ResourceInventory
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.operations.missing_servers import missing_in
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell import servers as cell_servers
from moorage.store.region import quotas, user_quotas
from moorage.store.region import servers as region_servers
from moorage.store.servers import server_values
from moorage_testing.region_fixture import PROJECT, SERVER, SmallRegion, a_boot, a_server

BOOT = OperationId("boot")
UNKNOWN = ServerId("0d0c0b0a-0000-4000-8000-00000000dead")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    """One server, booted, that nobody holds."""
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    await execute(boot, BOOT, a_boot(BOOT), region.context, MemoryJournal(first_lines(boot), region.transact))
    await region.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT, drop_order=True))
    yield region
    await region.close()


async def lose_the_record(small: SmallRegion) -> CellId:
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.cell is not None
    await small.cells[where.cell].write(lambda tx: tx.run(sa.delete(cell_servers.servers)))
    return where.cell


async def told_wrong(small: SmallRegion, cell: CellId, *guests: ServerId) -> list[ServerId]:
    """Which of its guests a host is told to destroy when it reports them."""
    host = next(host for host, _ in small.hosts.guests)
    bus = MemoryBus()
    wrong: list[ServerId] = []
    last = asyncio.Event()

    async def on_message(_: str, payload: bytes) -> None:
        message = read(payload)
        assert isinstance(message, ServersOfHost)
        if message.boot == "the last":
            last.set()
        wrong.extend(each.server for each in message.servers if not each.here)

    await bus.subscribe(subjects.to_host(cell, host), on_message)
    conductor = CellConductor(cell, small.cells[cell], small.region, small.engine, bus, SystemClock())
    await conductor.take_report(
        HostReport(
            host=host,
            cell=cell,
            host_id="x",
            boot="b",
            inventory={"VCPU": ResourceInventory(8)},
            guests=dict.fromkeys(guests, PowerState.RUNNING),
        )
    )
    await bus.publish(subjects.to_host(cell, host), encode(ServersOfHost("the last", ())))
    async with asyncio.timeout(180):
        await last.wait()
    await bus.close()
    return wrong


async def test_a_lost_record_costs_no_guest_port_or_claim(small: SmallRegion) -> None:
    before = await small.held()
    cell = await lose_the_record(small)
    assert (await OrphanPorts(small.context).run()).mended == 0
    assert (await OrphanAllocations(small.context).run()).released == ()
    assert await told_wrong(small, cell, SERVER) == []
    after = await small.held()
    assert (after["ports"], after["claims"], after["guests"]) == (before["ports"], before["claims"], before["guests"])
    assert before["claims"]


async def test_a_lost_record_is_not_counted_out_of_the_quota(small: SmallRegion) -> None:
    """Neither of its project's counters nor of a user's; both are counted again when the record is back."""
    weight = {"instances": 1, "cores": 1, "ram": 64}
    for counters in (quotas, user_quotas):
        who = () if counters is quotas else ("user-1",)
        await small.region.write(lambda tx, c=counters, who=who: c.recount(tx, PROJECT, *who, weight))  # type: ignore[misc]
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.cell is not None
    record = await small.cells[where.cell].read(lambda tx: cell_servers.get(tx, SERVER))
    assert record is not None
    cell = await lose_the_record(small)
    done = await QuotaUsage(small.context).run()
    assert (done.mended, done.missing) == ((), (PROJECT,))
    assert (await small.region.read(quotas.every_usage))[PROJECT] == weight
    assert await small.region.read(lambda tx: user_quotas.usage(tx, PROJECT, "user-1")) == weight
    await small.region.write(lambda tx: quotas.recount(tx, PROJECT, dict.fromkeys(weight, 0)))  # as the cells say
    done = await QuotaUsage(small.context).run()
    assert (done.mended, done.missing) == ((), (PROJECT,))
    assert await small.region.read(lambda tx: user_quotas.usage(tx, PROJECT, "user-1")) == weight
    await small.cells[cell].write(lambda tx: tx.run(cell_servers.servers.insert(), server_values(record)))
    done = await QuotaUsage(small.context).run()
    assert [each.now for each in done.mended] == [weight]
    assert done.missing == ()


async def test_a_guest_unknown_to_all_databases_is_left_alone(small: SmallRegion) -> None:
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.cell is not None
    assert await told_wrong(small, where.cell, SERVER, UNKNOWN) == []


async def test_an_executed_delete_decides_about_a_missing_record(small: SmallRegion) -> None:
    """The region's own mark suffices, whether or not the cell still has the record."""
    cell = await lose_the_record(small)
    await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    assert await told_wrong(small, cell, SERVER) == [SERVER]
    assert (await OrphanAllocations(small.context).run()).released == (SERVER,)


async def test_a_request_for_a_missing_server_says_that_its_record_is_missing(small: SmallRegion) -> None:
    cell = await lose_the_record(small)
    assert (await records.find(small.context, SERVER)).missing_in == cell

    @dataclasses.dataclass
    class Context:
        region: object
        cells: object

    context = Context(small.region, dict(small.cells))
    with pytest.raises(Unavailable, match="missing where it should be") as missing:
        await find_server(context, SERVER)  # type: ignore[arg-type]
    assert missing.value.private, "the operator is told where"
    await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    with pytest.raises(NotFound):
        await find_server(context, SERVER)  # type: ignore[arg-type]


async def test_status_counts_missing_records(small: SmallRegion) -> None:
    cell = await lose_the_record(small)
    missing = await missing_in(small.region, cell, small.cells[cell])
    assert missing == [SERVER]
    told = [{"cell": str(cell), "answers": True, "why": "", "missing": 1, "missing_servers": missing}]
    assert f"1 servers are missing in the database of {cell}" in "\n".join(databases(told))
    assert databases([{**told[0], "missing": 0}]) == []
    out = {
        "cell": "cell2",
        "answers": False,
        "why": "the cell2 database is read-only",
        "missing": None,
        "missing_servers": [],
    }
    assert "cell2 is out: the cell2 database is read-only" in "\n".join(databases([out]))
