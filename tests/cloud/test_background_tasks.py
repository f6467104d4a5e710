"""Background tasks continue: after a failed round there is a next one, and old data are removed."""

import pytest
from tests.cloud.conftest import Start

from moorage.agent import reporter
from moorage.conductor import cell_conductor
from moorage.operations import gate_watch
from moorage.store.cell import hosts as cell_hosts
from moorage_testing.waiting import until


async def test_a_failed_round_is_followed_by_another(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_conductor, "WATCH_S", 0.01)
    monkeypatch.setattr(gate_watch, "POLL_EVERY_S", 0.01)
    async with start() as running:
        region = running.cloud.region
        watched = looked = 0

        def broken_watch() -> None:
            nonlocal watched
            watched += 1
            raise KeyError("of a host that nobody foresaw")

        async def broken_look() -> None:
            nonlocal looked
            looked += 1
            raise ValueError("written by a newer release")

        monkeypatch.setattr(region.cells[0], "check_bus_silence", broken_watch)
        monkeypatch.setattr(region.gates, "poll", broken_look)
        await until(lambda: watched > 2)
        await until(lambda: looked > 2)


async def test_a_host_removes_tombstones_of_deleted_servers(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell says which: the deleted one, and not the one that lives."""
    async with start() as running:
        admin = running.admin
        gone, stays = await admin.boot("gone"), await admin.boot("stays")
        for server in (gone, stays):
            await admin.settled(server)
        await admin.gone(gone)
        agents = running.cloud.fleet.agents.values()
        remembered = [agent for agent in agents if gone in agent._journal.turns()]
        assert remembered
        monkeypatch.setattr(reporter, "TOMBSTONES_MAX", 0)
        for agent in agents:
            await agent._reporter._ask_what_to_forget()
        await until(lambda: not any(gone in agent._journal.turns() for agent in agents))
        assert any(stays in agent._journal.turns() for agent in agents)


async def test_forced_down_hosts_are_known_without_reading_every_host(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as running:
        region = running.cloud.region
        conductor, name = region.cells[0], running.cloud.plans[0].host
        database = region.databases.cells[conductor.cell]
        await database.write(lambda tx: cell_hosts.set_forced_down(tx, name, True, 1))

        def listed(tx: object) -> None:
            raise AssertionError("every record was read")

        monkeypatch.setattr(cell_hosts, "listed", listed)
        await conductor.flush()
        assert conductor._forced_down == {name}
