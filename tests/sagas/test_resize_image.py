"""The temporary image of a move: its steps, in a saga that has nothing else, and how the reconciler removes leftovers."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.helpers.proof_parameters import quick_part

from moorage.model.errors import HostFailed, NoCapacity, Unavailable
from moorage.model.ids import HostId, ImageId
from moorage.operations.boot.boot import Claim
from moorage.operations.resize import transfer_image
from moorage.operations.resize.prepare_resize import ResizeRun, begin_action
from moorage.operations.resize.resize_input import Resize
from moorage.operations.steps import servers as records
from moorage.operations.steps.disk_copy import CopyRun
from moorage.saga import MemoryJournal, Saga, Unwound, execute, first_lines, on_some_host, step
from moorage.sql import Tx
from moorage_testing.proof_parts import ProofPart
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_moved import movable, resizing
from moorage_testing.saga_proof import PROVED_OPERATION, prove

TEMPORARY = ImageId("70a599e0-31e7-49b7-b260-868f441e0099")
PLACES = (("host2", CELLS[1]), ("host3", CELLS[0]), ("host2", CELLS[1]))
"""Of each attempt: another cell, its own, and another again."""


@step(region=True, moves=True, needs=(begin_action,), no_undo="nothing is claimed")
async def claim_host(run: ResizeRun) -> Claim:
    if run.attempt > len(PLACES):
        raise NoCapacity("no host is left")
    name, cell = PLACES[run.attempt - 1]
    return await run.commit(lambda tx: Claim(HostId(name), name, name, cell, "nova", 3))


@step(needs=(claim_host,), no_undo="it is refused, or not")
async def refuse(run: ResizeRun) -> None:
    """The last attempt is the one that goes on."""
    if run.attempt < int(run.input.request_id):
        raise HostFailed(f"{run[claim_host].name} cannot have it", code="no_such_room")


@step(needs=(claim_host,), no_undo="it is shown", point_of_no_return=True)
async def show(run: ResizeRun) -> None:
    await records.change(run.context, CELLS[0], SERVER, records.fence(run), lambda server: server)


def _ended(tx: Tx, run: CopyRun, status: str) -> None:
    records.release(tx, run)


SAGA = Saga(
    "image_of_move/1",
    Resize,
    begin_action,
    on_some_host(
        claim_host,
        transfer_image.hold_image,
        transfer_image.take_snapshot,
        transfer_image.upload_image,
        refuse,
        host=lambda claim: claim.host,
    ),
    show,
    transfer_image.delete_image,
    ended=_ended,
)


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def asked(small: SmallRegion, attempts: int) -> Resize:
    """It goes on at that attempt."""
    return msgspec.structs.replace(await resizing(small), image=TEMPORARY, request_id=str(attempts))


async def world(small: SmallRegion) -> SmallRegion:
    await movable(small)
    small.watches_moves = False
    return small


@quick_part
async def test_the_temporary_image_never_leaks(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, part: ProofPart
) -> None:
    """Another host there is tried, and then one of its own cell."""
    there, here, _ = PLACES
    monkeypatch.setitem(globals(), "PLACES", (there, there, here))
    await prove(SAGA, await asked(small, 1), lambda: world(small), part)


async def calls_of_resize(small: SmallRegion, attempts: int) -> list[str]:
    """What was said to host and image service, in order."""
    wish, calls = await asked(small, attempts), list[str]()
    await world(small)

    def listen(of: Any, name: str) -> None:
        whole = getattr(of, name)

        async def call(*args: Any, **named: Any) -> Any:
            calls.append(name)
            return await whole(*args, **named)

        setattr(of, name, call)

    for of, name in (
        (small.images, "make"),
        (small.images, "delete"),
        (small.hosts, "take_snapshot"),
        (small.hosts, "upload_snapshot"),
        (small.hosts, "drop_snapshot"),
    ):
        listen(of, name)
    await execute(SAGA, PROVED_OPERATION, wish, small.context, MemoryJournal(first_lines(SAGA), small.transact))
    return calls


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        (1, ["make", "take_snapshot", "upload_snapshot", "delete"]),
        (2, ["make", "take_snapshot", "upload_snapshot", "drop_snapshot", "delete"]),
        (3, ["make", "take_snapshot", "upload_snapshot", "drop_snapshot", "make", "delete"]),
    ],
)
async def test_the_disk_is_sent_once_however_many_hosts_are_tried(
    small: SmallRegion, attempts: int, expected: list[str]
) -> None:
    assert await calls_of_resize(small, attempts) == expected
    assert (small.images.whole.get(TEMPORARY), small.hosts.copies) == (None, {})


async def test_a_move_within_its_cell_makes_no_image(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PLACES", PLACES[1:])
    assert await calls_of_resize(small, 1) == []


@pytest.mark.parametrize("where", ["forward", "back"])
async def test_an_unreachable_image_service_does_not_delay_the_deletion_of_the_image(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It is left to the round."""
    wish = await asked(small, 1 if where == "forward" else 9)
    await world(small)

    async def out(image: str) -> bool:
        raise Unavailable("the image service is out")

    monkeypatch.setattr(small.images, "delete", out)
    executing = execute(SAGA, PROVED_OPERATION, wish, small.context, MemoryJournal(first_lines(SAGA), small.transact))
    if where == "forward":
        await executing
    else:
        with pytest.raises(Unwound):
            await executing
    assert small.images.whole == {TEMPORARY: True, "backup-1": True, "backup-2": True}
    assert small.images.properties[TEMPORARY]["moorage_made_for"] == "resize"
    assert small.images.properties[TEMPORARY]["instance_uuid"] == SERVER
