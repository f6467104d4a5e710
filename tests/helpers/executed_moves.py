"""Sagas of moves, executed in a small region."""

from typing import Any

from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, execute, first_lines
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.saga_proof import PROVED_OPERATION

SOURCE, DESTINATION = "host1", "host3"


async def execute_saga(small: SmallRegion, name: str, asked: Any) -> None:
    saga = SAGAS[name]
    await execute(
        saga,
        PROVED_OPERATION,
        asked,
        small.context,
        MemoryJournal(first_lines(saga), small.transact),
        clock=ManualClock(),
    )
