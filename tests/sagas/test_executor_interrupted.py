"""The executor when it is interrupted: cancels, adoptions, and operations that get stuck."""

import asyncio

import pytest
from tests.helpers.diary_saga import ID, KEEL, Ask, Diary, DiaryRun, launch, lay_keel

from moorage.model.errors import Conflict, Unavailable
from moorage.saga import (
    Fenced,
    Killed,
    MemoryJournal,
    RetryLimits,
    Saga,
    Stuck,
    Unwound,
    execute,
    first_lines,
    step,
)
from moorage_testing.fault_points import ManualClock

DEADLINE_S = 120.0


@step
async def wait_for_tide(run: DiaryRun) -> None:
    run.context.say(run, "wait")
    run.context.reached.set()
    await run.context.waits.wait()


@wait_for_tide.undo
async def ebb(run: DiaryRun) -> None:
    run.context.say(run, "ebb")


TIDE = Saga("tide/1", Ask, lay_keel, wait_for_tide, launch)


class Asked(MemoryJournal):
    """Says when somebody asked it for the cancel word."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.asked = asyncio.Event()

    async def cancel_reason(self) -> str | None:
        self.asked.set()
        return await super().cancel_reason()


class TestCancel:
    async def test_a_hint_interrupts_a_waiting_do(self) -> None:
        context, paper, hint = Diary(), MemoryJournal(first_lines(TIDE)), asyncio.Event()
        executing = asyncio.create_task(execute(TIDE, ID, Ask(), context, paper, cancel_hint=hint))
        await asyncio.wait_for(context.reached.wait(), DEADLINE_S)
        paper.row.cancel = "deleted"
        hint.set()
        with pytest.raises(Unwound) as unwound:
            await asyncio.wait_for(executing, DEADLINE_S)
        assert unwound.value.reason == "cancel"
        assert context.said == ["lay", "wait", "ebb", "lift"]
        assert '"cancelled":"deleted"' in paper.row.text

    async def test_a_false_cancel_hint_changes_nothing(self) -> None:
        context, paper, hint = Diary(), Asked(first_lines(TIDE)), asyncio.Event()
        executing = asyncio.create_task(execute(TIDE, ID, Ask(), context, paper, cancel_hint=hint))
        await asyncio.wait_for(context.reached.wait(), DEADLINE_S)
        hint.set()
        await asyncio.wait_for(paper.asked.wait(), DEADLINE_S)
        context.waits.set()
        assert await executing == 8

    async def test_a_shutdown_leaves_the_saga_where_it_is(self) -> None:
        context, paper = Diary(), MemoryJournal(first_lines(TIDE))
        executing = asyncio.create_task(execute(TIDE, ID, Ask(), context, paper, cancel_hint=asyncio.Event()))
        await asyncio.wait_for(context.reached.wait(), DEADLINE_S)
        before = paper.row.text
        executing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await executing
        assert (paper.row.text, context.said) == (before, ["lay", "wait"])
        context.waits.set()
        assert await execute(TIDE, ID, Ask(), context, paper.adopted()) == 8
        assert context.said == ["lay", "wait", "lay?", "wait?", "launch?"]

    async def test_a_cancel_found_by_a_commit_ends_the_waiting(self) -> None:
        """Its hint was lost, or came while the line was written."""
        paper, context = MemoryJournal(first_lines(TIDE)), Diary(*[Unavailable("out") for _ in range(20)])
        clock = ManualClock()
        slept, sleep = 0, clock.sleep

        async def until_it_is_shown(seconds: float) -> None:
            nonlocal slept
            slept += 1
            if slept == 1:
                paper.row.cancel = "deleted"
            await sleep(seconds)

        clock.sleep = until_it_is_shown  # type: ignore[method-assign]
        executing = execute(TIDE, ID, Ask(), context, paper, cancel_hint=asyncio.Event(), clock=clock)
        with pytest.raises(Unwound) as unwound:
            await asyncio.wait_for(executing, DEADLINE_S)
        assert unwound.value.reason == "cancel"
        assert len(context.problems) > 10, "tried again long after the line that told of the cancel"

    async def test_a_step_that_checks_for_a_late_cancel_is_not_interrupted(self) -> None:
        looks = 0

        @step(point_of_no_return=True, no_undo="seen")
        async def show(run: DiaryRun) -> None:
            run.context.say(run, "show")

        @show.passed
        async def was_shown(run: DiaryRun) -> bool:
            nonlocal looks
            looks += 1
            if looks < 3:
                raise Unavailable("out")
            return True

        saga, context, hint = Saga("show/1", Ask, lay_keel, show), Diary(), asyncio.Event()
        paper = MemoryJournal(first_lines(saga)).adopted()
        clock = ManualClock()
        sleep = clock.sleep

        async def then_hear(seconds: float) -> None:
            paper.row.cancel = "deleted"
            hint.set()
            for _ in range(5):
                await asyncio.sleep(0)
            await sleep(seconds)

        clock.sleep = then_hear  # type: ignore[method-assign]
        await asyncio.wait_for(execute(saga, ID, Ask(), context, paper, cancel_hint=hint, clock=clock), DEADLINE_S)
        assert looks == 3
        assert paper.row.status == "done"

    async def test_a_cancel_before_the_first_step_executes_nothing(self) -> None:
        paper, context = MemoryJournal(first_lines(KEEL)), Diary()
        paper.row.cancel = "deleted"
        with pytest.raises(Unwound):
            await execute(KEEL, ID, Ask(), context, MemoryJournal(row=paper.row))
        assert context.said == []


class TestAdoption:
    async def test_a_passed_point_of_no_return_is_final(self) -> None:
        """The dead executor launched and had no time to say so; the adopter neither lays again nor heeds a cancel."""
        context = Diary()
        paper = MemoryJournal(first_lines(KEEL), tears_after=0)
        with pytest.raises(Killed):
            await execute(KEEL, ID, Ask(), context, paper)
        assert context.said == ["lay", "launch"]

        paper.row.cancel = "deleted"
        forgiving = launch.but(do=_launch_without_looking_back)
        assert await execute(KEEL.but(forgiving), ID, Ask(), context, paper.adopted()) == 8
        assert context.said == ["lay", "launch", "relaunch"]

    async def test_a_point_of_no_return_not_passed_can_be_cancelled(self) -> None:
        context = Diary(Conflict("no"))
        paper = MemoryJournal(first_lines(KEEL), tears_after=0)
        with pytest.raises(Killed):
            await execute(KEEL, ID, Ask(), context, paper)
        paper.row.cancel = "deleted"
        with pytest.raises(Unwound):
            await execute(KEEL, ID, Ask(), context, paper.adopted())
        assert context.said == ["lay", "lift"]

    async def test_the_earlier_executor_is_fenced(self) -> None:
        paper, context = MemoryJournal(first_lines(KEEL)), Diary()
        paper.adopted()
        with pytest.raises(Fenced):
            await execute(KEEL, ID, Ask(), context, paper)

    async def test_an_ended_saga_returns_its_result_again(self) -> None:
        paper, context = MemoryJournal(first_lines(KEEL)), Diary()
        assert await execute(KEEL, ID, Ask(), context, paper) == 8
        assert await execute(KEEL, ID, Ask(), context, paper.adopted()) == 8
        assert context.said == ["lay", "launch"]


async def _launch_without_looking_back(run: DiaryRun) -> int:
    run.context.said.append("relaunch")
    return 8


class TestStuck:
    async def test_a_failing_undo_is_stuck_and_continues_later(self) -> None:
        broken = True

        async def jammed(run: DiaryRun) -> None:
            run.context.say(run, "jam")
            if broken:
                raise OSError("jammed")

        saga = TIDE.but(lay_keel.but(undo=jammed))
        context, paper, clock = Diary(), MemoryJournal(first_lines(saga)), ManualClock()
        context.waits.set()
        context.problems = []
        saga = saga.but(wait_for_tide.but(do=_refuses))
        with pytest.raises(Stuck) as stuck:
            await execute(saga, ID, Ask(), context, paper, clock=clock, limits=RetryLimits(undo_patience_s=100))
        assert (stuck.value.at, paper.row.status) == ("lay_keel", "stuck")
        broken = False
        context.said.clear()
        with pytest.raises(Unwound):
            await execute(saga, ID, Ask(), context, paper.adopted(), clock=clock)
        assert (context.said, paper.row.status) == (["jam"], "unwound"), "what was undone is not undone again"


async def _refuses(run: DiaryRun) -> None:
    raise Conflict("no tide today")
