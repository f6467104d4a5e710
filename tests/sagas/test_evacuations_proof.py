"""Evacuations of servers with volumes, with guarantees, on routed networks and that are off: each step fails."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.model.guest import PowerState
from moorage.model.server import VmState
from moorage.operations.all import SAGAS
from moorage.saga import Paper, Unwound, first_lines, tell
from moorage.store.cell import hosts as cell_hosts
from moorage.testing.sagas import PARTS, PROVED_OPERATION, prove
from moorage.testing.small_evacuated import CELL, DEAD, evacuable, evacuating
from moorage.testing.small_moved import recorded
from moorage.testing.small_region import SERVER, SmallRegion
from moorage.testing.stage import HeldClock

WORLDS: dict[str, dict[str, Any]] = {
    "volumes": {"volumes": True, "heard": True},
    "guarantees": {"guarantees": True},
    "off": {"state": VmState.STOPPED, "routed": True},
}
EVACUATE = SAGAS["evacuate/1"]


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def told(small: SmallRegion, asked: Any) -> None:
    paper = Paper(first_lines(EVACUATE), small.transact)
    await tell(EVACUATE, PROVED_OPERATION, asked, small.rooms, paper, clock=HeldClock())


@pytest.mark.matrix
@pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in PARTS if part.name == "failing"])
@pytest.mark.parametrize("kind", ["guarantees", "off"])
async def test_every_kind_of_server_is_evacuated(small: SmallRegion, kind: str, part: Any) -> None:
    world = WORLDS[kind]
    asked = await evacuating(small, **world)
    await prove(EVACUATE, asked, lambda: evacuable(small, **world), part)


async def test_a_host_that_is_heard_switches_the_guest_off_first(small: SmallRegion, monkeypatch: Any) -> None:
    """Whatever an operator said of it: two guests never run."""
    asked, start = await evacuating(small, **WORLDS["volumes"]), small.hosts.start_guest

    async def alone(to: Any, errand: Any, guest: Any) -> Any:
        assert small.hosts.guests[DEAD, SERVER] is PowerState.SHUTDOWN, "two guests"
        return await start(to, errand, guest)

    assert small.hosts.guests[DEAD, SERVER] is PowerState.RUNNING
    monkeypatch.setattr(small.hosts, "start_guest", alone)
    await told(small, asked)
    server = await recorded(small)
    assert server.host != DEAD
    assert small.hosts.guests[str(server.host), SERVER] is PowerState.RUNNING


async def test_an_operator_who_takes_it_back_stops_the_start(small: SmallRegion, monkeypatch: Any) -> None:
    """The proof is of the moment: without one no host starts a guest, and the server is as it was."""
    asked, bind = await evacuating(small), small.network.bind_ports

    async def then_up(*args: Any, **named: Any) -> Any:
        await small.cells[CELL].write(lambda tx: cell_hosts.set_forced_down(tx, DEAD, False, 3))
        return await bind(*args, **named)

    monkeypatch.setattr(small.network, "bind_ports", then_up)
    with pytest.raises(Unwound):
        await told(small, asked)
    server = await recorded(small)
    assert (server.host, server.vm_state) == (DEAD, VmState.ACTIVE)
    assert server.fault is not None
    assert "nothing proves that its guests are off" in server.fault.message
    assert not small.hosts.guests
