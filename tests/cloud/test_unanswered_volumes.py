"""A host does what it was told to do with a volume, its answer is lost, and it is silent for longer than `host_silence_s`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_network_cuts import SILENT_S, Wires, heard_again
from tests.cloud.test_volumes import attach, attached, becomes, detach, disks, ended, held, status, volume
from tests.cloud.test_volumes_swapped import as_service, moves, swap

from moorage.main.config import Compute, Hosts
from moorage.model.debt import Debt
from moorage.store.region import debts
from moorage_testing.waiting import until


@pytest.fixture
async def cloud(start: Start) -> AsyncIterator[Running]:
    """With two hosts, each of which does for every server."""
    hosts = Hosts(count=2, beat_s=0.3, physical_networks=(("physnet1",),))
    async with start(compute=Compute(host_silence_s=SILENT_S, host_deadline_s=600.0), hosts=hosts) as running:
        yield running


@pytest.fixture
def cuts(cloud: Running, monkeypatch: pytest.MonkeyPatch) -> Wires:
    made = Wires(cloud)
    monkeypatch.setattr(cloud.cloud.region.bus, "publish", made.publish)
    return made


async def told(running: Running, step: str) -> None:
    await until(lambda: any(each == step for _, each in running.told))


async def silent(running: Running, host: str) -> None:
    await until(lambda: running.cloud.region.context.hosts.is_silent(host))


async def owed(running: Running) -> list[Debt]:
    return list(await running.cloud.region.databases.region.read(debts.page))


async def paid(running: Running) -> None:
    async with asyncio.timeout(180):
        while await owed(running):  # noqa: ASYNC110 - the database says it
            await asyncio.sleep(0.05)


async def rounds(running: Running, name: str, count: int = 3) -> None:
    """This reconciler has ended so many rounds that began from now on: what it would do is done."""
    now = running.cloud.region.clock.now()
    await until(lambda: sum(run.began_at > now for run in running.cloud.rounds.runs[name]) >= count)


async def attach_unanswered(running: Running, cuts: Wires, server: dict[str, Any], disk: str) -> None:
    """The host plugs it in, its answer is lost, and the attach ends in Error."""
    gate = running.delay_verb("attach_volume")
    attaching = asyncio.create_task(attach(running, server["id"], disk))
    await told(running, "plug")
    cuts.cut.add(server["OS-EXT-SRV-ATTR:host"])
    gate.set()
    assert (await ended(running, server["id"], "attach_volume"))["message"] == "Error"
    await attaching


async def test_a_volume_that_a_silent_host_may_have_plugged_in_is_nobody_elses(cloud: Running, cuts: Wires) -> None:
    one, disk = await cloud.admin.active("one"), await volume(cloud)
    host = one["OS-EXT-SRV-ATTR:host"]
    await attach_unanswered(cloud, cuts, one, disk)
    assert disks(cloud, one) == [disk]
    assert await attached(cloud, one["id"]) == []
    (debt,) = await owed(cloud)
    assert (debt.host, debt.thing, debt.server) == (host, disk, one["id"])
    two = await cloud.admin.active("two")
    assert two["OS-EXT-SRV-ATTR:host"] != host
    refused = await attach(cloud, two["id"], disk)
    assert (refused.status_code, "already attached" in refused.text) == (400, True), refused.text
    other = await volume(cloud)
    nothing_new = await attach(cloud, one["id"], other)
    assert (nothing_new.status_code, "waits for its host" in nothing_new.text) == (409, True), nothing_new.text
    await heard_again(cloud, cuts)
    await paid(cloud)
    assert disks(cloud, one) == []
    assert await status(cloud, disk) == "available"
    assert (await attach(cloud, two["id"], disk)).status_code == 202
    await becomes(cloud, disk, "in-use")
    assert (await attach(cloud, one["id"], other)).status_code == 202
    await becomes(cloud, other, "in-use")


async def test_a_delete_ends_what_a_host_owes(cloud: Running, cuts: Wires) -> None:
    one, disk = await cloud.admin.active("one"), await volume(cloud)
    await attach_unanswered(cloud, cuts, one, disk)
    await heard_again(cloud, cuts)
    await cloud.admin.gone(one["id"])
    await paid(cloud)
    await becomes(cloud, disk, "available")
    assert await held(cloud) == []


async def test_a_detach_waits_for_its_host_and_goes_forward(cloud: Running, cuts: Wires) -> None:
    one = await cloud.admin.active("one")
    host, disk = one["OS-EXT-SRV-ATTR:host"], await volume(cloud)
    await attach(cloud, one["id"], disk)
    await ended(cloud, one["id"], "attach_volume")
    gate = cloud.delay_verb("detach_volume")
    asyncio.get_running_loop().create_task(detach(cloud, one["id"], disk))
    await told(cloud, "unplug")
    cuts.cut.add(host)
    gate.set()
    await silent(cloud, host)
    await rounds(cloud, "host_debts")
    assert (await status(cloud, disk)) == "detaching"
    await heard_again(cloud, cuts)
    action = await ended(cloud, one["id"], "detach_volume")
    assert action["message"] is None
    assert await attached(cloud, one["id"]) == []
    assert disks(cloud, one) == []
    assert await status(cloud, disk) == "available"


async def test_a_swap_waits_for_its_host_and_goes_forward(cloud: Running, cuts: Wires) -> None:
    await as_service(cloud)
    one = await cloud.admin.active("one")
    host, old = one["OS-EXT-SRV-ATTR:host"], await volume(cloud)
    await attach(cloud, one["id"], old)
    await ended(cloud, one["id"], "attach_volume")
    new = await volume(cloud)
    await moves(cloud, old)
    gate = cloud.delay_verb("swap_volume")
    assert (await swap(cloud, one["id"], old, new)).status_code == 202
    await told(cloud, "swap")
    cuts.cut.add(host)
    gate.set()
    await silent(cloud, host)
    await rounds(cloud, "host_debts")
    assert {each["status"] for each in await held(cloud)} == {"attached"}
    await heard_again(cloud, cuts)
    action = await ended(cloud, one["id"], "swap_volume")
    assert action["message"] is None
    assert disks(cloud, one) == [new]
    assert [each["volumeId"] for each in await attached(cloud, one["id"])] == [new]
    assert (await status(cloud, old), await status(cloud, new)) == ("available", "in-use")
