"""The executor: what it writes to the journal, what it tries again, and what a step waits for."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.helpers import toy_saga
from tests.helpers.diary_saga import ID, KEEL, Ask, Diary, DiaryRun, lay_keel
from tests.helpers.toy_saga import ASKED, TOY, Toy

from moorage.model.errors import BusOut, Conflict, NoCapacity, Unavailable, UnknownOutcome
from moorage.saga import (
    CommitUnknown,
    Killed,
    MemoryJournal,
    RetryLimits,
    Run,
    Saga,
    Unwound,
    decode_lines,
    encode_lines,
    execute,
    first_lines,
    on_some_host,
    step,
)
from moorage.saga.journal import Waiting
from moorage_testing.fault_points import ManualClock


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
    assert await execute(KEEL, ID, Ask(), context, MemoryJournal(first_lines(KEEL)), clock=ManualClock()) == 8
    assert context.said == ["lay", "lay", "lay?", "launch"]


async def test_an_outage_of_a_shared_service_does_not_count_against_patience() -> None:
    """The bus is out for longer than the step has patience; what else is out afterwards has all of it."""
    clock, paper = ManualClock(), MemoryJournal(first_lines(KEEL))
    context = Diary(*[BusOut("waiting for the message bus since noon")] * 40, *[Unavailable("the network is out")] * 2)
    assert await execute(KEEL, ID, Ask(), context, paper, clock=clock) == 8
    assert clock.now > 300.0
    waited = [line.public for line in paper.written() if isinstance(line, Waiting)]
    assert waited == ["waiting for the message bus since noon", "the network is out"]


async def test_an_outage_of_a_shared_service_has_a_limit() -> None:
    clock, context = ManualClock(), Diary(*[BusOut("out")] * 1000)
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
        ManualClock(),
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
        context, clock = Diary(busy), ManualClock()
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

    async def test_a_saga_ends_after_max_attempts(self) -> None:
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

    async def test_an_outage_of_a_shared_service_unwinds_the_saga(self) -> None:
        async def bind(run: toy_saga.ToyRun) -> int:
            raise Unavailable("the network service is out")

        world, saga = Toy(), TOY.but(toy_saga.bind_ports.but(do=bind))
        with pytest.raises(Unwound) as unwound:
            await execute(saga, ID, ASKED, world, MemoryJournal(first_lines(saga), world.transact), clock=ManualClock())
        assert (unwound.value.at, unwound.value.cause.public) == ("bind_ports", "the network service is out")

    async def test_hosts_are_read_from_the_first_result(self) -> None:
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
    async def test_notifications_of_unwinding_and_ending_are_in_their_commits(self) -> None:
        calls: list[tuple[str, ...]] = []
        saga = Saga(
            "t/1",
            Ask,
            *KEEL.parts,
            turned=lambda tx, run, problem, reason: calls.append(("turned", problem.public, reason)),
            ended=lambda tx, run, status: calls.append(("ended", status)),
        )
        paper, context = MemoryJournal(first_lines(saga)), Diary()
        context.problems = [Conflict("no")]
        with pytest.raises(Unwound):
            await execute(saga, ID, Ask(), context, paper)
        await execute(saga, ID, Ask(), Diary(), MemoryJournal(first_lines(saga)))
        assert calls == [("turned", "no", "failed"), ("ended", "unwound"), ("ended", "done")]

    async def test_a_write_of_unknown_outcome_stops_the_executor_and_fails_no_step(self) -> None:
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

    async def test_the_fence_line_is_the_same_for_a_repeated_step(self) -> None:
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
    messages: list[int | None] = []

    @step(no_undo="nothing is made")
    async def look(run: DiaryRun) -> None:
        messages.append(run.get(lay_keel))

    for saga in (Saga("ship/1", Ask, look), Saga("ship/2", Ask, lay_keel, look)):
        await execute(saga, ID, Ask(), Diary(), MemoryJournal(first_lines(saga)))
    assert messages == [None, 7]
