"""Which operations of an older region database may continue, given what the cells have seen since."""

from typing import Any

import msgspec
import pytest

from moorage.main.adopt_operations import contradicted, is_behind
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.model.operation import Operation, OperationStatus
from moorage.model.server import VmState
from moorage.saga.journal import StepResult, encode_lines
from moorage.store.cell.identity import KnownServer
from moorage.store.cell.servers import EPOCHS_PER_OPERATION
from moorage_testing.region_fixture import a_server

DONE, UNDONE = OperationStatus.DONE, OperationStatus.UNDONE


def operation(saga: str, seq: int = 3, epoch: int = 2, host: str = "") -> Operation:
    lines = [StepResult("claim_host", 1, msgspec.Raw(msgspec.json.encode({"name": host})))] if host else []
    return Operation(
        OperationId("o"), saga, ServerId("s"), "p", "u", ConductorId("c"), OperationStatus.OPEN, epoch, 1, 0, 0,
        seq=seq, journal=encode_lines(lines).encode(),
    )  # fmt: skip


def seen(seq: int, epoch: int = 1, *, finished: bool = False, failed: bool = False, **record: Any) -> KnownServer:
    server = msgspec.structs.replace(a_server(), **record) if record else None
    return KnownServer(server, seq * EPOCHS_PER_OPERATION + epoch, finished, failed)


NOTHING = seen(0, 0)
ACTIVE: dict[str, Any] = {"vm_state": VmState.ACTIVE, "host": "host1"}
BUILDING: dict[str, Any] = {"vm_state": VmState.BUILDING, "host": "host1"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (operation("boot/1"), [NOTHING, NOTHING]),
        (operation("boot/1", host="host1"), [NOTHING, seen(3, 2, **BUILDING)]),
        (operation("boot/1", host="host1"), [NOTHING, seen(3, 9, **BUILDING)]),
        (operation("delete/1"), [seen(2, 9, **ACTIVE)]),
        (operation("delete/1"), [NOTHING]),
        (operation("power/1"), [seen(2, 7, **ACTIVE)]),
        (operation("power/1"), [seen(3, 2, **ACTIVE)]),
        (operation("attach_interface/2"), [NOTHING, seen(3, 1, **ACTIVE)]),
    ],
)
def test_an_operation_continues_after_a_restore(asked: Operation, found: list[KnownServer]) -> None:
    assert contradicted(asked, found) == ("", OperationStatus.OPEN)


@pytest.mark.parametrize(
    ("asked", "found", "why", "status"),
    [
        (operation("boot/1"), [NOTHING, seen(3, 2, **ACTIVE)], "is active in its cell", DONE),
        (operation("boot/1", host="host1"), [seen(4, 1, **BUILDING)], "in its cell", DONE),
        (operation("boot/1", host="host2"), [seen(3, 2, **BUILDING)], "being built on host1", UNDONE),
        (operation("boot/1"), [seen(3, 2, **BUILDING)], "being built on host1", UNDONE),
        (operation("boot/1"), [seen(3, 2, deleted_at=1)], "was deleted", UNDONE),
        (operation("delete/1"), [seen(3, 2, deleted_at=1)], "was deleted", DONE),
        (operation("power/1"), [seen(3, 3, **ACTIVE)], "by somebody later", UNDONE),
        (operation("detach_interface/1"), [seen(4, 1, **ACTIVE)], "by somebody later", UNDONE),
        (operation("attach_interface/2"), [seen(3, 2, finished=True, **ACTIVE)], "has ended", DONE),
        (operation("attach_interface/2"), [seen(3, 2, finished=True, failed=True, **ACTIVE)], "has ended", UNDONE),
    ],
)
def test_an_operation_is_ended_after_a_restore(
    asked: Operation, found: list[KnownServer], why: str, status: OperationStatus
) -> None:
    said, ended = contradicted(asked, found)
    assert why in said
    assert ended is status


@pytest.mark.parametrize(
    ("asked", "found", "behind"),
    [
        (operation("boot/1"), [NOTHING, NOTHING], False),
        (operation("boot/1", host="host1"), [NOTHING, seen(3, 2, **BUILDING)], False),
        (operation("boot/1"), [NOTHING, seen(3, 2, **BUILDING)], True),
        (operation("boot/1", host="host1"), [seen(3, 3, **ACTIVE)], True),
        (operation("power/1"), [seen(3, 2, **ACTIVE)], False),
        (operation("power/1"), [seen(4, 1, **ACTIVE), NOTHING], True),
    ],
)
def test_a_cell_with_later_operations_shows_that_the_region_was_restored(
    asked: Operation, found: list[KnownServer], behind: bool
) -> None:
    assert is_behind(asked, found) is behind
