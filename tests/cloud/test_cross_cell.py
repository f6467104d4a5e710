"""Resize and cold migration to another cell in a whole cloud of three cells: confirmed, reverted, deleted, and back again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_evacuate import cleaned, evacuated, force
from tests.cloud.test_resize import filled, letter
from tests.cloud.test_shelve import act, actions, guests, images, ports
from tests.cloud.test_shelve import until as seen
from tests.cloud.test_volume_backed import backed
from tests.cloud.test_volumes import attach, attached, becomes, detach, disks, volume
from tests.helpers.cross_cell_moves import (
    CELLS,
    CLOUD,
    boot_in,
    cell_of,
    confirmed,
    hosts_of,
    moved_to,
    records,
    watched,
)
from tests.helpers.resized_cloud import asked, assert_nothing_to_repair, disk, host_of, migrations, power, quota

from moorage.conductor.reconcilers.hidden_records import HiddenRecords
from moorage.drivers.fault_injection import VerbDial
from moorage.model.guest import PowerState

__all__ = ["CLOUD"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def test_a_server_moves_between_two_cells_three_times(running: Running) -> None:
    """With its disk, its ports, its tags and its whole history; nothing is left where it was, so it may come back."""
    before = await quota(running)
    server = await boot_in(running, "cell1")
    id = server["id"]
    reply = await running.admin.compute("PUT", f"/servers/{id}/tags", {"tags": ["kept", "too"]})
    assert reply.status_code == 200
    letter(running, server)
    whole, kept = disk(running, server), await images(running)
    await _around(running, server, whole)
    assert [each for each, _ in await actions(running, id)] == ["confirmResize", "migrate"] * 3 + ["create"]
    assert await images(running) == kept, "the temporary images are gone"
    assert await quota(running) == (before[0] + 1, before[1] + 128)
    await assert_nothing_to_repair(running)


async def _around(running: Running, server: dict[str, Any], whole: bytes) -> None:
    id = server["id"]
    for number, cell in enumerate(("cell2", "cell3", "cell1")):
        left = await running.admin.settled(id)
        there = await moved_to(running, id, cell)
        assert (there["addresses"], there["tags"]) == (server["addresses"], ["kept", "too"])
        assert disk(running, there) == whole
        assert {each["binding:host_id"] for each in await ports(running, id)} == {host_of(there)}
        assert power(running, host_of(left), id) is PowerState.SHUTDOWN
        assert power(running, host_of(there), id) is PowerState.RUNNING
        assert await records(running, id) == (cell, sorted({cell_of(running, left), cell}), [cell_of(running, left)])
        listed = (await running.admin.compute("GET", "/servers/detail")).json()["servers"]
        assert [(each["id"], each["status"]) for each in listed] == [(id, "VERIFY_RESIZE")]
        there = await confirmed(running, id)
        assert guests(running, id) == [host_of(there)]
        assert await records(running, id) == (cell, [cell], [])
        assert [each["status"] for each in await migrations(running, id)] == ["confirmed"] * (number + 1)


async def test_a_server_is_resized_to_another_cell_and_confirmed(running: Running) -> None:
    """Its own cell is disabled, so it leaves it; with its new size, and its tagged card."""
    admin, before = running.admin, await quota(running)
    server = await boot_in(running, "cell1")
    id, wanted = server["id"], await admin.id_of("flavor", "m1.tiny")
    letter(running, server)
    whole = disk(running, server)
    for disabled in (True, False):
        reply = await admin.compute("PUT", "/ext/cells/cell1", {"cell": {"disabled": disabled}})
        assert reply.status_code == 200, reply.text
        if disabled:
            async with watched(running, id, sizes=2):
                there = await asked(running, id, {"resize": {"flavorRef": wanted}}, "VERIFY_RESIZE")
    assert cell_of(running, there) != "cell1"
    async with watched(running, id):
        now = await confirmed(running, id)
    assert (now["flavor"]["original_name"], disk(running, now)) == ("m1.tiny", whole)
    assert guests(running, id) == [host_of(there)]
    assert await records(running, id) == (cell_of(running, there), [cell_of(running, there)], [])
    assert await quota(running) == (before[0] + 1, before[1] + 512)
    await assert_nothing_to_repair(running)


@pytest.mark.parametrize("verb", ["take_snapshot", "upload_snapshot", "start_guest"])
async def test_a_failed_move_restores_the_server(running: Running, verb: str) -> None:
    """On its old host, running, with one record, and no image is left."""
    server = await boot_in(running, "cell1")
    id, kept = server["id"], await images(running)
    letter(running, server)
    whole = disk(running, server)
    running.set_faults_everywhere(**{verb: VerbDial(fail_chance=1.0)})
    now = await asked(running, id, {"migrate": {"host": hosts_of(running, "cell2")[0]}}, "ACTIVE")
    running.set_faults_everywhere()
    assert (host_of(now), guests(running, id)) == (host_of(server), [host_of(server)])
    assert power(running, host_of(server), id) is PowerState.RUNNING
    assert disk(running, now) == whole
    assert await records(running, id) == ("cell1", ["cell1"], [])
    assert (await images(running), (await actions(running, id))[0]) == (kept, ("migrate", "Error"))
    assert {each["binding:host_id"] for each in await ports(running, id)} == {host_of(server)}
    await assert_nothing_to_repair(running)


async def test_attachments_changed_before_a_revert_are_kept(running: Running) -> None:
    server = await boot_in(running, "cell1")
    id, went, came = server["id"], await volume(running), await volume(running)
    assert (await attach(running, id, went)).status_code == 202
    await becomes(running, went, "in-use")
    letter(running, server)
    whole, wanted = disk(running, server), await running.admin.id_of("flavor", "m1.micro")
    there = await moved_to(running, id, "cell2")
    letter(running, there, "what is written there is gone\n")
    assert (await attach(running, id, came)).status_code == 202
    await becomes(running, came, "in-use")
    assert (await detach(running, id, went)).status_code == 202
    await becomes(running, went, "available")
    changed = await running.admin.compute("PUT", f"/servers/{id}", {"server": {"name": "renamed"}})
    assert changed.status_code == 200, changed.text
    async with watched(running, id):
        back = await asked(running, id, {"revertResize": None}, "ACTIVE")
    assert (host_of(back), back["name"]) == (host_of(server), "renamed")
    assert disk(running, back) == whole
    assert [each["volumeId"] for each in await attached(running, id)] == disks(running, back) == [came]
    assert guests(running, id) == [host_of(server)]
    assert await records(running, id) == ("cell1", ["cell1"], [])
    assert [each["status"] for each in await migrations(running, id)] == ["reverted"]
    done = [each for each, message in await actions(running, id) if message is None]
    assert done == ["revertResize", "detach_volume", "attach_volume", "migrate", "attach_volume", "create"]
    there = await asked(running, id, {"resize": {"flavorRef": wanted}}, "VERIFY_RESIZE")  # its own cell is preferred
    assert cell_of(running, there) == "cell1"
    await asked(running, id, {"revertResize": None}, "ACTIVE")
    await assert_nothing_to_repair(running)


async def test_a_stopped_volume_backed_server_stays_stopped(running: Running) -> None:
    server = await backed(running, "volumes")
    id, here = server["id"], cell_of(running, server)
    await asked(running, id, {"os-stop": None}, "SHUTOFF")
    other = next(cell for cell in CELLS if cell != here)
    there = await moved_to(running, id, other)
    rows = [each["volumeId"] for each in await attached(running, id)]
    assert disks(running, there) == rows
    assert power(running, host_of(there), id) is PowerState.SHUTDOWN
    back = await asked(running, id, {"revertResize": None}, "SHUTOFF")
    assert (host_of(back), disks(running, back)) == (host_of(server), rows)
    await moved_to(running, id, other)
    now = await confirmed(running, id, "SHUTOFF")
    assert (cell_of(running, now), disks(running, now)) == (other, rows)
    assert power(running, host_of(now), id) is PowerState.SHUTDOWN
    await assert_nothing_to_repair(running)


async def test_a_delete_confirms_the_move_first(running: Running) -> None:
    before = await quota(running)
    server = await boot_in(running, "cell1")
    id = server["id"]
    await moved_to(running, id, "cell3")
    await running.admin.gone(id)
    await running.wait_until_unlocked(id)
    assert guests(running, id) == []
    assert (await records(running, id))[2] == []
    assert [each["status"] for each in await migrations(running, id)] == ["confirmed"]
    assert await quota(running) == before
    await assert_nothing_to_repair(running)


async def test_a_revert_needs_no_free_capacity(running: Running) -> None:
    """What it had in its old cell is the move's until it is confirmed (N16)."""
    admin = running.admin
    server = await boot_in(running, "cell1")
    id, here = server["id"], host_of(server)
    await moved_to(running, id, "cell2")
    consumer = await filled(running, here)
    assert host_of(await asked(running, id, {"revertResize": None}, "ACTIVE")) == here
    gone = await admin.http.delete(f"{admin.config.api.placement.url}/placement/allocations/{consumer}")
    assert gone.status_code == 204
    await assert_nothing_to_repair(running)


async def test_without_permission_a_server_stays_in_its_cell(running: Running) -> None:
    server = await boot_in(running, "cell1")
    async with running.person("demo", "demo") as demo:
        mine = await demo.active("mine")
        wanted = await demo.id_of("flavor", "m1.micro")
        reply = await act(running, mine["id"], {"resize": {"flavorRef": wanted}}, by=demo)
        assert reply.status_code == 202, reply.text
        there = await running.admin.settled(mine["id"])
        assert there["status"] == "VERIFY_RESIZE"
        assert cell_of(running, there) == cell_of(running, await running.admin.settled(mine["id"]))
        assert (await records(running, mine["id"]))[2] == []
        await running.wait_until_unlocked(mine["id"])
        await demo.gone(mine["id"])
    assert host_of(server) == host_of(await running.admin.settled(server["id"]))


async def test_an_offloaded_server_is_unshelved_in_another_cell(running: Running) -> None:
    """With its disk, its ports and its history; it may come back the same way."""
    server = await boot_in(running, "cell1")
    id, kept = server["id"], await images(running)
    letter(running, server)
    whole = disk(running, server)
    for cell in ("cell2", "cell1"):
        await asked(running, id, {"shelve": None}, "SHELVED_OFFLOADED")
        async with watched(running, id):
            there = await asked(running, id, {"unshelve": {"host": hosts_of(running, cell)[0]}}, "ACTIVE")
        assert (cell_of(running, there), guests(running, id)) == (cell, [host_of(there)])
        assert (disk(running, there), there["addresses"]) == (whole, server["addresses"])
        assert {each["binding:host_id"] for each in await ports(running, id)} == {host_of(there)}
        assert await records(running, id) == (cell, [cell], [])
    listed = [each for each, _ in await actions(running, id)]
    assert listed == ["unshelve", "shelve", "unshelve", "shelve", "create"]
    assert await images(running) == kept
    await assert_nothing_to_repair(running)


async def test_a_server_is_live_migrated_between_cells_that_are_linked(running: Running) -> None:
    server = await boot_in(running, "cell1")
    id = server["id"]
    letter(running, server)
    whole = disk(running, server)

    def to(cell: str) -> dict[str, Any]:
        return {"os-migrateLive": {"host": hosts_of(running, cell)[0], "block_migration": "auto"}}

    refused = await act(running, id, to("cell3"))
    assert refused.status_code == 400
    assert "its cell is not linked with the server's" in refused.json()["badRequest"]["message"]
    async with watched(running, id):
        there = await asked(running, id, to("cell2"), "ACTIVE")
    assert (cell_of(running, there), guests(running, id)) == ("cell2", [host_of(there)])
    assert (disk(running, there), there["addresses"]) == (whole, server["addresses"])
    assert {each["binding:host_id"] for each in await ports(running, id)} == {host_of(there)}
    assert await records(running, id) == ("cell2", ["cell2"], [])
    assert [each["status"] for each in await migrations(running, id)] == ["completed"]
    await assert_nothing_to_repair(running)


async def comes_home(running: Running, host: str) -> None:
    """Its agent is started anew, and asks at once what belongs there."""
    await running.cloud.fleet.agents[host].stop()
    plan = next(plan for plan in running.cloud.plans if plan.host == host)
    await running.cloud.fleet.restart(plan)
    await force(running, host, forced=False)


async def test_a_server_is_evacuated_to_another_cell_and_its_old_host_returns(running: Running) -> None:
    """The old record tells that host to destroy its guest, and goes when that is done."""
    server = await boot_in(running, "cell1")
    id, left = server["id"], host_of(server)
    await force(running, left, forced=True)
    async with watched(running, id):
        there = await evacuated(running, id, host=hosts_of(running, "cell3")[0])
    assert (cell_of(running, there), there["addresses"]) == ("cell3", server["addresses"])
    assert power(running, host_of(there), id) is PowerState.RUNNING
    assert await records(running, id) == ("cell3", ["cell1", "cell3"], ["cell1"])
    await comes_home(running, left)
    await cleaned(running, id, left)
    region = running.cloud.region

    async def after_a_round() -> tuple[str | None, list[str], list[str]]:
        await HiddenRecords(region.context).run()
        return await records(running, id)

    await seen(after_a_round, lambda found: found == ("cell3", ["cell3"], []))
    assert guests(running, id) == [host_of(there)]
    await assert_nothing_to_repair(running)
