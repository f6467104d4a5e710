"""After the 200 of an administrator's change, no boot violates it, though no provider cache has read it yet (RULES §21)."""

from typing import Any

import pytest
from tests.cloud.conftest import Running, Start

from moorage.main.config import Hosts
from moorage.placement import inventory
from moorage.store.cell import hosts as cell_hosts
from moorage.store.region.placement import provider_statements
from moorage.store.region.placement.tables import stamp

TURNS = 2
ROUNDS_MAX = 50


async def service_of(running: Running, host: str) -> str:
    (service,) = (await running.admin.compute("GET", "/os-services", host=host)).json()["services"]
    return str(service["id"])


async def change(running: Running, host: str, body: dict[str, Any]) -> None:
    reply = await running.admin.compute("PUT", f"/os-services/{await service_of(running, host)}", body)
    assert reply.status_code == 200, reply.text


def keep_pictures_old(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not caught up yet: only who asks for it reads what is new; and the cell is heard by nobody."""
    monkeypatch.setattr(running.cloud.region.engine, "_every_s", 3600.0)
    for cell in running.cloud.region.cells:

        async def nothing() -> None: ...

        monkeypatch.setattr(cell, "flush", nothing)


@pytest.mark.parametrize(
    ("off", "on"),
    [({"status": "disabled"}, {"status": "enabled"}), ({"forced_down": True}, {"forced_down": False})],
    ids=["disabled", "forced down"],
)
async def test_after_the_answer_no_boot_is_placed_on_the_host(
    start: Start, monkeypatch: pytest.MonkeyPatch, off: dict[str, Any], on: dict[str, Any]
) -> None:
    async with start(hosts=Hosts(count=2, physical_networks=(("physnet1",),))) as running:
        admin = running.admin
        keep_pictures_old(running, monkeypatch)
        for turn in range(TURNS):
            fuller = (await admin.active(f"makes one fuller {turn}"))["OS-EXT-SRV-ATTR:host"]
            (host,) = {"host1", "host2"} - {fuller}  # the next one would go there
            await change(running, host, off)
            found = await admin.active(f"turn-{turn}")
            assert found["OS-EXT-SRV-ATTR:host"] == fuller
            await change(running, host, on)
            back = await admin.active(f"back-{turn}", availability_zone=f"nova:{host}")
            assert back["OS-EXT-SRV-ATTR:host"] == host, "what was taken back is over"


async def test_host_changes_in_a_cell_reach_the_region(start: Start) -> None:
    """After an upgrade, or where a request failed between the two: the region follows the cell, both ways."""
    async with start() as running:
        region = running.cloud.region
        conductor, name = region.cells[0], running.cloud.plans[0].host
        cell, placement = region.databases.cells[conductor.cell], region.databases.region

        async def follows(expected: set[str]) -> None:
            """Who changed the host meanwhile (a report) is not written over: the next round follows."""
            for _ in range(ROUNDS_MAX):
                await conductor.flush()
                if region.engine.forced_down(conductor.cell) == expected:
                    return
            raise AssertionError("the region does not follow")

        await cell.write(lambda tx: cell_hosts.set_forced_down(tx, name, True, 1))
        await follows({name})
        world = region.engine.world()
        assert not world.alive[world.slots_by_name[name]]
        await cell.write(lambda tx: cell_hosts.set_forced_down(tx, name, False, 2))
        await follows(set())
        seen = await placement.read(lambda tx: provider_statements.hosts_forced_down(tx, [name]))
        provider, version, noted = seen[name]
        assert not noted
        assert not await placement.write(
            lambda tx: provider_statements.force_down(tx, provider, True, stamp(tx), version - 1)
        )

        async def takes_nobody(expected: bool) -> None:
            for _ in range(ROUNDS_MAX):
                await conductor.flush()
                world = region.engine.world()
                if bool(world.enabled[world.slots_by_name[name]]) is not expected:
                    return
            raise AssertionError("the region does not follow")

        await cell.write(lambda tx: cell_hosts.set_disabled(tx, name, True, "dust", 3))
        await takes_nobody(True)
        _, version, noted = (await placement.read(lambda tx: provider_statements.hosts_disabled(tx, [name])))[name]
        assert noted
        assert not await placement.write(lambda tx: inventory.set_enabled(tx, provider, True, version - 1))
        await cell.write(lambda tx: cell_hosts.set_disabled(tx, name, False, None, 4))
        await takes_nobody(False)


async def test_a_repeated_delete_has_no_further_effect(start: Start) -> None:
    """While the first is under way: 204 again, and no second operation."""
    async with start() as running:
        admin = running.admin
        server = (await admin.active("twice"))["id"]
        destroyed = running.delay_verb("destroy_guest")
        for _ in range(3):
            assert (await admin.compute("DELETE", f"/servers/{server}")).status_code == 204

        async def deletes() -> list[dict[str, Any]]:
            found = (await admin.compute("GET", "/ext/operations", server=server)).json()["operations"]
            return [each for each in found if each["name"] == "delete"]

        assert len(await deletes()) == 1
        destroyed.set()
        await admin.absent(server)
        assert len(await deletes()) == 1
