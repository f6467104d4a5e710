"""Counters of classes of resources follow the whole life of servers: no round has to correct them."""

from typing import Any

from tests.cloud.conftest import Running, Start
from tests.cloud.test_shelve import act, until
from tests.helpers.resized_cloud import asked, resized

from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.main.config import Compute, Hosts
from moorage.store.region import class_usage

DISK = "class:DISK_GB"
SMALL, LARGE, LARGER, NOWHERE = 3, 10, 12, 1_000_000
"""GiB of disk of the flavors."""


async def flavors(running: Running) -> None:
    for name, gib in (("small", SMALL), ("large", LARGE), ("larger", LARGER), ("nowhere", NOWHERE)):
        flavor = {"name": name, "vcpus": 1, "ram": 64, "disk": gib}
        (await running.admin.compute("POST", "/flavors", {"flavor": flavor})).raise_for_status()


async def counter(running: Running) -> int:
    """The counter, once nothing is under way; a round would find nothing to correct."""
    await running.idle()
    context = running.cloud.region.context
    assert (await QuotaUsage(context, mends=False).run()).mended == ()
    project = running.admin.project
    return (await context.region.read(lambda tx: class_usage.usage(tx, project)))[DISK]


async def begin_to_count(running: Running) -> None:
    project = running.admin.project
    await running.cloud.region.databases.region.write(lambda tx: class_usage.begin(tx, project, {DISK: 0}))


async def test_resized_shelved_and_failed(start: Start) -> None:
    async with start(hosts=Hosts(count=2), compute=Compute(allow_resize_to_same_host=True)) as running:
        await flavors(running)
        await begin_to_count(running)
        id = (await running.admin.active("one", flavor="small"))["id"]
        assert await counter(running) == SMALL
        await resized(running, id, "large")
        assert await counter(running) == LARGE, "it may become the larger one again, or stay it"
        await asked(running, id, {"revertResize": None}, "ACTIVE")
        assert await counter(running) == SMALL
        await asked(running, id, {"resize": {"flavorRef": await running.admin.id_of("flavor", "nowhere")}}, "ACTIVE")
        assert await counter(running) == SMALL, "no host had room"
        await resized(running, id, "large")
        await asked(running, id, {"confirmResize": None}, "ACTIVE", 204)
        assert await counter(running) == LARGE
        await asked(running, id, {"shelve": None}, "SHELVED_OFFLOADED")
        assert await counter(running) == LARGE
        await asked(running, id, {"unshelve": None}, "ACTIVE")
        failed = await running.admin.boot("two", flavor="nowhere")
        assert (await running.admin.settled(failed))["status"] == "ERROR"
        assert await counter(running) == LARGE + NOWHERE, "as in Nova it is a server until it is deleted"
        await running.admin.gone(failed)
        await resized(running, id, "larger")
        assert await counter(running) == LARGER
        await running.admin.gone(id)
        assert await counter(running) == 0


async def test_soft_deleted_and_restored(start: Start) -> None:
    async def shown(id: str, status: str) -> dict[str, Any]:
        return await until(lambda: running.admin.settled(id), lambda seen: seen["status"] == status)

    async with start(hosts=Hosts(count=1), compute=Compute(reclaim_instance_interval=3600.0)) as running:
        await flavors(running)
        await begin_to_count(running)
        id = (await running.admin.active("one", flavor="small"))["id"]
        await running.admin.delete(id)
        await shown(id, "SOFT_DELETED")
        assert await counter(running) == 0
        assert (await act(running, id, {"restore": None})).status_code == 202
        await shown(id, "ACTIVE")
        assert await counter(running) == SMALL
        assert (await act(running, id, {"forceDelete": None})).status_code == 202
        await running.admin.absent(id)
        assert await counter(running) == 0
