"""The database of a cell is lost, and then its hosts: its servers continue in another cell, from the copies of the region."""

from functools import partial
from typing import Any

from tests.cloud.conftest import Running, Start
from tests.cloud.test_evacuate import cleaned, evacuated, killed
from tests.cloud.test_shelve import guests, until
from tests.helpers.cross_cell_moves import records
from tests.helpers.resized_cloud import host_of, power

from moorage.main.adopt import adopt
from moorage.main.config import Cell, Compute, Hosts, RegionSettings
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, ServerId
from moorage.store.cell import servers as cell_servers
from moorage.store.region import record_copies

CELL = CellId("cell1")
CHANGES: dict[str, Any] = {
    "hosts": Hosts(count=3, physical_networks=(("physnet1",),), beat_s=0.3),
    "cells": tuple(Cell(name) for name in ("cell1", "cell2", "cell3")),
    "compute": Compute(host_silence_s=3.0),
    "region": RegionSettings(durability="process", record_copies_s=0.2),
    "policy": {"compute:servers:resize:cross_cell": "role:admin"},
}
LEFT, THERE = "host1", "host2"


async def copied(running: Running) -> None:
    """The region has what the cell has now."""
    databases = running.cloud.region.databases

    async def both() -> tuple[dict[ServerId, int], dict[ServerId, int]]:
        there = await databases.cells[CELL].read(partial(cell_servers.generations, after="", limit=100))
        return there, await databases.region.read(partial(record_copies.generations, cell=CELL, ids=list(there)))

    await until(both, lambda seen: seen[0] == seen[1])


async def test_servers_of_a_cell_that_is_lost_are_evacuated_to_another(start: Start) -> None:
    async with start(**CHANGES) as running:
        names = ("one", "two")
        servers = [await running.admin.active(each, availability_zone=f"nova:{LEFT}") for each in names]
        reply = await running.admin.compute("PUT", f"/servers/{servers[0]['id']}/tags", {"tags": ["kept"]})
        assert reply.status_code == 200
        reply = await running.admin.compute("POST", f"/servers/{servers[1]['id']}/action", {"os-stop": None})
        assert reply.status_code == 202
        assert (await running.admin.settled(servers[1]["id"]))["status"] == "SHUTOFF"
        await running.idle()
        await copied(running)
        config = running.config
    for each in config.data.glob("cell1.db*"):
        each.unlink()
    said = await adopt(config, ["cell1"])
    assert any("2 servers that its database had lost are recorded again" in each for each in said), said
    assert not any("missing" in each for each in said), said
    async with start(**CHANGES) as running:
        one, two = [await running.admin.settled(each["id"]) for each in servers]
        assert [(each["status"], host_of(each)) for each in (one, two)] == [("ACTIVE", LEFT), ("SHUTOFF", LEFT)]
        assert (one["tags"], one["addresses"]) == (["kept"], servers[0]["addresses"])
        reply = await running.admin.compute("PUT", "/ext/cells/cell1", {"cell": {"disabled": True}})
        assert reply.status_code == 200, reply.text
        dead = await killed(running, LEFT)
        await dead.down()
        for each, status in ((one, "ACTIVE"), (two, "SHUTOFF")):
            there = await evacuated(running, each["id"], status, host=THERE)
            assert (host_of(there), there["addresses"]) == (THERE, each["addresses"])
            assert await records(running, each["id"]) == ("cell2", ["cell1", "cell2"], ["cell1"])
        assert power(running, THERE, one["id"]) is PowerState.RUNNING
        await dead.returns()
        await dead.down(forced=False)
        for each in (one, two):
            await cleaned(running, each["id"], LEFT)
            assert guests(running, each["id"]) == [THERE]
