"""Executes a saga: forward, on another host, and back.

**Why it is hard.**  A process may die between any two instructions, and no call to the outside can be part of the
transaction that writes the journal.  So an effect outside may begin only after a commit that says it may (an *intent*),
and an intent without a result must be taken as perhaps done.  If every intent and every result were a commit, a boot would
need fifteen of them; it has three.

**How.**  One intent covers all the steps up to the next place where a commit is made anyway: a region step, whose own
transaction carries the results before it and the intent after it, or a point of no return.  Results wait in memory
(`_pending`) for the next commit.  If the process dies first, they are lost, and the steps are done again with
`run.unsure`.  That is sound because a do may run twice, and an undo is safe though its do never ran; `prove` checks it.
The process that wrote an intent knows which steps it began, and undoes only those.  A process that adopts the saga does
not know, and undoes all that the intent covers.  So a Failed or Unwinding line carries the list of what is open.  It is
the intent of the undoing and is written before the first undo, because an undo sends a newer fencing token or a
tombstone, after which the do of the same attempt would be refused.

**Another host.**  When a host-local step fails, or any other step of the group is refused, the host-local steps are
undone, newest first and the failed one too, and the first step chooses again.  When a service that all hosts share is out,
the saga unwinds instead: the next host would fare no better.  The error that people see is that of the last step that
failed, not the "no capacity" of the search after it.

**When not to unwind.**  (1) The asyncio task is cancelled: the process stops, and the saga stays where it is.  (2)
`Fenced`: another process executes it.  (3) `CommitUnknown`: a write of the journal has no known outcome; whoever leases
the operation reads it again and executes it with `adopted=True`.  (4) After the point of no return: each step is tried
until it succeeds, and when its patience is over the operation is stuck, which people see.  (5) `Doubtful`, or `Overtaken`
at the point of no return: a store knows more of the server than this journal, so what an undo would take back may be all
that is left.  An adopter that finds a point of no return covered but without a result calls `passed`; a saga without `passed` goes forward and ignores a cancel.

**What we tried.**  Intent per step: seven more commits.  The fence before the work: the work's answer (which host?) is
one of the lines, so it would be a second UPDATE; last in the transaction it guards as well.  A number of lines as the
cell's fence: it moves with retries and adoptions, so `run.line` is computed from the definition of the saga instead.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NoReturn, TypedDict, TypeVar, Unpack

from msgspec import Raw, Struct

from moorage.model.errors import Doubtful, HostFailed, HostUnanswered, NoCapacity, Overtaken, Problem, Unavailable
from moorage.model.ids import OperationId
from moorage.saga.cancellation import CancelListener, Interrupted, Sleep, Unwind
from moorage.saga.definition import CommitListener, Saga
from moorage.saga.journal import (
    BUG,
    FIRST_EPOCH,
    Cause,
    CommitUnknown,
    Ended,
    Failed,
    Fenced,
    Intent,
    Log,
    Slept,
    Stalled,
    StepResult,
    Stuck,
    Undone,
    Unwinding,
    Unwound,
    Waiting,
    as_problem,
)
from moorage.saga.journal_writer import JournalWriter
from moorage.saga.retry import LIMITS, WALL, CancelHint, RetryLimits, SagaClock
from moorage.saga.retry_loop import RetryLoop
from moorage.saga.state import ReplayedState, line_of
from moorage.saga.step import Phase, Run, Step

T = TypeVar("T")
InputT = TypeVar("InputT", bound=Struct)
ContextT = TypeVar("ContextT")
logger = logging.getLogger("moorage.saga")


class ExecuteOptions(TypedDict, total=False):
    """Options of one execution."""

    clock: SagaClock
    limits: RetryLimits
    cancel_hint: CancelHint | None
    """Set when the row's cancel column may have been written."""
    adopted: bool
    """An earlier execution in this epoch ended in CommitUnknown.  A later epoch, or a longer journal, shows it by itself."""
    behind: bool
    """The stores know more of this operation than its journal: it goes forward or is stuck, and takes nothing back."""
    max_attempts: int | None
    """Limit of hosts that are tried; None: as the saga says."""
    notification_writer: CommitListener | None
    """Called in every commit."""


async def execute(
    saga: Saga[InputT, ContextT],
    operation: OperationId,
    input: InputT,
    context: ContextT,
    log: Log,
    **options: Unpack[ExecuteOptions],
) -> Any:
    """Execute a saga from the present end of its journal; returns the last step's result.

    Raises TypeError for an option that is none.

    Raises Unwound when it failed or was cancelled and everything is undone, Stuck when a step that must succeed ran out of
    time, Slept when it sleeps until it is woken, Fenced when another process executes it now, CommitUnknown when nobody knows
    whether a commit was made.
    """
    if unknown := options.keys() - ExecuteOptions.__annotations__.keys():
        raise TypeError(f"execute has no option {', '.join(sorted(unknown))}")
    executor = _Executor(saga, operation, input, context, log, options)
    notification_writer = options.get("notification_writer")
    if notification_writer is not None:
        executor.journal_writer.on_commit = lambda tx, lines: notification_writer(
            tx, saga, executor.latest_run(), lines
        )
    adopted = options.get("adopted", False) or log.epoch > FIRST_EPOCH or len(log.journal) > 1
    return await executor.run(options.get("cancel_hint"), adopted)


class _Executor:
    def __init__(
        self,
        saga: Saga[Any, Any],
        operation: OperationId,
        input: Any,
        context: Any,
        log: Log,
        options: ExecuteOptions,
    ) -> None:
        self.saga, self.operation, self.input, self.context = saga, operation, input, context
        self.log, self.cache = log, dict[str, Any]()
        self.clock, self.limits = options.get("clock", WALL), options.get("limits", LIMITS)
        self.max_attempts = options.get("max_attempts") or (saga.group.max_attempts if saga.group else 0)
        self.state = ReplayedState(saga, log.journal)
        self.journal_writer = JournalWriter(log, self.state)
        self.unsure: set[str] = set()
        self.cancellation = CancelListener(log, self.journal_writer)
        self.retry = RetryLoop(self.state, self.journal_writer, self.cancellation, self.clock, self.limits, operation)
        self.decoded: dict[tuple[str, int], tuple[Any, Any]] = {}
        self.behind = options.get("behind", False)
        self.past = saga.forward_only
        """The point of no return lies behind for certain; only forward."""
        self.cancellation.ignored = self.past or self.behind
        self.maybe_past = False
        """An earlier executor may have passed the point of no return: what is out before it is waited for, too."""
        self.cancelled_by: str | None = None
        """The cancel reason that made the saga unwind."""

    # ----------------------------------------------------------------------------------------------- forward

    async def run(self, hint: CancelHint | None, adopted: bool) -> Any:
        state = self.state
        if state.ended is None and state.turn is None:
            watcher = (
                asyncio.create_task(self.cancellation.watch(hint, asyncio.current_task())) if hint is not None else None
            )
            try:
                await self._forward(adopted)
            except Unwind as unwind:
                await self._turn(unwind)
            finally:
                if watcher is not None:
                    watcher.cancel()
        if state.turn is None:
            return self.result_of(self.saga.steps[-1], state.held_attempt())[1]
        if state.ended is None:
            await self._unwind()
        raise Unwound(state.turn.cause.step, state.turn.cause.problem(), state.turn.reason)

    async def _forward(self, adopted: bool) -> None:
        steps, group_at = self.saga.steps, self.saga.group_at
        at = await self._resume() if adopted else 0
        while at < len(steps):
            if at in group_at and at == group_at.start and (self.state.over or self.state.attempt == 0):
                await self._leave_host()
                self.state.next_attempt()
            at = at + 1 if self.state.is_done(steps[at].name) else await self._take(at)
        work = self._bound(self.saga.ended, "done")
        await self.journal_writer.append([Ended("done")], work, status="done")

    async def _resume(self) -> int:
        """An adopter does not know what was begun; only `passed` can say that a point of no return lies behind."""
        self.unsure = self.state.assume_begun()
        for at, step in enumerate(self.saga.steps):
            if not step.point_of_no_return:
                continue
            if self.state.is_done(step.name):
                self.cancellation.ignored = self.past = True
            elif step.name in self.unsure and step.passed_when is None:
                self.cancellation.ignored = self.maybe_past = True
            elif step.name in self.unsure and await self._has_passed(step):
                self.cancellation.ignored = self.past = True
                return at
        return 0

    async def _has_passed(self, step: Step[Any, Any, Any]) -> bool:
        passed = step.passed_when
        assert passed is not None
        before = self.cancellation.ignored
        self.cancellation.ignored = True  # until it is known whether a cancel comes too late
        try:
            return await self.retry.execute(
                step,
                "do",
                step.patience_s,
                lambda unsure: passed(self._run(step, "do", self.state.attempt_of(step.name), True)),
                past=self.past,
            )
        except Problem as problem:
            await self._stuck(step.name, "do", problem)
        finally:
            self.cancellation.ignored = before

    async def _take(self, at: int) -> int:
        """Do step `at`; the index of the next step."""
        step, state = self.saga.steps[at], self.state
        self.cancellation.check(step.name)
        if not step.region and not state.is_covered(step.name):
            await self.journal_writer.append([Intent(self.saga.covered_from(at), state.attempt)])
            self.cancellation.check(step.name)
        attempt = state.attempt_of(step.name)
        if not step.region:
            state.open[step.name] = attempt
        self.cancellation.ignored = self.cancellation.ignored or step.point_of_no_return
        unsure_at_first = step.name in self.unsure
        try:
            result = await self.retry.execute(
                step,
                "do",
                step.patience_s,
                lambda unsure: self.retry.listen(step.do(self._run(step, "do", attempt, unsure or unsure_at_first))),
                past=self.past,
            )
        except Interrupted:
            raise Unwind(step.name, self.cancellation.problem(), "cancel") from None
        except Sleep as sleep:
            await self._sleep(step, sleep)
        except Problem as problem:
            forward_only = self.past or step.point_of_no_return or isinstance(problem, Unavailable)
            if not (state.is_done(step.name) and forward_only):
                return await self._failed(at, problem)
            logger.info("%s: %s is committed, so this is passed over: %s", self.operation, step.name, problem)
            self.past = self.past or step.point_of_no_return
            return at + 1
        if not state.is_done(step.name):
            self.journal_writer.note(StepResult(step.name, attempt, Raw(step.encode(result))))
        self.past = self.past or step.point_of_no_return
        return at + 1

    async def _failed(self, at: int, problem: Problem) -> int:
        """Try another host, or unwind, or (past the point of no return) get stuck."""
        step, state = self.saga.steps[at], self.state
        logger.info("%s: %s failed: %s %s", self.operation, step.name, problem, problem.private)
        overtaken = step.point_of_no_return and isinstance(problem, Overtaken)
        contradicted = self.behind or overtaken or isinstance(problem, Doubtful)
        no_way_back = step.point_of_no_return or self.maybe_past
        if self.past or contradicted or (no_way_back and isinstance(problem, Unavailable)):
            await self._stuck(step.name, "do", problem)
        if self.maybe_past and isinstance(problem, HostFailed) and not step.point_of_no_return:
            maybe_done = HostFailed(problem.public, private=problem.private, code=HostUnanswered.code)
            raise Unwind(step.name, maybe_done.naming(problem.named))
        if at not in self.saga.group_at:
            raise Unwind(step.name, problem)
        if at == self.saga.group_at.start:
            if isinstance(problem, NoCapacity) and state.recent_causes:
                last = state.recent_causes[-1]
                blamed = last.problem()
                blamed.private = f"{blamed.private}\nand then no other host: {problem.private or problem.public}"
                raise Unwind(last.step, blamed)
            raise Unwind(step.name, problem)
        elsewhere = step.host_local or not isinstance(problem, Unavailable) or isinstance(problem, HostUnanswered)
        if not elsewhere or problem.final or problem.code == BUG or self._was_last(problem):
            raise Unwind(step.name, problem)
        await self.journal_writer.append([Failed(Cause.of(problem, step.name, state.attempt), state.left_open())])
        return self.saga.group_at.start

    async def _sleep(self, step: Step[Any, Any, Any], sleep: Sleep) -> NoReturn:
        """A cancel that came before the commit keeps it awake."""
        try:
            line = Waiting(step.name, self.state.attempt, sleep.public, sleep.named, Raw(sleep.asleep))
            await self.journal_writer.append([line], sleep.fall_asleep)
        except Problem as problem:
            raise Unwind(step.name, problem) from None
        self.cancellation.check(step.name)
        raise Slept(sleep.public)

    def _was_last(self, problem: Problem) -> bool:
        """Attempts that no host is to blame for do not count: each goes on without something, so they end by themselves."""
        return not problem.without and self.state.attempt - len(self.state.excused()) >= self.max_attempts

    async def _leave_host(self) -> None:
        """Between two attempts: only what is host-local; what moves is replaced by its next do."""
        for begun in self.state.left_open():
            step = self.saga.steps[self.saga.at[begun.step]]
            if step.host_local and step.undo_with is not None and self.state.over:
                try:
                    await self._undo(step, begun.attempt)
                except Problem:
                    last = self.state.causes[-1]
                    raise Unwind(last.step, last.problem()) from None
                await self.journal_writer.flush("running")

    # ---------------------------------------------------------------------------------------------- unwinding

    async def _turn(self, unwind: Unwind) -> None:
        cause = Cause.of(unwind.problem, unwind.step, self.state.attempt)
        self.cancelled_by = self.journal_writer.cancel if unwind.reason == "cancel" else None
        line = Unwinding(unwind.reason, cause, self.cancelled_by, self.state.attempt, self.state.left_open())
        work = self._bound(self.saga.turned, unwind.problem, unwind.reason)
        try:
            await self.journal_writer.append([line], work, status="cleaning")
        except (Fenced, CommitUnknown):
            raise
        except Exception as failure:  # noqa: BLE001  the saga's own `turned` failed: the saga can neither go on nor unwind
            await self._stuck(unwind.step, "turn", as_problem(unwind.step, failure))

    async def _unwind(self) -> None:
        left = self.state.left_open()
        for at, begun in enumerate(left, start=1):
            step = self.saga.steps[self.saga.at[begun.step]]
            if step.undo_with is not None:
                try:
                    await self._undo(step, begun.attempt)
                except Problem as problem:
                    await self._stuck(step.name, "undo", problem)
                if at < len(left):
                    await self.journal_writer.flush("cleaning")
        await self.journal_writer.append([Ended("unwound")], self._bound(self.saga.ended, "unwound"), status="unwound")

    async def _undo(self, step: Step[Any, Any, Any], attempt: int) -> None:
        undo = step.undo_with
        assert undo is not None
        patience_s = self.limits.undo_patience_s
        await self.retry.execute(
            step, "undo", patience_s, lambda _: undo(self._run(step, "undo", attempt, True)), past=self.past
        )
        if step.name in self.state.open:
            self.journal_writer.note(Undone(step.name, attempt))

    async def _stuck(self, step: str, phase: str, problem: Problem) -> NoReturn:
        logger.error("%s: stuck at %s: %s %s", self.operation, step, problem, problem.private)
        await self.journal_writer.append(
            [Stalled(step, phase, Cause.of(problem, step, self.state.attempt))], status="stuck"
        )
        raise Stuck(step, problem)

    # --------------------------------------------------------------------------------------------- what a step sees

    def result_of(self, step: Step[Any, Any, Any], view: int) -> tuple[bool, Any]:
        value = self.state.results.get((step.name, view if self.saga.in_group(step.name) else 0))
        if value is None:
            return False, None
        cached = self.decoded.get((step.name, view))
        if cached is None or cached[0] is not value:  # an attempt that is done again writes anew
            cached = self.decoded[step.name, view] = (value, step.decode(value))
        return True, cached[1]

    def _run(self, step: Step[Any, Any, Any] | None, phase: Phase, attempt: int, unsure: bool) -> Run[Any, Any]:
        state, name = self.state, "" if step is None else step.name
        at = self.saga.at.get(name, 0)
        held = attempt if at in self.saga.group_at and name else state.held_attempt()
        return Run(
            input=self.input,
            context=self.context,
            operation=self.operation,
            epoch=self.log.epoch,
            attempt=attempt,
            tried=state.tried(),
            blamed=state.tried(blamed=True),
            causes=tuple(state.causes),
            causes_since_sleep=state.recent_causes,
            unsure=unsure,
            cancelled=state.turn.cancelled if state.turn else self.cancelled_by,
            turned=state.turn.cause if state.turn else None,
            phase=phase,
            past=self.past,
            line=self._line(at, phase, attempt),
            cache=self.cache,
            _step=name,
            _view=held,
            _executor=self,
            _journal_writer=self.journal_writer,
        )

    def _line(self, at: int, phase: Phase, attempt: int) -> int:
        lap = attempt or (self.state.attempt if phase == "undo" or at >= self.saga.group_at.stop else 0)
        return line_of(self.saga, at, phase, lap)

    def latest_run(self) -> Run[Any, Any]:
        """The saga as it stands, for the listener of its commits; its attempt is the last one that had a host."""
        return self._run(None, "do", self.state.held_attempt(), False)

    def _bound(self, hook: Callable[..., object] | None, *facts: Any) -> Callable[[Any], object] | None:
        if hook is None:
            return None
        return lambda tx: hook(tx, self._run(None, "do", 0, False), *facts)
