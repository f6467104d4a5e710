"""A delete goes forward whatever its host answers, and shows what it waits for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.cloud.conftest import Running, Shared, Start

from moorage.conductor import worker
from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Compute, Hosts
from moorage.model.errors import Unavailable
from moorage.operations.delete import accept_delete, delete
from moorage.sql import Database, Tx
from moorage.store.region import operations
from moorage_testing.leak_audit import guests_on_disk, nothing_leaked
from moorage_testing.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def test_a_failed_destroy_is_sent_again(running: Running) -> None:
    server = await running.admin.active("hard-to-kill")
    host = server["OS-EXT-SRV-ATTR:host"]
    running.dial(host, destroy_guest=VerbDial(fail_times=2, says="the disk is busy"))
    await running.admin.gone(server["id"])
    listed = [step for at, step in running.told if at == host and step == "destroy_guest"]
    assert len(listed) >= 3, "a busy machine is sent some again"


async def test_the_cause_of_a_waiting_delete_is_shown(running: Running) -> None:
    admin = running.admin
    server = await admin.active("waits")
    host = server["OS-EXT-SRV-ATTR:host"]
    running.dial(host, destroy_guest=VerbDial(fail_times=999, says="the disk is busy"))
    await admin.delete(server["id"])
    async with asyncio.timeout(180):
        waiting = None
        while not waiting:
            (told,) = (await admin.compute("GET", "/ext/operations", server=server["id"], status="open")).json()[
                "operations"
            ]
            waiting = told["waiting"]
            await asyncio.sleep(0.1)
    assert "the disk is busy" in waiting
    shown = await admin.server(server["id"])
    assert shown is not None
    assert shown["OS-EXT-STS:task_state"] == "deleting"
    running.dial(host)
    await admin.absent(server["id"])


async def test_the_next_host_is_tried_after_the_first_destroyed_the_guest(running: Running) -> None:
    """What docs/howto/read-a-stuck-saga.md walks through: never two guests of one server."""
    admin = running.admin
    running.set_faults_everywhere(
        start_guest=VerbDial(fail_times=1, fail_when="after", says="qemu died"),
        destroy_guest=VerbDial(fail_times=999, says="the disk is busy"),
    )
    server = await admin.boot("half-built")
    async with asyncio.timeout(180):
        waiting = None
        while not waiting:
            (told,) = (await admin.compute("GET", "/ext/operations", server=server)).json()["operations"]
            waiting = told["waiting"]
            await asyncio.sleep(0.1)
    assert "the disk is busy" in waiting
    (first,) = guests_on_disk(running.config.data)[server]
    running.set_faults_everywhere()
    found = await admin.settled(server)
    assert found["status"] == "ACTIVE"
    assert found["OS-EXT-SRV-ATTR:host"] != first


async def test_a_silent_host_does_not_hold_up_a_delete(start: Start) -> None:
    """The guest goes when the host is back, before it says anything else (RULES §10), and then what it used (§25)."""
    async with start(compute=Compute(host_silence_s=3.0), hosts=Hosts(count=2, beat_s=0.3)) as running:
        server = await running.admin.active("left-behind")
        host = server["OS-EXT-SRV-ATTR:host"]
        plan = next(plan for plan in running.cloud.plans if plan.host == host)
        await running.cloud.fleet.agents[host].stop()
        await running.admin.delete(server["id"])
        await running.admin.absent(server["id"])
        assert guests_on_disk(running.config.data) == {server["id"]: [host]}
        ports = await running.admin.network("GET", "/ports", device_id=server["id"])
        assert [each["binding:host_id"] for each in ports.json()["ports"]] == [host], (
            "its guest may run, with its address"
        )
        owed = (await running.admin.compute("GET", "/ext/debts")).json()["debts"]
        assert [(each["server"], each["host"], each["kind"]) for each in owed] == [(server["id"], host, "destroy")]
        await running.cloud.fleet.restart(plan)
        await until(lambda: guests_on_disk(running.config.data) == {})
        await nothing_leaked(running.config, running.admin)
        assert (await running.admin.compute("GET", "/ext/debts")).json()["count"] == 0


async def test_a_delete_is_never_undone_by_an_outage(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """204 was answered; its cell's database is then out for longer than the patience: it is stuck, which people see, and goes on."""
    monkeypatch.setattr(delete.find_server, "patience_s", 0.5)
    monkeypatch.setattr(worker, "STUCK_AGAIN_S", 0.5)
    admin = running.admin
    server = (await admin.active("kept-promise"))["id"]
    cells = running.cloud.region.context.cells
    outages = [Outage(monkeypatch, cells[each]) for each in cells.ids]
    begin = accept_delete.begin

    async def then_out(*args: Any, **named: Any) -> None:
        await begin(*args, **named)
        for each in outages:
            each.begin()

    monkeypatch.setattr(accept_delete, "begin", then_out)
    await admin.delete(server)

    async def status() -> set[str]:
        return {row.status for row in await running.cloud.region.databases.region.read(open_operations)}

    async with asyncio.timeout(180):
        while await status() != {"stuck"}:  # noqa: ASYNC110 - the row is the only thing that says it
            await asyncio.sleep(0.05)
    for each in outages:
        each.end()
    await admin.absent(server)


def open_operations(tx: Tx) -> Sequence[Any]:
    return tx.rows(sa.select(operations.operations.c.status).where(operations.operations.c.ended_at.is_(None)))


class Outage:
    """A cell's database does not answer between `begin` and `end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
        self._patch, self._database = monkeypatch, database
        self._real = {name: getattr(database, name) for name in ("read", "write", "read_inline")}

    def begin(self) -> None:
        async def refuse(work: object) -> None:
            raise Unavailable("the cell's database does not answer")

        for name in self._real:
            self._patch.setattr(self._database, name, refuse)

    def end(self) -> None:
        for name, real in self._real.items():
            self._patch.setattr(self._database, name, real)
