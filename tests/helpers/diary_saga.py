"""A saga of three steps that write what they do into a list."""

import asyncio
from typing import Any

from msgspec import Struct

from moorage.model.errors import Problem
from moorage.model.ids import OperationId
from moorage.saga import (
    Run,
    Saga,
    step,
)

ID = OperationId("op-1")


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


@step(point_of_no_return=True, no_undo="a launched ship is launched")
async def launch(run: DiaryRun) -> int:
    run.context.say(run, "launch")
    return run[lay_keel] + 1


@launch.passed
async def is_afloat(run: DiaryRun) -> bool:
    return "launch" in run.context.said


KEEL = Saga("keel/1", Ask, lay_keel, launch)
