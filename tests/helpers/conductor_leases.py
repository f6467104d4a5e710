"""Conductors with leases in the database of a small region, and operations that they execute."""

import asyncio
from typing import TypeVar

import msgspec

from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Operation
from moorage.operations.accept import accepted
from moorage.operations.context import SagaContext
from moorage.saga import Run, Saga, step
from moorage.store.region import operations
from moorage_testing.region_fixture import SmallRegion, a_server

T = TypeVar("T")
ME, OTHER = ConductorId("me"), ConductorId("other")
FIRST = OperationId("first")


class Ask(msgspec.Struct, frozen=True):
    name: str = "x"


class SteppedClock:
    """A clock in the test's hands; who sleeps is put off, and counted."""

    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


def carry_saga(gate: asyncio.Event, seen: list[bool]) -> Saga[Ask, SagaContext]:
    @step(no_undo="nothing is done")
    async def carry(run: Run[Ask, SagaContext]) -> None:
        seen.append(run.unsure)
        await gate.wait()

    return Saga("toy/1", Ask, carry)


async def write(small: SmallRegion, saga: Saga[Ask, SagaContext], owner: ConductorId, *ids: str) -> None:
    new = [
        accepted(saga, OperationId(each), a_server(), Ask(), owner=owner, user="u", seq=1, request_id="r")
        for each in ids
    ]
    await small.region.write(lambda tx: operations.accept(tx, new))


async def row(small: SmallRegion, operation: OperationId = FIRST) -> Operation:
    found = await small.region.read(lambda tx: operations.get(tx, operation))
    assert found is not None
    return found
