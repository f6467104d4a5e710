"""A cell's conductor and its hosts: what was lost is asked for again, what differs is found, and one agent speaks for a host."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import sqlalchemy as sa

from moorage.api.context import ApiClock as DeskClock
from moorage.bus import subjects
from moorage.bus.host_messages import (
    AgentRefused,
    AgentReturned,
    Heartbeat,
    HostReport,
    ReportWanted,
    ServersOfHost,
    ServerTurn,
)
from moorage.bus.memory import MemoryBus
from moorage.bus.messages import Message, encode, read
from moorage.cli import status
from moorage.conductor.agent_identity import ANSWERS_WITHIN_S, GIVEN_UP_WITHIN_S
from moorage.conductor.cell_conductor import SILENT_S, CellConductor
from moorage.conductor.digest_comparison import COMPARE_AGAIN_S, COMPARE_EVERY_S
from moorage.main.observability.database_reads import CachedReads
from moorage.main.observability.process_metrics import ProcessMetricsCollector
from moorage.main.observability.sources import Sources
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable
from moorage.model.fencing_token import LAST_ATTEMPT, UNDO, FencingToken
from moorage.model.guest import PowerState, ResourceInventory, digest
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.server import VmState
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.sql import Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import server_queries
from moorage.store.cell import servers as cell_servers
from moorage.store.region import operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.tables import consumers
from moorage.store.servers import server_values
from moorage_testing.compute_app import MEMBER, compute_api
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server
from moorage_testing.waiting import until

if TYPE_CHECKING:
    from moorage.main.composition import RegionProcess

BOOT = OperationId("boot")
ONE, OTHER = "agent-1", "agent-2"


class Clock(SystemClock):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.passed_s = 1_000.0

    def monotonic(self) -> float:
        return self.passed_s

    def now(self) -> float:
        return 1_700_000_000.0 + self.passed_s


class AtCell:
    """A server that was booted, the conductor of its cell, and what its host is told."""

    def __init__(self, small: SmallRegion, cell: CellId, host: str) -> None:
        self.small, self.cell, self.host = small, cell, host
        self.clock, self.bus = Clock(), MemoryBus()
        self.told: list[Message] = []
        self.replaces: tuple[str, ...] | None = None
        """What reports say of the agents before."""
        self.conductor = self.another()

    def another(self) -> CellConductor:
        small = self.small
        return CellConductor(self.cell, small.cells[self.cell], small.region, small.engine, self.bus, self.clock)

    async def hear(self, _: str, payload: bytes) -> None:
        message = read(payload)
        assert message is not None
        self.told.append(message)

    async def say(self, message: Message, conductor: CellConductor | None = None) -> None:
        await (conductor or self.conductor)._on_message("a subject", encode(message))
        await until(lambda: self.bus.quiet)

    def heard(self, kind: type[Any]) -> list[Any]:
        found = [each for each in self.told if isinstance(each, kind)]
        self.told = [each for each in self.told if not isinstance(each, kind)]
        return found

    def report(self, guests: dict[ServerId, PowerState], agent: str = ONE, host: str = "") -> HostReport:
        inventory = {"VCPU": ResourceInventory(8)}
        return HostReport(
            host or self.host, self.cell, "x", agent, inventory=inventory, guests=guests, replaces=self.replaces
        )

    def beat(self, number: int, guests: dict[ServerId, PowerState], agent: str = ONE, **more: Any) -> Heartbeat:
        return Heartbeat(self.host, self.cell, agent, number, len(guests), digest(guests), **more)

    async def compare(self) -> None:
        """Two looks, as they come round."""
        self.clock.passed_s += COMPARE_EVERY_S
        await self.conductor.compare_some()
        self.clock.passed_s += COMPARE_AGAIN_S
        await self.conductor.compare_some()
        self.clock.passed_s += 60.0
        for known in self.conductor._known:
            await self.conductor._ask_if_due(known)
        await until(lambda: self.bus.quiet)

    def silence(self) -> None:
        """Longer than a host may be silent; the conductor looks all the time."""
        for _ in range(int(SILENT_S) + 2):
            self.clock.passed_s += 1.0
            self.conductor.mark_silent_hosts()

    async def held(self) -> None:
        """The boot is under way still."""
        row = {
            "id": BOOT,
            "saga": "boot/1",
            "server": SERVER,
            "project": "p",
            "user": "u",
            "owner": "c",
            "status": "open",
        }
        row |= {"epoch": 1, "head": 1, "seq": 1, "created_at": 1, "updated_at": 1, "asked": "{}", "journal": ""}
        hold = sa.update(region_servers.servers).values(operation=BOOT)

        def work(tx: Tx) -> None:
            tx.run(operations.operations.delete())
            tx.run(operations.operations.insert().values(row))
            tx.run(hold)

        await self.small.region.write(work)

    async def power(self) -> int:
        server = (await records.find(self.small.context, SERVER)).server
        assert server is not None
        return server.power_state

    def alive(self) -> bool:
        world = self.small.engine.world()
        return bool(world.alive[world.slots_by_name[self.host]])


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[AtCell]:
    small = await SmallRegion.open(tmp_path)
    await small.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    await execute(boot, BOOT, a_boot(BOOT), small.context, MemoryJournal(first_lines(boot), small.transact))
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    assert found.cell is not None
    assert found.server.host is not None
    here = AtCell(small, found.cell, found.server.host)
    await here.bus.subscribe(subjects.to_host(here.cell, here.host), here.hear)
    await here.bus.subscribe(subjects.to_host(here.cell, "new1"), here.hear)
    yield here
    await small.close()


ON = {SERVER: PowerState.RUNNING}


async def known(at: AtCell) -> None:
    """The operation is over, and the host's report and first beat were taken."""
    await at.small.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT, drop_order=True))
    await at.say(at.report(ON))
    await at.say(at.beat(0, ON, changed=ON))
    at.told.clear()


class Out:
    """A database that does not answer."""

    def __init__(self, under: Any) -> None:
        self.under = under

    def __getattr__(self, name: str) -> Any:
        return getattr(self.under, name)

    async def write(self, *_: Any) -> None:
        raise Unavailable("out")


# ---------------------------------------------------------------------------------------------- what was lost


async def test_a_report_that_could_not_be_stored_is_requested_until_it_is_stored(at: AtCell) -> None:
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


async def test_no_reports_are_requested_while_one_cannot_be_stored(at: AtCell) -> None:
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


async def test_a_lost_report_is_requested_again(at: AtCell) -> None:
    await at.say(Heartbeat("new1", at.cell, ONE, 0))
    assert at.heard(ReportWanted) == [], "it may be on its way beside the first beat"
    at.clock.passed_s += 5.0
    await at.say(Heartbeat("new1", at.cell, ONE, 1))
    assert len(at.heard(ReportWanted)) == 1


async def test_a_heartbeat_that_could_not_be_stored_is_followed_by_a_full_report(at: AtCell) -> None:
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


async def test_a_lost_heartbeat_is_noticed(at: AtCell) -> None:
    await known(at)
    await at.say(at.beat(1, ON))
    assert at.heard(ReportWanted) == []
    await at.say(at.beat(3, ON))
    assert at.heard(ReportWanted)


async def test_a_digest_that_changed_without_a_reported_change_is_noticed(at: AtCell) -> None:
    await known(at)
    await at.say(at.beat(1, {}))
    assert at.heard(ReportWanted)


# ---------------------------------------------------------------------------------------------- what differs


async def test_equal_digests_cause_no_report(at: AtCell) -> None:
    await known(at)
    await at.compare()
    assert at.told == []


async def test_a_guest_of_a_deleted_server_is_found_without_a_lost_heartbeat(at: AtCell) -> None:
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


async def test_all_guests_are_compared_after_a_silence(at: AtCell) -> None:
    await known(at)
    at.silence()
    assert not at.alive()
    await at.say(at.beat(1, ON))
    assert at.alive()
    assert at.heard(ReportWanted)


async def test_a_guest_counts_as_gone_when_two_reports_lack_it(at: AtCell) -> None:
    await known(at)
    await at.say(at.report({}))
    assert await at.power() == PowerState.RUNNING
    at.clock.passed_s += 6.0
    await at.say(at.beat(1, {}, changed={SERVER: PowerState.NOSTATE}))
    await at.say(at.report({}))
    assert await at.power() == PowerState.NOSTATE


async def test_an_absent_guest_of_a_server_held_by_an_operation_is_left_to_it(at: AtCell) -> None:
    await at.held()
    for _ in range(2):
        await at.say(at.report({}))
    assert await at.power() == PowerState.RUNNING


async def test_an_unknown_guest_is_left_alone(at: AtCell, caplog: pytest.LogCaptureFixture) -> None:
    await known(at)
    stranger = ServerId("f0000000-0000-4000-8000-000000000001")
    await at.say(at.report({**ON, stranger: PowerState.RUNNING}))
    assert at.heard(ServersOfHost) == []
    assert stranger in caplog.text
    caplog.clear()
    await at.say(at.report({**ON, stranger: PowerState.RUNNING}))
    assert stranger not in caplog.text, "it is said when it changes"


# ---------------------------------------------------------------------------------------------- operations under way


async def test_an_attempt_on_the_next_host_ends_the_guest_of_the_earlier_host(at: AtCell) -> None:
    """The boot is not over: what it began on the host that fell silent is refused there, and its guest goes."""
    await at.held()
    claimed = sa.update(consumers).values(operation=BOOT, attempt=2)
    await at.small.region.write(lambda tx: tx.run(claimed))
    elsewhere = next(name for name in ("host1", "host3") if name != at.host)
    told = {each.server: each for each in await at.conductor.servers_of(elsewhere, (SERVER,))}
    assert told[SERVER] == ServerTurn(SERVER, FencingToken(1, 1, UNDO), here=False)
    here = {each.server: each for each in await at.conductor.servers_of(at.host, (SERVER,))}
    assert here[SERVER].here
    assert here[SERVER].over == 0, "the boot may still go on elsewhere"


async def test_a_host_is_told_that_a_server_is_elsewhere(at: AtCell) -> None:
    await known(at)
    where = await at.small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    elsewhere = next(name for name in ("host1", "host3") if name != at.host)
    (told,) = await at.conductor.servers_of(elsewhere, (SERVER,))
    assert (told.here, told.gone) == (False, False)
    assert told.turn == FencingToken(where.op_seq, LAST_ATTEMPT, UNDO)
    (told,) = await at.conductor.servers_of(at.host, (SERVER,))
    assert (told.here, told.over) == (True, where.op_seq), "it is built, and stays there"


# ---------------------------------------------------------------------------------------------- moves


async def move(at: AtCell, status: MigrationStatus, *, there: bool) -> str:
    """The server is moved from its host; `there`: its record is on the other host already, which is answered."""
    elsewhere = next(name for name in ("host1", "host3") if name != at.host)
    migration = a_migration(1, MigrationType.RESIZE, status, server=SERVER, source_host=at.host, dest_host=elsewhere)
    table = cell_servers.servers

    def work(tx: Tx) -> None:
        cell_migrations.put(tx, migration)
        if there:
            tx.run(table.update().values(host=elsewhere))

    await at.small.cells[at.cell].write(work)
    return elsewhere


async def said_of(at: AtCell, host: str) -> ServerTurn | None:
    return {each.server: each for each in await at.conductor.servers_of(host, (SERVER,))}.get(SERVER)


async def test_a_guest_is_kept_on_the_source_host_until_the_move_ends(at: AtCell) -> None:
    await known(at)
    elsewhere = await move(at, MigrationStatus.FINISHED, there=True)
    for host in (at.host, elsewhere):
        said = await said_of(at, host)
        assert said is not None
        assert said.here, host
    await move(at, MigrationStatus.CONFIRMED, there=True)
    gone = await said_of(at, at.host)
    assert gone is not None
    assert (gone.here, gone.gone) == (False, False)
    await at.small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    await move(at, MigrationStatus.FINISHED, there=True)
    deleted = await said_of(at, at.host)
    assert deleted is not None
    assert deleted.gone, "a delete takes both"


async def test_a_moved_guest_that_was_off_is_not_started_after_its_host_was_off(at: AtCell) -> None:
    """A move may wait for days in a queue; its guest is what its record says."""
    await known(at)
    await move(at, MigrationStatus.MIGRATING, there=False)
    running = await said_of(at, at.host)
    paused = cell_servers.servers.update().values(vm_state=VmState.PAUSED.value)
    await at.small.cells[at.cell].write(lambda tx: tx.run(paused))
    still = await said_of(at, at.host)
    assert running is not None
    assert still is not None
    assert [(each.here, each.running) for each in (running, still)] == [(True, True), (True, False)]


async def test_a_claim_on_another_host_does_not_remove_the_guest_of_a_moving_server(at: AtCell) -> None:
    """The move has claimed its destination, and its guest is switched off in a moment; nothing calls it over."""
    await at.held()
    claimed = sa.update(consumers).values(operation=BOOT, attempt=1)
    await at.small.region.write(lambda tx: tx.run(claimed))
    elsewhere = await move(at, MigrationStatus.MIGRATING, there=False)
    other = at.small.engine.host_named(elsewhere)
    await at.small.region.write(lambda tx: tx.run(sa.update(consumers).values(host=other)))
    said = await said_of(at, at.host)
    assert said is not None
    assert said.here
    assert await said_of(at, elsewhere) is None, "the guest that is made there is nobody's business but the operation's"


async def test_the_second_guest_of_a_server_that_was_moved_is_expected(at: AtCell) -> None:
    """Digests of both hosts agree with the records, so no report is asked for because of it."""
    await known(at)
    elsewhere = await move(at, MigrationStatus.FINISHED, there=True)
    off = {SERVER: PowerState.SHUTDOWN}
    states = await at.small.cells[at.cell].read(lambda tx: server_queries.power_states(tx, (at.host, elsewhere)))
    assert states == {at.host: off, elsewhere: {SERVER: PowerState.RUNNING}}
    await at.say(at.beat(1, off, changed=off))
    await at.compare()
    assert at.heard(ReportWanted) == []
    await at.say(at.report(off))
    assert at.heard(ServersOfHost) == []


@pytest.mark.parametrize("status", [MigrationStatus.PREPARING, MigrationStatus.RUNNING])
async def test_a_place_prepared_for_a_live_migration_is_expected(at: AtCell, status: MigrationStatus) -> None:
    """Its networks may take minutes to be plugged, its memory may be sent for hours; a digest that differs otherwise is asked about all the same."""
    await known(at)
    coming, live = ServerId("coming"), MigrationType.LIVE_MIGRATION
    row = a_migration(1, live, status, server=coming, source_host="far", dest_host=at.host)
    await at.small.cells[at.cell].write(lambda tx: cell_migrations.put(tx, row))
    place = {coming: PowerState.PAUSED}
    await at.say(at.beat(1, {**ON, **place}, changed=place))
    await at.compare()
    assert at.heard(ReportWanted) == []
    on = {coming: PowerState.RUNNING}
    await at.say(at.beat(2, {**ON, **on}, changed=on))
    await at.compare()
    assert at.heard(ReportWanted)


# ---------------------------------------------------------------------------------------------- who speaks


async def question(
    at: AtCell, agent: str, *, waits_s: float = 0.0, replaces: tuple[str, ...] | None = None
) -> list[Message]:
    at.told.clear()
    at.clock.passed_s += waits_s
    await at.say(AgentReturned(at.host, at.cell, f"{agent} asks", (), agent=agent, replaces=replaces))
    return at.told


async def test_a_second_agent_is_refused_while_the_first_answers(at: AtCell, caplog: pytest.LogCaptureFixture) -> None:
    await known(at)
    (asked,) = await question(at, OTHER)
    assert isinstance(asked, ReportWanted)
    at.clock.passed_s += 0.1
    await at.say(at.report(ON))
    (refused,) = await question(at, OTHER, waits_s=ANSWERS_WITHIN_S)
    assert isinstance(refused, AgentRefused)
    assert refused.agent == OTHER
    assert "two machines have the same name" in caplog.text
    before = await at.power()
    await at.say(at.beat(0, {}, OTHER, changed={SERVER: PowerState.CRASHED}))
    await at.say(at.report({}, OTHER))
    assert await at.power() == before, "nothing that it says is taken"


async def test_a_restarted_agent_is_accepted_when_the_earlier_one_does_not_answer(at: AtCell) -> None:
    await known(at)
    await question(at, OTHER)
    (answer,) = await question(at, OTHER, waits_s=ANSWERS_WITHIN_S)
    assert isinstance(answer, ServersOfHost)
    at.told.clear()
    await at.say(at.beat(7, ON, ONE))
    assert not [each for each in at.told if not isinstance(each, ReportWanted)]


async def test_a_restarted_agent_names_the_agents_it_replaces(at: AtCell) -> None:
    await known(at)
    await question(at, OTHER, replaces=("one before", ONE))
    (answer,) = await question(at, OTHER, waits_s=ANSWERS_WITHIN_S, replaces=("one before", ONE))
    assert isinstance(answer, ServersOfHost)


async def test_an_agent_of_another_machine_waits_until_the_first_is_silent(at: AtCell) -> None:
    """The first does not answer, but may be cut off for a moment: its guests run, and it may act."""
    await known(at)
    await question(at, OTHER, replaces=())
    assert await question(at, OTHER, waits_s=2 * ANSWERS_WITHIN_S, replaces=()) == []
    await at.say(at.beat(0, {}, OTHER))
    assert await question(at, OTHER, replaces=("somebody",)) == []
    at.silence()
    assert await question(at, OTHER, replaces=()) == [], "boots are just going on elsewhere"
    (answer,) = await question(at, OTHER, waits_s=GIVEN_UP_WITHIN_S, replaces=())
    assert isinstance(answer, ServersOfHost)


async def test_heartbeats_alone_replace_no_agent(at: AtCell) -> None:
    """The first one returns from a cut, and does not know yet that another speaks, who does not answer at the moment."""
    await known(at)
    await at.say(at.beat(0, {}, OTHER, changed={SERVER: PowerState.CRASHED}))
    before = await at.power()
    at.clock.passed_s += 2 * ANSWERS_WITHIN_S
    await at.say(at.beat(1, {}, OTHER, changed={SERVER: PowerState.CRASHED}))
    assert await at.power() == before
    assert at.conductor._known[at.host].agent == ONE


async def test_a_restarted_agent_that_sends_only_heartbeats_is_asked_for_a_report(at: AtCell) -> None:
    """Another conductor, of a release that does not keep who speaks, answered its question: it will not ask again."""
    await known(at)
    at.told.clear()
    for number in range(3):
        at.clock.passed_s += 2 * ANSWERS_WITHIN_S
        await at.say(at.beat(number, ON, OTHER))
        if any(isinstance(each, ReportWanted) for each in at.told):
            at.told.clear()
            at.replaces = ("one between", ONE)
            await at.say(at.report(ON, OTHER))
    assert at.conductor._known[at.host].agent == OTHER
    assert not at.conductor._known[at.host].silent


async def test_an_answer_queued_behind_a_slow_database_counts(at: AtCell) -> None:
    """Two agents must not both be told that they speak for the host."""
    await known(at)
    await question(at, OTHER)
    plain, goes_on = at.small.engine.report_host, asyncio.Event()

    async def slow(told: Any) -> Any:
        await goes_on.wait()
        return await plain(told)

    at.small.engine.report_host = slow  # type: ignore[method-assign]
    storing = asyncio.create_task(at.say(at.report({}, host="new1")))
    await until(lambda: at.conductor._known["new1"].heard > 0)
    assert await question(at, OTHER, waits_s=ANSWERS_WITHIN_S) == []
    goes_on.set()
    await storing
    await at.say(at.report(ON, ONE))
    (answer,) = await question(at, OTHER)
    assert isinstance(answer, AgentRefused)


async def test_an_agent_that_said_it_stops_is_replaced_at_once(at: AtCell) -> None:
    await known(at)
    await at.say(at.beat(1, ON, leaving=True))
    (answer,) = await question(at, OTHER)
    assert isinstance(answer, ServersOfHost)


async def test_a_replaced_machine_that_returns_is_refused(at: AtCell) -> None:
    await known(at)
    at.silence()
    (answer,) = await question(at, OTHER)
    assert isinstance(answer, ServersOfHost)
    await at.say(at.report(ON, OTHER))
    await question(at, ONE)
    at.clock.passed_s += 0.1
    await at.say(at.beat(3, ON, OTHER))
    (refused,) = await question(at, ONE, waits_s=ANSWERS_WITHIN_S)
    assert isinstance(refused, AgentRefused)


async def test_conductors_of_one_cell_agree_on_the_hosts_agent(at: AtCell) -> None:
    """One that heard neither of them before does not let the second one in."""
    await known(at)
    another = at.another()
    await another.start()
    try:
        at.told.clear()
        await at.say(AgentReturned(at.host, at.cell, "q", (), agent=OTHER), another)
        assert at.heard(ServersOfHost) == []
        await at.say(at.beat(1, ON), another)
        at.clock.passed_s += ANSWERS_WITHIN_S
        await at.say(at.beat(2, ON), another)
        at.told.clear()
        await at.say(AgentReturned(at.host, at.cell, "q", (), agent=OTHER), another)
        assert [each.agent for each in at.heard(AgentRefused)] == [OTHER]
    finally:
        await another.stop()


async def test_an_agent_of_an_earlier_release_is_known_by_what_it_has(at: AtCell) -> None:
    await at.say(AgentReturned(at.host, at.cell, ONE))
    assert [each.boot for each in at.heard(ServersOfHost)] == [ONE]
    await known(at)
    await at.say(at.beat(1, ON))
    assert at.heard(ReportWanted) == []


# ---------------------------------------------------------------------------------------------- who is alive


async def test_silent_and_forced_down_hosts_stay_so_after_a_restart(at: AtCell) -> None:
    await known(at)
    await at.conductor.flush()
    soon = at.another()
    await soon.start()
    assert at.alive(), "it was heard a moment ago, by the conductor before"
    assert soon.unheard() == []
    await soon.stop()
    at.clock.passed_s += SILENT_S + 1
    at.told.clear()
    first = at.another()
    await first.start()
    assert at.alive(), "it was when somebody last listened: boots that come now are not refused for that"
    assert at.host in first.unheard()
    for _ in range(int(SILENT_S) // 4 + 1):
        assert at.alive()
        at.clock.passed_s += 4
        first.mark_silent_hosts()
    assert not at.alive(), "by then it would have been heard"
    await first.stop()
    await at.say(at.report({}, OTHER, host="host-2"))
    later = at.another()
    await later.start()
    assert not at.alive(), "nobody has heard it for long, though somebody listened"
    assert at.host in later.unheard()
    await until(lambda: at.heard(ReportWanted))
    await at.say(at.report(ON), later)
    assert at.alive()
    await later.flush()
    await later.stop()
    cell = at.small.cells[at.cell]
    await cell.write(lambda tx: cell_hosts.set_forced_down(tx, at.host, True, 1))
    forced = at.another()
    await forced.start()
    assert not at.alive()
    assert at.host not in forced.unheard(), "nobody waits for it"
    await forced.stop()


async def test_a_suspended_conductor_marks_no_host_as_silent(at: AtCell) -> None:
    await known(at)
    at.clock.passed_s += 300.0
    at.conductor.check_bus_silence()
    at.conductor.mark_silent_hosts()
    assert at.alive()
    at.silence()
    assert not at.alive()


async def test_a_cut_bus_marks_no_host_as_silent(at: AtCell) -> None:
    await known(at)
    at.bus.dials.cut = True
    for _ in range(40):
        at.clock.passed_s += 2.0
        at.conductor.check_bus_silence()
        at.conductor.mark_silent_hosts()
    assert at.alive()


async def test_last_heartbeats_are_written_when_the_database_is_back(at: AtCell) -> None:
    await known(at)
    plain = at.conductor._database
    at.conductor._database = cast("Any", Out(plain))
    with pytest.raises(Unavailable):
        await at.conductor.flush()
    at.conductor._database = plain
    at.clock.passed_s += 1.0
    await at.conductor.flush()
    row = await plain.read(lambda tx: cell_hosts.named(tx, at.host))
    assert row is not None
    assert row.seen_at == int(at.clock.now() * 1_000_000)
    assert msgspec.structs.asdict(row)["agent"] == ONE


# ------------------------------------------------------------------------------------------- what waits for a person


UNKNOWN = ServerId("0d0c0b0a-0000-4000-8000-00000000dead")


async def shown(at: AtCell, directory: Path) -> list[dict[str, Any]]:
    """What an administrator reads; from the databases alone, as in a process without a conductor."""
    async with compute_api(directory, cells={str(cell): each for cell, each in at.small.cells.items()}) as client:
        own, client.context.region = client.context.region, at.small.region
        client.context.clock = cast("DeskClock", at.clock)
        assert (await client.get("/ext/hosts", by=MEMBER)).status_code == 403
        told = (await client.get("/ext/hosts")).json()
        client.context.region = own
    assert told["cells_out"] == []
    return cast("list[dict[str, Any]]", told["hosts"])


async def test_unknown_guests_and_missing_records_are_shown(at: AtCell, tmp_path: Path) -> None:
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


async def test_what_a_host_does_not_wire_is_shown_and_counted_while_it_says_so(at: AtCell, tmp_path: Path) -> None:
    await known(at)
    troubles = ("port one: a rule is left out", "network two: guests of this host do not reach it")
    await at.say(msgspec.structs.replace(at.report(ON), not_wired=troubles))
    (row,) = await shown(at, tmp_path)
    assert (row["host"], row["not_wired"], row["left_alone"]) == (at.host, list(troubles), 0)
    said = "\n".join(status.hosts([row]))
    assert f"host {at.host} in {at.cell} does not wire a port as it should: {troubles[0]}" in said
    assert troubles[1] in said
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


async def test_a_refused_second_agent_is_shown_while_it_asks(at: AtCell, tmp_path: Path) -> None:
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


async def test_a_report_with_another_hosts_node_is_refused(at: AtCell, caplog: pytest.LogCaptureFixture) -> None:
    await at.say(at.report({}))
    liar = msgspec.structs.replace(at.report({}, host="stranger"), hypervisor_hostname=at.host)
    await at.say(liar)
    assert f"host stranger reports node {at.host}, which is host {at.host}'s" in caplog.text
    rows = await at.small.cells[at.cell].read(cell_hosts.listed)
    assert at.host in {row.host for row in rows}
    assert "stranger" not in {row.host for row in rows}
