"""A cell's conductor requests lost reports again, and compares the guests of hosts with its records."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import sqlalchemy as sa
from tests.helpers.cell_conductor import ON, ONE, OTHER, CellUnderTest, Out, at, known, question

from moorage.api.context import ApiClock as DeskClock
from moorage.bus.host_messages import (
    AgentRefused,
    Heartbeat,
    ReportWanted,
    ServersOfHost,
    ServerTurn,
)
from moorage.cli import status
from moorage.conductor.agent_identity import ANSWERS_WITHIN_S
from moorage.main.observability.database_reads import CachedReads
from moorage.main.observability.process_metrics import ProcessMetricsCollector
from moorage.main.observability.sources import Sources
from moorage.model.errors import Unavailable
from moorage.model.guest import PowerState, digest
from moorage.model.ids import ServerId
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers
from moorage.store.servers import server_values
from moorage_testing.compute_app import MEMBER, compute_api
from moorage_testing.region_fixture import SERVER
from moorage_testing.waiting import until

if TYPE_CHECKING:
    from moorage.main.composition import RegionProcess

__all__ = ["at"]


# ---------------------------------------------------------------------------------------------- what was lost


async def test_a_report_that_could_not_be_stored_is_requested_until_it_is_stored(at: CellUnderTest) -> None:
    plain = at.small.engine.report_host

    async def out(*_: Any) -> Any:
        raise Unavailable("the region's database does not answer")

    at.small.engine.report_host = out  # type: ignore[method-assign]
    asked = 0
    for number in range(40):
        await at.say(at.report({}, host="new1"))
        await at.say(Heartbeat("new1", at.cell, ONE, number, 0, digest({})))
        at.clock.passed_s += 5.0
        asked += len(at.heard(ReportWanted))
    assert 5 <= asked <= 20, "again and again, with pauses that grow"
    at.small.engine.report_host = plain  # type: ignore[method-assign]
    await at.say(at.report({}, host="new1"))
    assert at.small.engine.host_named("new1") is not None
    at.clock.passed_s += 60.0
    at.told.clear()
    await at.say(Heartbeat("new1", at.cell, ONE, 40, 0, digest({})))
    await at.say(Heartbeat("new1", at.cell, ONE, 41, 0, digest({})))
    assert at.heard(ReportWanted) == []


async def test_no_reports_are_requested_while_one_cannot_be_stored(at: CellUnderTest) -> None:
    """A database that hangs: what was asked meanwhile would be stored one after the other when it is back."""
    plain, goes_on = at.small.engine.report_host, asyncio.Event()

    async def hangs(told: Any) -> Any:
        await goes_on.wait()
        return await plain(told)

    at.small.engine.report_host = hangs  # type: ignore[method-assign]
    storing = asyncio.create_task(at.say(at.report({}, host="new1")))
    await until(lambda: at.conductor._known["new1"].heard > 0)
    asked = 0
    for number in range(10):
        at.clock.passed_s += 5.0
        await at.conductor.take_beat(Heartbeat(at.host, at.cell, ONE, number, 0, digest({})))
        await until(lambda: at.bus.quiet)
        asked += len(at.heard(ReportWanted))
    assert asked == 0
    goes_on.set()
    await storing
    at.clock.passed_s += 60.0
    await at.conductor.take_beat(Heartbeat(at.host, at.cell, ONE, 10, 0, digest({})))
    await until(lambda: at.heard(ReportWanted))


async def test_a_lost_report_is_requested_again(at: CellUnderTest) -> None:
    await at.say(Heartbeat("new1", at.cell, ONE, 0))
    assert at.heard(ReportWanted) == [], "it may be on its way beside the first beat"
    at.clock.passed_s += 5.0
    await at.say(Heartbeat("new1", at.cell, ONE, 1))
    assert len(at.heard(ReportWanted)) == 1


async def test_a_heartbeat_that_could_not_be_stored_is_followed_by_a_full_report(at: CellUnderTest) -> None:
    await known(at)
    plain = at.conductor._database
    at.conductor._database = cast("Any", Out(plain))
    crashed = {SERVER: PowerState.CRASHED}
    await at.say(at.beat(1, crashed, changed=crashed))
    at.conductor._database = plain
    await at.say(at.beat(2, crashed))
    assert at.heard(ReportWanted)
    await at.say(at.report(crashed))
    assert await at.power() == PowerState.CRASHED


async def test_a_lost_heartbeat_is_noticed(at: CellUnderTest) -> None:
    await known(at)
    await at.say(at.beat(1, ON))
    assert at.heard(ReportWanted) == []
    await at.say(at.beat(3, ON))
    assert at.heard(ReportWanted)


async def test_a_digest_that_changed_without_a_reported_change_is_noticed(at: CellUnderTest) -> None:
    await known(at)
    await at.say(at.beat(1, {}))
    assert at.heard(ReportWanted)


# ---------------------------------------------------------------------------------------------- what differs


async def test_equal_digests_cause_no_report(at: CellUnderTest) -> None:
    await known(at)
    await at.compare()
    assert at.told == []


async def test_a_guest_of_a_deleted_server_is_found_without_a_lost_heartbeat(at: CellUnderTest) -> None:
    """The host stood still while its server was deleted, and came back with the next number."""
    await known(at)
    cell = at.small.cells[at.cell]
    gone = sa.update(cell_servers.servers).values(deleted_at=1)
    await cell.write(lambda tx: tx.run(gone))
    await at.small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    await at.say(at.beat(1, ON))
    assert at.told == []
    await at.compare()
    assert at.heard(ReportWanted)
    await at.say(at.report(ON))
    (answer,) = at.heard(ServersOfHost)
    assert answer.servers == (ServerTurn(SERVER, here=False, gone=True),)


async def test_all_guests_are_compared_after_a_silence(at: CellUnderTest) -> None:
    await known(at)
    at.silence()
    assert not at.alive()
    await at.say(at.beat(1, ON))
    assert at.alive()
    assert at.heard(ReportWanted)


async def test_a_guest_counts_as_gone_when_two_reports_lack_it(at: CellUnderTest) -> None:
    await known(at)
    await at.say(at.report({}))
    assert await at.power() == PowerState.RUNNING
    at.clock.passed_s += 6.0
    await at.say(at.beat(1, {}, changed={SERVER: PowerState.NOSTATE}))
    await at.say(at.report({}))
    assert await at.power() == PowerState.NOSTATE


async def test_an_absent_guest_of_a_server_held_by_an_operation_is_left_to_it(at: CellUnderTest) -> None:
    await at.held()
    for _ in range(2):
        await at.say(at.report({}))
    assert await at.power() == PowerState.RUNNING


async def test_an_unknown_guest_is_left_alone(at: CellUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    await known(at)
    stranger = ServerId("f0000000-0000-4000-8000-000000000001")
    await at.say(at.report({**ON, stranger: PowerState.RUNNING}))
    assert at.heard(ServersOfHost) == []
    assert stranger in caplog.text
    caplog.clear()
    await at.say(at.report({**ON, stranger: PowerState.RUNNING}))
    assert stranger not in caplog.text, "it is said when it changes"


# ------------------------------------------------------------------------------------------- what waits for a person


UNKNOWN = ServerId("0d0c0b0a-0000-4000-8000-00000000dead")


async def shown(at: CellUnderTest, directory: Path) -> list[dict[str, Any]]:
    """What an administrator reads; from the databases alone, as in a process without a conductor."""
    async with compute_api(directory, cells={str(cell): each for cell, each in at.small.cells.items()}) as client:
        own, client.context.region = client.context.region, at.small.region
        client.context.clock = cast("DeskClock", at.clock)
        assert (await client.get("/ext/hosts", by=MEMBER)).status_code == 403
        answer = (await client.get("/ext/hosts")).json()
        client.context.region = own
    assert answer["cells_out"] == []
    return cast("list[dict[str, Any]]", answer["hosts"])


async def test_unknown_guests_and_missing_records_are_shown(at: CellUnderTest, tmp_path: Path) -> None:
    """Also after the conductor began anew, and until they are gone; a guest whose record was lost is told from a stranger."""
    await known(at)
    assert await shown(at, tmp_path) == []
    record = await at.small.cells[at.cell].read(lambda tx: cell_servers.get(tx, SERVER))
    assert record is not None
    await at.small.cells[at.cell].write(lambda tx: tx.run(cell_servers.servers.delete()))
    both = {**ON, UNKNOWN: PowerState.RUNNING}
    await at.say(msgspec.structs.replace(at.report(both), set_aside=("a.json",)))
    (row,) = await shown(at, tmp_path)
    assert (row["host"], row["cell"], row["set_aside"], row["left_alone"]) == (at.host, at.cell, ["a.json"], 2)
    assert (row["missing_guests"], row["unknown_guests"]) == ([SERVER], [UNKNOWN])
    said = "\n".join(status.hosts([row]))
    assert f"guests that no database knows; they are left alone: {UNKNOWN}" in said
    assert f"guests whose records its cell has lost: {SERVER}" in said
    assert "put records of guests aside that it cannot read: a.json" in said
    assert status.hosts([]) == []
    again = at.another()
    await again.start()
    try:
        assert await shown(at, tmp_path) == [row]
        await at.small.cells[at.cell].write(lambda tx: tx.run(cell_servers.servers.insert(), server_values(record)))
        await at.say(at.report(ON), again)
        assert await shown(at, tmp_path) == []
    finally:
        await again.stop()


async def test_a_refused_second_agent_is_shown_while_it_asks(at: CellUnderTest, tmp_path: Path) -> None:
    await known(at)
    refused_at = []
    for _ in range(10):
        await question(at, OTHER, waits_s=4.0)
        at.clock.passed_s += 0.1
        await at.say(at.beat(1, ON))
        assert [each for each in await question(at, OTHER, waits_s=ANSWERS_WITHIN_S) if isinstance(each, AgentRefused)]
        (row,) = await shown(at, tmp_path)
        assert row["refused_agent"] == OTHER
        refused_at.append(row["refused_at"])
    assert len(set(refused_at)) == 2, "a refusal that repeats itself is written twice a minute"
    assert "another agent spoke for it and was refused" in "\n".join(status.hosts([row]))
    at.clock.passed_s += 121.0
    assert await shown(at, tmp_path) == []


async def test_a_report_with_another_hosts_node_is_refused(at: CellUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    await at.say(at.report({}))
    liar = msgspec.structs.replace(at.report({}, host="stranger"), hypervisor_hostname=at.host)
    await at.say(liar)
    assert f"host stranger reports node {at.host}, which is host {at.host}'s" in caplog.text
    rows = await at.small.cells[at.cell].read(cell_hosts.listed)
    assert at.host in {row.host for row in rows}
    assert "stranger" not in {row.host for row in rows}


async def test_unwired_ports_of_a_host_are_shown_and_counted_while_reported(at: CellUnderTest, tmp_path: Path) -> None:
    await known(at)
    troubles = ("port one: a rule is left out", "network two: guests of this host do not reach it")
    await at.say(msgspec.structs.replace(at.report(ON), not_wired=troubles))
    (row,) = await shown(at, tmp_path)
    assert (row["host"], row["not_wired"], row["left_alone"]) == (at.host, list(troubles), 0)
    printed = "\n".join(status.hosts([row]))
    assert f"host {at.host} in {at.cell} does not wire a port as it should: {troubles[0]}" in printed
    assert troubles[1] in printed
    process = SimpleNamespace(cells=(at.conductor,), conductor=None, waker=None)
    sources = Sources(region=cast("RegionProcess", process))
    collector = ProcessMetricsCollector("conductor", CachedReads(1.0), lambda: True, sources)
    [counted] = [each for each in collector.collect() if each.name == "moorage_ports_not_wired"]
    assert [(each.labels, each.value) for each in counted.samples] == [({"cell": at.cell, "host": at.host}, 2.0)]
    again = at.another()
    await again.start()
    try:
        assert await shown(at, tmp_path) == [row], "also after the conductor began anew"
        await at.say(at.report(ON), again)
        assert await shown(at, tmp_path) == []
    finally:
        await again.stop()
