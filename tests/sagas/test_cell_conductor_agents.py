"""A cell's conductor accepts one agent for each host, and decides which hosts are up."""

import asyncio
from typing import Any, cast

import msgspec
import pytest
from tests.helpers.cell_conductor import ON, ONE, OTHER, CellUnderTest, Out, at, known, question

from moorage.bus.host_messages import (
    AgentRefused,
    AgentReturned,
    ReportWanted,
    ServersOfHost,
)
from moorage.conductor.agent_identity import ANSWERS_WITHIN_S, GIVEN_UP_WITHIN_S
from moorage.conductor.cell_conductor import SILENT_S
from moorage.model.errors import Unavailable
from moorage.model.guest import PowerState
from moorage.store.cell import hosts as cell_hosts
from moorage_testing.region_fixture import SERVER
from moorage_testing.waiting import until

__all__ = ["at"]


async def test_a_second_agent_is_refused_while_the_first_answers(
    at: CellUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
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


async def test_a_restarted_agent_is_accepted_when_the_earlier_one_does_not_answer(at: CellUnderTest) -> None:
    await known(at)
    await question(at, OTHER)
    (answer,) = await question(at, OTHER, waits_s=ANSWERS_WITHIN_S)
    assert isinstance(answer, ServersOfHost)
    at.told.clear()
    await at.say(at.beat(7, ON, ONE))
    assert not [each for each in at.told if not isinstance(each, ReportWanted)]


async def test_a_restarted_agent_names_the_agents_it_replaces(at: CellUnderTest) -> None:
    await known(at)
    await question(at, OTHER, replaces=("one before", ONE))
    (answer,) = await question(at, OTHER, waits_s=ANSWERS_WITHIN_S, replaces=("one before", ONE))
    assert isinstance(answer, ServersOfHost)


async def test_an_agent_of_another_machine_waits_until_the_first_is_silent(at: CellUnderTest) -> None:
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


async def test_heartbeats_alone_replace_no_agent(at: CellUnderTest) -> None:
    """The first one returns from a cut, and does not know yet that another speaks, who does not answer at the moment."""
    await known(at)
    await at.say(at.beat(0, {}, OTHER, changed={SERVER: PowerState.CRASHED}))
    before = await at.power()
    at.clock.passed_s += 2 * ANSWERS_WITHIN_S
    await at.say(at.beat(1, {}, OTHER, changed={SERVER: PowerState.CRASHED}))
    assert await at.power() == before
    assert at.conductor._known[at.host].agent == ONE


async def test_a_restarted_agent_that_sends_only_heartbeats_is_asked_for_a_report(at: CellUnderTest) -> None:
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


async def test_an_answer_queued_behind_a_slow_database_counts(at: CellUnderTest) -> None:
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


async def test_an_agent_that_announced_its_stop_is_replaced_at_once(at: CellUnderTest) -> None:
    await known(at)
    await at.say(at.beat(1, ON, leaving=True))
    (answer,) = await question(at, OTHER)
    assert isinstance(answer, ServersOfHost)


async def test_a_replaced_machine_that_returns_is_refused(at: CellUnderTest) -> None:
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


async def test_conductors_of_one_cell_agree_on_the_hosts_agent(at: CellUnderTest) -> None:
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


async def test_an_agent_of_an_earlier_release_is_known_by_what_it_has(at: CellUnderTest) -> None:
    await at.say(AgentReturned(at.host, at.cell, ONE))
    assert [each.boot for each in at.heard(ServersOfHost)] == [ONE]
    await known(at)
    await at.say(at.beat(1, ON))
    assert at.heard(ReportWanted) == []


# ---------------------------------------------------------------------------------------------- who is alive


async def test_silent_and_forced_down_hosts_stay_so_after_a_restart(at: CellUnderTest) -> None:
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


async def test_a_suspended_conductor_marks_no_host_as_silent(at: CellUnderTest) -> None:
    await known(at)
    at.clock.passed_s += 300.0
    at.conductor.check_bus_silence()
    at.conductor.mark_silent_hosts()
    assert at.alive()
    at.silence()
    assert not at.alive()


async def test_a_cut_bus_marks_no_host_as_silent(at: CellUnderTest) -> None:
    await known(at)
    at.bus.dials.cut = True
    for _ in range(40):
        at.clock.passed_s += 2.0
        at.conductor.check_bus_silence()
        at.conductor.mark_silent_hosts()
    assert at.alive()


async def test_last_heartbeats_are_written_when_the_database_is_back(at: CellUnderTest) -> None:
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
