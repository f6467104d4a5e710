"""One case of a proof: a world, a journal, faults, and the executors that come one after the other."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from moorage.model.ids import OperationId
from moorage.saga import Fenced, Killed, MemoryJournal, RetryLimits, Saga, Slept, Stuck, Unwound, execute, first_lines
from moorage.saga.memory_journal import JournalRow
from moorage_testing.fault_points import (
    CANCEL_WORD,
    FaultTrigger,
    InstrumentedLog,
    ManualClock,
    PointRecorder,
    StepFault,
    StepMoment,
    instrumented,
)

ContextT = TypeVar("ContextT")
Context_co = TypeVar("Context_co", covariant=True)

SELDOM = RetryLimits(pause_most_s=900.0)
"""A patience of a day is a hundred tries, and not the six thousand that it is outside: what they would find is all the same."""


class CaseWorld(Protocol[Context_co]):
    """A region, and what is in it."""

    @property
    def context(self) -> Context_co: ...

    def held(self) -> Any:
        """All the saga may leave behind, comparable; may be async."""
        ...


@dataclass
class ProofOutcome:
    """How one execution ended."""

    unwound: Unwound | None = None
    killed: bool = False
    fenced: bool = False
    stuck: Stuck | None = None


@dataclass(frozen=True)
class SavedRun:
    """What is durable of an execution at one of its points, and which points it has passed."""

    world: Any
    row: JournalRow
    passed: frozenset[StepMoment]
    point: str


class CaseRun(Generic[ContextT]):
    """One case: a world, a journal, faults, and the executors that come one after the other."""

    def __init__(
        self,
        saga: Saga[Any, ContextT],
        operation: OperationId,
        asked: Struct,
        world: CaseWorld[ContextT],
        faults: Sequence[StepFault],
        repeat: bool,
    ) -> None:
        self.saga, self.operation, self.asked = saga, operation, asked
        self.world, self.repeat = world, repeat
        self.recorder = PointRecorder()
        self.faults = (self.recorder, *faults)
        lines, transact = first_lines(saga), getattr(world, "transact", None)
        self.lease = MemoryJournal(lines) if transact is None else MemoryJournal(lines, transact)
        self.log: InstrumentedLog | None = None

    def cancel(self) -> None:
        self.lease.row.cancel = CANCEL_WORD

    def saved(self, world: Any, point: str) -> SavedRun:
        """`world`: as the world saved itself at this moment."""
        return SavedRun(world, replace(self.lease.row), frozenset(self.recorder.passed), point)

    def go_on_from(self, saved: SavedRun) -> None:
        """As if the executor had died at that point, after which nothing of its process ran."""
        self.lease = MemoryJournal(transact=self.lease.transact, row=replace(saved.row))
        self.recorder.passed = set(saved.passed)

    async def execute(self, door: FaultTrigger | None = None, faults: bool = True) -> ProofOutcome:
        """Until it has ended, or its executor has; where it sleeps, the world wakes it (`woken`), and the next executor goes on."""
        door, lease = door or FaultTrigger(), self.lease
        door.cancel = self.cancel
        while (outcome := await self._execute_once(door, faults)) is None:
            if self.lease is not lease:  # another executor has it, and has seen to its waking
                return ProofOutcome(fenced=True)
            await self.world.woken()  # type: ignore[attr-defined]  # only worlds where something sleeps have it
            self.adopt()
            lease = self.lease
        return outcome

    async def _execute_once(self, door: FaultTrigger, faults: bool) -> ProofOutcome | None:
        """None: it sleeps."""
        self.log = InstrumentedLog(self.lease, door)
        saga = instrumented(self.saga, door, self.faults if faults else (), self.repeat)
        execution = execute(
            saga,
            self.operation,
            self.asked,
            self.world.context,
            self.log,
            clock=ManualClock(),
            limits=SELDOM,
            cancel_hint=door.hint,
            notification_writer=getattr(self.world, "on_commit", None),
        )
        try:
            await execution
        except Unwound as unwound:
            return ProofOutcome(unwound=unwound)
        except Killed:
            return ProofOutcome(killed=True)
        except Slept:
            return None
        except Fenced:
            return ProofOutcome(fenced=True)
        except Stuck as stuck:
            return ProofOutcome(stuck=stuck)
        return ProofOutcome()

    def adopt(self) -> None:
        self.lease = self.lease.adopted()

    async def held(self) -> Any:
        settle = getattr(self.world, "settle", None)
        if settle is not None:
            await settle()
        held = self.world.held()
        return await held if inspect.isawaitable(held) else held
