"""A cell whose database is down is a cause of its own: boots go to other cells at once, and a boot without another cell waits."""

import asyncio
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Cell, Hosts
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId
from moorage.operations.cell_databases import CellDatabase
from moorage_testing.waiting import until

CELL1 = CellId("cell1")


class Outage:
    """The database of a cell does not answer between `begin` and `end`; below its circuit."""

    def __init__(self, running: Running, monkeypatch: pytest.MonkeyPatch, cell: CellId = CELL1) -> None:
        guarded = running.cloud.region.databases.cells[cell]
        assert isinstance(guarded, CellDatabase)
        self.guarded, self._patch = guarded, monkeypatch
        self._database: Any = guarded.inner
        self._real = {name: getattr(self._database, name) for name in ("read", "write", "read_inline")}

    def begin(self) -> None:
        async def refuse(work: object) -> None:
            raise Unavailable("the cell1 database does not answer")

        for name in self._real:
            self._patch.setattr(self._database, name, refuse)

    def end(self) -> None:
        for name, real in self._real.items():
            self._patch.setattr(self._database, name, real)


async def answers(outage: Outage) -> None:
    await until(lambda: not outage.guarded.circuits)


async def test_boots_are_placed_in_another_cell_at_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not anybody has noticed yet: one attempt each at most is lost to the cell that is out."""
    admin, outage = running.admin, Outage(running, monkeypatch)
    outage.begin()
    for _ in range(2):
        servers = await asyncio.gather(*(admin.boot(f"s{number}") for number in range(6)))
        found = await asyncio.gather(*(admin.settled(each) for each in servers))
        assert {each["status"] for each in found} == {"ACTIVE"}
        cells = {plan.host: plan.cell for plan in running.cloud.plans}
        assert {cells[each["OS-EXT-SRV-ATTR:host"]] for each in found} == {"cell2"}
    explained = [await admin.compute("GET", f"/ext/servers/{each}/explain") for each in servers]
    assert any("does not answer" in each.text for each in explained)
    seen = (await admin.compute("GET", "/ext/neighbours")).text
    assert "cell1 database" in seen
    outage.end()
    await answers(outage)


async def test_a_boot_without_another_cell_waits_for_its_cell(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(hosts=Hosts(count=2), cells=(Cell("cell1"),)) as running:
        admin, outage = running.admin, Outage(running, monkeypatch)
        outage.begin()
        await until(lambda: outage.guarded.circuits)
        server = await admin.boot("patient")
        async with asyncio.timeout(180):
            waiting = ""
            while not waiting:
                reply = await admin.compute("GET", "/ext/operations", server=server)
                waiting = str(reply.json()["operations"][0]["waiting"] or "")
                await asyncio.sleep(0.1)
        assert waiting == "waiting for the database of cell cell1", "administrators read which"
        outage.end()
        await answers(outage)
        assert (await admin.settled(server))["status"] == "ACTIVE"


async def test_a_boot_that_finds_the_outage_itself_waits(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has noticed yet, and every host is in that cell: no number of hosts tried ends it."""
    async with start(hosts=Hosts(count=2), cells=(Cell("cell1"),)) as running:
        admin, outage = running.admin, Outage(running, monkeypatch)
        outage.begin()
        server = await admin.boot("first")
        await until(lambda: outage.guarded.circuits)
        outage.end()
        await answers(outage)
        found = await admin.settled(server)
        assert found["status"] == "ACTIVE", found.get("fault")


async def test_lists_show_the_regions_data_of_an_unreachable_cell(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Nova's since 2.69: a minimal record with status UNKNOWN; older versions leave it out."""
    admin, outage = running.admin, Outage(running, monkeypatch)
    cells = {plan.host: plan.cell for plan in running.cloud.plans}
    servers = await asyncio.gather(*(admin.active(f"s{number}") for number in range(6)))
    where = {each["id"]: cells[each["OS-EXT-SRV-ATTR:host"]] for each in servers}
    outage.begin()
    listed = (await admin.compute("GET", "/servers/detail")).json()["servers"]
    assert {each["id"]: each["status"] for each in listed} == {
        key: "UNKNOWN" if cell == "cell1" else "ACTIVE" for key, cell in where.items()
    }
    outage.end()
    await answers(outage)


async def test_an_accepted_delete_waits_for_its_cell_and_a_new_one_gets_503(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a server is locked, only its record says: without it nothing is promised, and nothing that was promised is lost."""
    async with start(hosts=Hosts(count=2), cells=(Cell("cell1"),)) as running:
        admin, outage = running.admin, Outage(running, monkeypatch)
        first, second = [(await admin.active(f"s{number}"))["id"] for number in range(2)]
        running.set_faults_everywhere(destroy_guest=VerbDial(delay_s=1.0))
        assert (await admin.compute("DELETE", f"/servers/{first}")).status_code == 204
        outage.begin()
        refused = await admin.compute("DELETE", f"/servers/{second}")
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        waiting = (await admin.compute("GET", "/ext/operations", server=first)).json()["operations"][0]
        assert waiting["status"] == "open"
        outage.end()
        await answers(outage)
        running.set_faults_everywhere()
        await admin.gone(first)
        assert (await admin.compute("GET", f"/servers/{second}")).json()["server"]["status"] == "ACTIVE"
        await admin.gone(second)
