"""A host was told to do something, and fell silent: where a step waits for it, and where it goes another way."""

from typing import Any

import pytest
from msgspec import Struct
from tests.helpers.diary_saga import ID, KEEL, Ask, Diary, DiaryRun, lay_keel

from moorage.model.errors import HostFailed, HostUnanswered, Problem
from moorage.saga import MemoryJournal, Run, Saga, Unwound, execute, first_lines, on_some_host, step
from moorage_testing.fault_points import ManualClock


def unanswered() -> HostUnanswered:
    return HostUnanswered("silent since it was told")


@step(patience_s=60.0)
async def lay(run: DiaryRun) -> int:
    run.context.said.append("lay")
    return 7


@lay.undo
async def lift(run: DiaryRun) -> None:
    turned = run.turned
    run.context.said.append(f"lift {turned.code if turned else ''}")


@step(point_of_no_return=True, no_undo="it is launched", patience_s=60.0)
async def launch(run: DiaryRun) -> int:
    run.context.say(run, "launch")
    return run[lay] + 1


SHIP = Saga("ship/1", Ask, lay, launch)


async def test_before_a_point_of_no_return_nobody_waits_for_a_silent_host() -> None:
    context, clock = Diary(unanswered()), ManualClock()
    with pytest.raises(Unwound) as unwound:
        await execute(KEEL, ID, Ask(), context, MemoryJournal(first_lines(KEEL)), clock=clock)
    assert (clock.now, context.said) == (0.0, ["lay", "lift"])
    assert isinstance(unwound.value.cause, HostUnanswered)
    assert lay_keel.name == unwound.value.at


async def test_a_point_of_no_return_waits_beyond_its_patience_and_asks_again() -> None:
    context, clock = Diary(*[unanswered()] * 60), ManualClock()
    assert await execute(SHIP, ID, Ask(), context, MemoryJournal(first_lines(SHIP)), clock=clock) == 8
    assert clock.now > 300.0
    assert context.said == ["lay", "launch", *["launch?"] * 60]


async def test_an_answer_that_says_it_was_not_done_unwinds() -> None:
    context = Diary(unanswered(), HostFailed("the device is busy", code="guest_failed"))
    with pytest.raises(Unwound) as unwound:
        await execute(SHIP, ID, Ask(), context, MemoryJournal(first_lines(SHIP)), clock=ManualClock())
    assert unwound.value.cause.code == "guest_failed"
    assert context.said == ["lay", "launch", "launch?", "lift guest_failed"]


@pytest.mark.parametrize("word", ["deleted", "on request"])
async def test_only_a_delete_ends_the_wait_and_the_undo_knows_that_it_may_have_been_done(word: str) -> None:
    paper = MemoryJournal(first_lines(SHIP))

    def cancelled() -> Problem:
        paper.row.cancel = word
        return unanswered()

    class Cancelled(Diary):
        def say(self, run: Run[Any, Any], what: str) -> None:
            if run.phase == "do" and not self.waits.is_set():
                self.waits.set()
                self.problems = [cancelled()]
            super().say(run, what)

    context = Cancelled()
    if word != "deleted":
        assert await execute(SHIP, ID, Ask(), context, paper, clock=ManualClock()) == 8
        return
    with pytest.raises(Unwound) as unwound:
        await execute(SHIP, ID, Ask(), context, paper, clock=ManualClock())
    assert unwound.value.reason == "cancel"
    assert context.said == ["lay", "launch", f"lift {HostUnanswered.code}"]


class Wanted(Struct, frozen=True):
    hosts: tuple[str, ...] = ("oak", "elm")


@step(region=True, moves=True)
async def choose(run: Run[Wanted, Diary]) -> str:
    return await run.commit(lambda _: run.input.hosts[len(run.tried)])


@choose.undo
async def give_back(run: Run[Wanted, Diary]) -> None:
    run.context.say(run, "give back")


@step(host_local=True, needs=(choose,), patience_s=60.0)
async def start(run: Run[Wanted, Diary]) -> str:
    run.context.say(run, f"start on {run[choose]}")
    return run[choose]


@start.undo
async def stop(run: Run[Wanted, Diary]) -> None:
    run.context.say(run, f"stop on {run[choose]}")


@step(needs=(choose, start), moves=True, no_undo="it is only told", patience_s=60.0)
async def tell(run: Run[Wanted, Diary]) -> str:
    run.context.say(run, f"tell {run[choose]}")
    return run[choose]


MOVE = Saga("toy_move/1", Wanted, on_some_host(choose, start, tell))


@pytest.mark.parametrize("at", ["start", "tell"])
async def test_the_next_host_is_tried_at_once(at: str) -> None:
    class AtOne(Diary):
        def say(self, run: Run[Any, Any], what: str) -> None:
            self.said.append(what)
            if what.startswith(at) and what.endswith("oak"):
                raise unanswered()

    context, clock = AtOne(), ManualClock()
    assert await execute(MOVE, ID, Wanted(), context, MemoryJournal(first_lines(MOVE)), clock=clock) == "elm"
    assert clock.now == 0.0
    assert "stop on oak" in context.said
    assert context.said[-2:] == ["start on elm", "tell elm"]


@step(patience_s=60.0)
async def moor(run: DiaryRun) -> int:
    run.context.say(run, "moor")
    return 7


@moor.undo
async def unmoor(run: DiaryRun) -> None:
    turned = run.turned
    run.context.said.append(f"unmoor {turned.code if turned else ''}")


@step(point_of_no_return=True, needs=(moor,), no_undo="it is launched", patience_s=60.0)
async def cast_off(run: DiaryRun) -> int:
    run.context.said.append("cast off")
    return run[moor] + 1


BOAT = Saga("boat/1", Ask, moor, cast_off)


async def test_an_adopter_asks_a_host_again_that_fails_before_what_may_have_been_done() -> None:
    """The executor before it may have been at the point of no return, whose result it could not write down."""
    context, clock = Diary(*[HostFailed("no connector", code="guest_failed")] * 2), ManualClock()
    assert await execute(BOAT, ID, Ask(), context, MemoryJournal(first_lines(BOAT)), clock=clock, adopted=True) == 8
    assert context.said[-1] == "cast off"


async def test_undos_of_an_adopter_know_that_it_may_have_been_done() -> None:
    context = Diary(*[HostFailed("no connector", code="guest_failed")] * 90)
    with pytest.raises(Unwound) as unwound:
        await execute(BOAT, ID, Ask(), context, MemoryJournal(first_lines(BOAT)), clock=ManualClock(), adopted=True)
    assert unwound.value.cause.code == HostUnanswered.code
    assert context.said[-1] == f"unmoor {HostUnanswered.code}"


async def test_who_began_it_knows_that_nothing_was_done() -> None:
    context = Diary(HostFailed("no connector", code="guest_failed"))
    with pytest.raises(Unwound) as unwound:
        await execute(BOAT, ID, Ask(), context, MemoryJournal(first_lines(BOAT)), clock=ManualClock())
    assert (unwound.value.cause.code, context.said) == ("guest_failed", ["moor", "unmoor guest_failed"])
