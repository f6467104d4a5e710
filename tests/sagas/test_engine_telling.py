"""The telling itself: what is written when, what is tried again, what a cancel does, and when a saga stays where it is."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Struct
from tests.helpers import toy_saga
from tests.helpers.toy_saga import ASKED, TOY, Toy

from moorage.model.errors import BusOut, Conflict, NoCapacity, Problem, Unavailable, UnknownOutcome
from moorage.model.ids import OperationId
from moorage.saga import (
    CommitUnknown,
    Fenced,
    Killed,
    MemoryJournal,
    RetryLimits,
    Run,
    Saga,
    Stuck,
    Unwound,
    decode_lines,
    encode_lines,
    execute,
    first_lines,
    on_some_host,
    step,
)
from moorage.saga.journal import Waiting
from moorage_testing.fault_points import HeldClock

ID = OperationId("op-1")
DEADLINE_S = 120.0


class Ask(Struct, frozen=True):
    name: str = "x"


class Diary:
    """Rooms that write down what was asked of them, and answer as told."""

    def __init__(self, *problems: Problem) -> None:
        self.said: list[str] = []
        self.problems = list(problems)
        self.waits = asyncio.Event()
        self.reached = asyncio.Event()

    def say(self, run: Run[Any, Any], what: str) -> None:
        self.said.append(f"{what}{'?' if run.unsure and run.phase == 'do' else ''}")
        if self.problems and run.phase == "do":
            raise self.problems.pop(0)


DiaryRun = Run[Ask, Diary]


@step(patience_s=60)
async def lay_keel(run: DiaryRun) -> int:
    run.context.say(run, "lay")
    return 7


@lay_keel.undo
async def lift_keel(run: DiaryRun) -> None:
    run.context.say(run, "lift")


@step
async def wait_for_tide(run: DiaryRun) -> None:
    run.context.say(run, "wait")
    run.context.reached.set()
    await run.context.waits.wait()


@wait_for_tide.undo
async def ebb(run: DiaryRun) -> None:
    run.context.say(run, "ebb")


@step(point_of_no_return=True, no_undo="a launched ship is launched")
async def launch(run: DiaryRun) -> int:
    run.context.say(run, "launch")
    return run[lay_keel] + 1


@launch.passed
async def is_afloat(run: DiaryRun) -> bool:
    return "launch" in run.context.said


KEEL = Saga("keel/1", Ask, lay_keel, launch)
TIDE = Saga("tide/1", Ask, lay_keel, wait_for_tide, launch)


async def test_a_saga_like_boot_needs_two_commits_after_its_acceptance() -> None:
    short = Saga("toy/2", toy_saga.Asked, *TOY.parts[:3])
    world = Toy()
    paper = MemoryJournal(first_lines(short), world.transact)
    assert await execute(short, ID, ASKED, world, paper) == "birch"
    assert paper.row.appends == 2, "claimed, done"
    kinds = [line.__struct_config__.tag for line in paper.written()]
    assert kinds == ["intent", "result", "result", "intent", "result", "result", "result", "result", "result", "ended"]
    assert paper.row.status == "done"


async def test_unavailable_is_tried_again_and_only_an_unknown_outcome_makes_unsure() -> None:
    context = Diary(Unavailable("out"), UnknownOutcome("late"))
    assert await execute(KEEL, ID, Ask(), context, MemoryJournal(first_lines(KEEL)), clock=HeldClock()) == 8
    assert context.said == ["lay", "lay", "lay?", "launch"]


async def test_an_outage_of_a_shared_service_does_not_count_against_patience() -> None:
    """The bus is out for longer than the step has patience; what else is out afterwards has all of it."""
    clock, paper = HeldClock(), MemoryJournal(first_lines(KEEL))
    context = Diary(*[BusOut("waiting for the message bus since noon")] * 40, *[Unavailable("the network is out")] * 2)
    assert await execute(KEEL, ID, Ask(), context, paper, clock=clock) == 8
    assert clock.now > 300.0
    waited = [line.public for line in paper.written() if isinstance(line, Waiting)]
    assert waited == ["waiting for the message bus since noon", "the network is out"]


async def test_an_outage_of_a_shared_service_has_a_limit() -> None:
    clock, context = HeldClock(), Diary(*[BusOut("out")] * 1000)
    with pytest.raises(Unwound):
        await execute(
            KEEL,
            ID,
            Ask(),
            context,
            MemoryJournal(first_lines(KEEL)),
            clock=clock,
            limits=RetryLimits(excused_most_s=600.0),
        )
    assert 600.0 < clock.now < 700.0


async def test_a_step_waits_until_its_patience_ends_and_shows_it() -> None:
    context, clock, paper = (
        Diary(*[Unavailable("the network is out")] * 1000),
        HeldClock(),
        MemoryJournal(first_lines(KEEL)),
    )
    with pytest.raises(Unwound) as unwound:
        await execute(KEEL, ID, Ask(), context, paper, clock=clock)
    assert unwound.value.at == "lay_keel"
    assert isinstance(unwound.value.cause, Unavailable)
    assert 40 < clock.now <= 60
    assert '"type":"waiting"' in paper.row.text
    assert context.said[-1] == "lift"


async def test_retry_after_of_a_service_is_respected() -> None:
    """And no longer than a limit of ours, whatever it says."""
    limits = RetryLimits(requested_pause_most_s=6.0)
    for said_s, least_s, most_s in ((4.0, 4.0, 4.8), (9999.0, 6.0, 7.2)):
        busy = Unavailable("the network is busy")
        busy.retry_after_s = said_s
        context, clock = Diary(busy), HeldClock()
        await execute(KEEL, ID, Ask(), context, MemoryJournal(first_lines(KEEL)), clock=clock, limits=limits)
        assert least_s <= clock.now <= most_s


async def test_a_do_that_hangs_has_an_unknown_outcome() -> None:
    @step(patience_s=0.05, no_undo="it is a wait")
    async def hang(run: DiaryRun) -> None:
        await asyncio.Event().wait()

    saga = Saga("hang/1", Ask, hang)
    with pytest.raises(Unwound) as unwound:
        await execute(saga, ID, Ask(), Diary(), MemoryJournal(first_lines(saga)), limits=RetryLimits(try_least_s=0.01))
    assert isinstance(unwound.value.cause, UnknownOutcome)


async def test_an_unexpected_exception_unwinds_the_saga_and_its_traceback_is_private() -> None:
    @step(no_undo="it does nothing")
    async def stumble(run: DiaryRun) -> None:
        raise KeyError("leg")

    saga, context = Saga("walk/1", Ask, lay_keel, stumble), Diary()
    with pytest.raises(Unwound) as unwound:
        await execute(saga, ID, Ask(), context, MemoryJournal(first_lines(saga)))
    assert "leg" not in unwound.value.cause.public
    assert "KeyError: 'leg'" in unwound.value.cause.private
    assert context.said == ["lay", "lift"]


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
        telling = asyncio.create_task(execute(TIDE, ID, Ask(), context, paper, cancel_hint=hint))
        await asyncio.wait_for(context.reached.wait(), DEADLINE_S)
        paper.row.cancel = "deleted"
        hint.set()
        with pytest.raises(Unwound) as unwound:
            await asyncio.wait_for(telling, DEADLINE_S)
        assert unwound.value.reason == "cancel"
        assert context.said == ["lay", "wait", "ebb", "lift"]
        assert '"cancelled":"deleted"' in paper.row.text

    async def test_a_false_hint_changes_nothing(self) -> None:
        context, paper, hint = Diary(), Asked(first_lines(TIDE)), asyncio.Event()
        telling = asyncio.create_task(execute(TIDE, ID, Ask(), context, paper, cancel_hint=hint))
        await asyncio.wait_for(context.reached.wait(), DEADLINE_S)
        hint.set()
        await asyncio.wait_for(paper.asked.wait(), DEADLINE_S)
        context.waits.set()
        assert await telling == 8

    async def test_shutting_down_leaves_the_story_where_it_is(self) -> None:
        context, paper = Diary(), MemoryJournal(first_lines(TIDE))
        telling = asyncio.create_task(execute(TIDE, ID, Ask(), context, paper, cancel_hint=asyncio.Event()))
        await asyncio.wait_for(context.reached.wait(), DEADLINE_S)
        before = paper.row.text
        telling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await telling
        assert (paper.row.text, context.said) == (before, ["lay", "wait"])
        context.waits.set()
        assert await execute(TIDE, ID, Ask(), context, paper.adopted()) == 8
        assert context.said == ["lay", "wait", "lay?", "wait?", "launch?"]

    async def test_a_cancel_that_a_commit_tells_of_ends_the_waiting(self) -> None:
        """Its hint was lost, or came while the line was written."""
        paper, context = MemoryJournal(first_lines(TIDE)), Diary(*[Unavailable("out") for _ in range(20)])
        clock = HeldClock()
        slept, sleep = 0, clock.sleep

        async def until_it_is_shown(seconds: float) -> None:
            nonlocal slept
            slept += 1
            if slept == 1:
                paper.row.cancel = "deleted"
            await sleep(seconds)

        clock.sleep = until_it_is_shown  # type: ignore[method-assign]
        telling = execute(TIDE, ID, Ask(), context, paper, cancel_hint=asyncio.Event(), clock=clock)
        with pytest.raises(Unwound) as unwound:
            await asyncio.wait_for(telling, DEADLINE_S)
        assert unwound.value.reason == "cancel"
        assert len(context.problems) > 10, "tried again long after the line that told of the cancel"

    async def test_nobody_is_interrupted_who_looks_whether_it_is_too_late(self) -> None:
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
        clock = HeldClock()
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

    async def test_a_cancel_before_the_first_step_does_nothing_at_all(self) -> None:
        paper, context = MemoryJournal(first_lines(KEEL)), Diary()
        paper.row.cancel = "deleted"
        with pytest.raises(Unwound):
            await execute(KEEL, ID, Ask(), context, MemoryJournal(row=paper.row))
        assert context.said == []


class TestAdoption:
    async def test_a_point_of_no_return_that_was_passed_is_not_gone_back_from(self) -> None:
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

    async def test_one_that_was_not_passed_can_still_be_cancelled(self) -> None:
        context = Diary(Conflict("no"))
        paper = MemoryJournal(first_lines(KEEL), tears_after=0)
        with pytest.raises(Killed):
            await execute(KEEL, ID, Ask(), context, paper)
        paper.row.cancel = "deleted"
        with pytest.raises(Unwound):
            await execute(KEEL, ID, Ask(), context, paper.adopted())
        assert context.said == ["lay", "lift"]

    async def test_the_old_teller_is_fenced(self) -> None:
        paper, context = MemoryJournal(first_lines(KEEL)), Diary()
        paper.adopted()
        with pytest.raises(Fenced):
            await execute(KEEL, ID, Ask(), context, paper)

    async def test_an_ended_story_answers_again(self) -> None:
        paper, context = MemoryJournal(first_lines(KEEL)), Diary()
        assert await execute(KEEL, ID, Ask(), context, paper) == 8
        assert await execute(KEEL, ID, Ask(), context, paper.adopted()) == 8
        assert context.said == ["lay", "launch"]


async def _launch_without_looking_back(run: DiaryRun) -> int:
    run.context.said.append("relaunch")
    return 8


class TestStuck:
    async def test_an_undo_that_never_works_is_stuck_and_goes_on_later(self) -> None:
        broken = True

        async def jammed(run: DiaryRun) -> None:
            run.context.say(run, "jam")
            if broken:
                raise OSError("jammed")

        saga = TIDE.but(lay_keel.but(undo=jammed))
        context, paper, clock = Diary(), MemoryJournal(first_lines(saga)), HeldClock()
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


class TestHosts:
    async def test_the_last_failing_step_is_blamed_not_the_search_after_it(self) -> None:
        async def start(run: toy_saga.ToyRun) -> None:
            raise Conflict(f"{run[toy_saga.claim_host]} has no memory")

        world, saga = Toy(), TOY.but(toy_saga.start_guest.but(do=start))
        with pytest.raises(Unwound) as unwound:
            await execute(saga, ID, ASKED, world, MemoryJournal(first_lines(saga), world.transact), max_attempts=9)
        assert unwound.value.at == "start_guest"
        assert unwound.value.cause.public == "delta has no memory"
        assert "no host can take this server" in unwound.value.cause.private

    async def test_it_ends_after_max_attempts(self) -> None:
        tried: list[tuple[str, ...]] = []

        async def start(run: toy_saga.ToyRun) -> None:
            tried.append((*run.tried, f"{run.attempt}"))
            raise Conflict("no")

        world, saga = Toy(), TOY.but(toy_saga.start_guest.but(do=start))
        with pytest.raises(Unwound):
            await execute(saga, ID, ASKED, world, MemoryJournal(first_lines(saga), world.transact), max_attempts=2)
        assert tried == [("1",), ("birch", "2")]

    async def test_no_capacity_at_the_first_attempt_is_the_cause(self) -> None:
        world = Toy()
        world.region.tables["free"] = dict.fromkeys(toy_saga.HOSTS, 0)
        with pytest.raises(Unwound) as unwound:
            await execute(TOY, ID, ASKED, world, MemoryJournal(first_lines(TOY), world.transact))
        assert isinstance(unwound.value.cause, NoCapacity)
        assert unwound.value.at == "claim_host"

    async def test_an_outage_of_what_all_hosts_share_turns_the_story(self) -> None:
        async def bind(run: toy_saga.ToyRun) -> int:
            raise Unavailable("the network service is out")

        world, saga = Toy(), TOY.but(toy_saga.bind_ports.but(do=bind))
        with pytest.raises(Unwound) as unwound:
            await execute(saga, ID, ASKED, world, MemoryJournal(first_lines(saga), world.transact), clock=HeldClock())
        assert (unwound.value.at, unwound.value.cause.public) == ("bind_ports", "the network service is out")

    async def test_hosts_are_read_off_the_first_result(self) -> None:
        seen: list[tuple[str, ...]] = []

        @step(region=True, no_undo="nothing is held")
        async def choose(run: DiaryRun) -> dict[str, str]:
            seen.append(run.tried)
            return await run.commit(lambda tx: {"host": f"h{run.attempt}"})

        @step(host_local=True, no_undo="nothing is kept")
        async def fail_once(run: DiaryRun) -> None:
            if run.attempt == 1:
                raise Conflict("no")

        saga = Saga("h/1", Ask, on_some_host(choose, fail_once, host=lambda result: str(result["host"])))
        await execute(saga, ID, Ask(), Diary(), MemoryJournal(first_lines(saga)))
        assert seen == [(), ("h1",)]


class TestWriting:
    async def test_turned_and_ended_are_told_in_the_commits_they_belong_to(self) -> None:
        told: list[tuple[str, ...]] = []
        saga = Saga(
            "t/1",
            Ask,
            *KEEL.parts,
            turned=lambda tx, run, problem, reason: told.append(("turned", problem.public, reason)),
            ended=lambda tx, run, status: told.append(("ended", status)),
        )
        paper, context = MemoryJournal(first_lines(saga)), Diary()
        context.problems = [Conflict("no")]
        with pytest.raises(Unwound):
            await execute(saga, ID, Ask(), context, paper)
        await execute(saga, ID, Ask(), Diary(), MemoryJournal(first_lines(saga)))
        assert told == [("turned", "no", "failed"), ("ended", "unwound"), ("ended", "done")]

    async def test_a_write_without_an_answer_tears_the_telling_and_is_never_a_failure_of_the_step(self) -> None:
        class Cut(MemoryJournal):
            async def append(self, *args: Any, **options: Any) -> Any:
                appended = await super().append(*args, **options)
                if appended.refused:
                    return appended
                raise Unavailable("the connection is gone")

        world = Toy()
        paper = Cut(first_lines(TOY), world.transact)
        with pytest.raises(CommitUnknown):
            await execute(TOY, ID, ASKED, world, paper)
        assert world.region.tables["claims"], "it was committed all the same"
        again = MemoryJournal(transact=world.transact, row=paper.row)
        assert await execute(TOY, ID, ASKED, world, again, adopted=True) == "birch"

    async def test_a_refusal_writes_nothing(self) -> None:
        world = Toy()
        paper = MemoryJournal(first_lines(TOY), world.transact)
        await execute(TOY, ID, ASKED, world, paper)
        assert "amber" not in paper.row.text

    async def test_the_line_is_the_same_for_whoever_does_the_step_again(self) -> None:
        lines: dict[str, set[int]] = {}

        def watched(saga: Saga[Any, Any]) -> Saga[Any, Any]:
            def watch(name: str, act: Any) -> Any:
                async def acts(run: Run[Any, Any]) -> Any:
                    lines.setdefault(f"{name} {run.phase} {run.attempt}", set()).add(run.line)
                    return await act(run)

                return acts

            return saga.but(*[each.but(do=watch(each.name, each.do)) for each in saga.steps])

        for tears_after in range(3):
            world = Toy()
            paper = MemoryJournal(first_lines(TOY), world.transact, tears_after=tears_after)
            with pytest.raises(Killed):
                await execute(watched(TOY), ID, ASKED, world, paper)
            await execute(watched(TOY), ID, ASKED, world, paper.adopted())
        assert all(len(each) == 1 for each in lines.values())
        assert len({min(each) for each in lines.values()}) == len(lines)

    def test_lines_of_the_previous_release_are_read(self) -> None:
        """Golden: a field may be added with a default, never renamed (RULES §19)."""
        text = (
            '{"type":"intent","steps":["make_ports"]}\n'
            '{"type":"result","step":"claim","attempt":1,"value":{"host":"h2"},"from_the_future":1}\n'
            '{"type":"failed","cause":{"step":"start","attempt":1,"kind":"Conflict","code":"conflict","public":"no"},'
            '"open":[{"step":"start","attempt":1}]}\n'
            '{"type":"undone","step":"start","attempt":1}\n'
            '{"type":"waiting","step":"bind","attempt":2,"public":"out"}\n'
            '{"type":"turn","reason":"cancel","cause":{"kind":"OverQuota"},"cancelled":"deleted","attempt":2}\n'
            '{"type":"stalled","step":"bind"}\n'
            '{"type":"ended","status":"unwound"}\n'
        )
        lines: Sequence[Any] = decode_lines(text)
        assert len(lines) == 8
        assert type(lines[5].cause.problem()).__name__ == "OverQuota"
        assert decode_lines(encode_lines(lines)) == lines


async def test_versions_share_a_step_that_reads_a_field_of_only_one_of_them() -> None:
    heard: list[int | None] = []

    @step(no_undo="nothing is made")
    async def look(run: DiaryRun) -> None:
        heard.append(run.get(lay_keel))

    for saga in (Saga("ship/1", Ask, look), Saga("ship/2", Ask, lay_keel, look)):
        await execute(saga, ID, Ask(), Diary(), MemoryJournal(first_lines(saga)))
    assert heard == [None, 7]
