"""Databases of cells that are out, read-only or slow while a server goes to another cell and comes back."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_cell_out import Outage, answers
from tests.cloud.test_resize import letter
from tests.cloud.test_shelve import act, guests
from tests.cloud.test_shelve import until as seen
from tests.helpers.cross_cell_moves import CLOUD, boot_in, confirmed, hosts_of, moved_to, records
from tests.helpers.resized_cloud import asked, assert_nothing_to_repair, disk, host_of

from moorage.conductor.reconcilers.hidden_records import HiddenRecords
from moorage.conductor.reconcilers.unconfirmed_resizes import ConfirmResizes
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId, ServerId
from moorage.store.region import hidden_records
from moorage_testing.waiting import until

__all__ = ["CLOUD"]

pytestmark = pytest.mark.asyncio(loop_scope="module")
SLOW_S = 0.1
"""Before and after each call of a slow database."""


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def test_the_left_cell_delays_no_operation(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its database is out while the round confirms: what is left there is never shown, and goes when it is back."""
    region, admin = running.cloud.region, running.admin
    server = await boot_in(running, "cell1")
    id = server["id"]
    await moved_to(running, id, "cell2")
    settings = dataclasses.replace(region.context.settings, resize_confirm_window_s=3600)

    class Later(SystemClock):
        def now(self) -> float:
            return super().now() + 7200.0

    outage = Outage(running, monkeypatch, CellId("cell1"))
    outage.begin()
    done = await ConfirmResizes(dataclasses.replace(region.context, settings=settings), Later()).run()
    assert (done.begun, done.waiting) == ((id,), ("cell1",))
    await seen(lambda: admin.settled(id), lambda now: now["status"] == "ACTIVE")
    await running.wait_until_unlocked(id)
    left = await region.databases.region.read(lambda tx: hidden_records.open_of(tx, [ServerId(id)]))
    assert left == {id: frozenset({"cell1"})}
    outage.end()
    await answers(outage)
    listed = (await admin.compute("GET", "/servers/detail")).json()["servers"]
    assert [(each["id"], each["status"]) for each in listed] == [(id, "ACTIVE")]

    async def after_a_round() -> tuple[str | None, list[str], list[str]]:
        await HiddenRecords(region.context).run()
        return await records(running, id)

    await seen(after_a_round, lambda found: found == ("cell2", ["cell2"], []))
    await until(lambda: guests(running, id) == [hosts_of(running, "cell2")[0]])
    await assert_nothing_to_repair(running)


async def waits_for_a_database(running: Running, server: str) -> None:
    """Until its operation says so."""

    async def why() -> str:
        reply = await running.admin.compute("GET", "/ext/operations", server=server)
        return str(reply.json()["operations"][0]["waiting"])

    await seen(why, lambda waiting: "database" in waiting)


class ReadOnly(Outage):
    """It answers, and takes no writes."""

    def begin(self) -> None:
        async def refuse(work: object) -> None:
            raise Unavailable("the cell's database is read-only")

        self._patch.setattr(self._database, "write", refuse)


@pytest.mark.parametrize("kind", [Outage, ReadOnly], ids=["out", "read-only"])
async def test_an_operation_waits_for_a_database_that_fails_during_a_move(
    running: Running, monkeypatch: pytest.MonkeyPatch, kind: type[Outage]
) -> None:
    """That of the new cell when the guest runs there, and that of the old one when the new guest is gone: nothing is lost and nothing is taken back."""
    server = await boot_in(running, "cell1")
    id, admin, there = server["id"], running.admin, hosts_of(running, "cell2")[0]
    letter(running, server)
    whole = disk(running, server)
    for action, verb, cell in (
        ({"migrate": {"host": there}}, "start_guest", "cell2"),
        ({"revertResize": None}, "destroy_guest", "cell1"),
    ):
        outage, gate = kind(running, monkeypatch, CellId(cell)), running.delay_verb(verb, [there])
        assert (await act(running, id, action)).status_code == 202
        await until(lambda verb=verb: (there, verb) in {(host, _verb_of(step)) for host, step in running.told})
        outage.begin()
        gate.set()
        await waits_for_a_database(running, id)
        outage.end()
        await answers(outage)
        now = await admin.settled(id)
        await running.wait_until_unlocked(id)
        assert now["status"] == ("VERIFY_RESIZE" if verb == "start_guest" else "ACTIVE")
    assert (host_of(now), guests(running, id)) == (host_of(server), [host_of(server)])
    assert disk(running, now) == whole
    assert await records(running, id) == ("cell1", ["cell1"], [])
    await assert_nothing_to_repair(running)


@pytest.mark.parametrize("cell", ["cell1", "cell2"])
async def test_a_database_that_is_slow_delays_a_move_and_its_end(
    running: Running, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    """Of the cell that is left, or of the other one: every call of it takes long, and nothing is taken back."""
    server = await boot_in(running, "cell1")
    id = server["id"]
    guarded: Any = running.cloud.region.databases.cells[CellId(cell)]
    for name in ("read", "write", "read_inline"):
        real = getattr(guarded.inner, name)

        async def late(work: Any, _real: Any = real) -> Any:
            await asyncio.sleep(SLOW_S)
            answer = await _real(work)
            await asyncio.sleep(SLOW_S)
            return answer

        monkeypatch.setattr(guarded.inner, name, late)
    await moved_to(running, id, "cell2")
    back = await asked(running, id, {"revertResize": None}, "ACTIVE")
    assert (host_of(back), guests(running, id)) == (host_of(server), [host_of(server)])
    await moved_to(running, id, "cell2")
    await confirmed(running, id)
    assert await records(running, id) == ("cell2", ["cell2"], [])
    monkeypatch.undo()
    await assert_nothing_to_repair(running)


def _verb_of(step: str) -> str:
    return {"clear_destination": "destroy_guest"}.get(step, step)
