"""Resizes with operator settings: on the server's own host, and confirmed automatically."""

import pytest
from tests.cloud.conftest import Start
from tests.cloud.test_resize import letter
from tests.cloud.test_shelve import AheadClock, held, until
from tests.helpers.resized_cloud import asked, assert_nothing_to_repair, disk, migrations, power, quota, resized

from moorage.conductor.reconcilers.unconfirmed_resizes import ConfirmResizes
from moorage.main.config import Compute, Hosts
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId


@pytest.mark.parametrize("action", ["confirmResize", "revertResize", "delete"])
async def test_a_server_is_resized_on_its_host(start: Start, action: str) -> None:
    """Both sizes are claimed on the one host until the move is over."""
    async with start(hosts=Hosts(count=1), compute=Compute(allow_resize_to_same_host=True)) as running:
        server = await running.admin.active("a")
        letter(running, server)
        whole, id = disk(running, server), server["id"]
        there = await resized(running, id)
        assert there["OS-EXT-SRV-ATTR:host"] == server["OS-EXT-SRV-ATTR:host"] == "host1"
        spec = running.cloud.fleet.drivers["host1"].spec_of
        assert spec(ServerId(id)).ram_mib == 192
        (move,) = await migrations(running, id)
        assert [(await held(running, each))["MEMORY_MB"] for each in (id, move["uuid"])] == [192, 128]
        await assert_nothing_to_repair(running)
        if action == "delete":
            await running.admin.gone(id)
            assert power(running, "host1", id) is PowerState.NOSTATE
        else:
            now = await asked(running, id, {action: None}, "ACTIVE", 204 if action == "confirmResize" else 202)
            assert spec(ServerId(id)).ram_mib == (192 if action == "confirmResize" else 128)
            assert disk(running, now) == whole
            assert power(running, "host1", id) is PowerState.RUNNING
        assert await held(running, move["uuid"]) == {}
        await assert_nothing_to_repair(running)


async def test_an_unconfirmed_resize_is_confirmed_after_its_time(start: Start) -> None:
    async with start(hosts=Hosts(count=4), compute=Compute(resize_confirm_window=3600)) as running:
        before = await quota(running)
        server = await running.admin.active("a", flavor="m1.micro")
        await resized(running, server["id"], "m1.tiny")
        context, clock = running.cloud.region.context, AheadClock()
        assert (await ConfirmResizes(context).run()).begun == ()
        assert (await ConfirmResizes(context, clock).run()).begun == (server["id"],)
        await until(lambda: running.admin.settled(server["id"]), lambda seen: seen["status"] == "ACTIVE")
        await until(lambda: migrations(running, server["id"]), lambda seen: seen[0]["status"] == "confirmed")
        assert (await ConfirmResizes(context, clock).run()).looked_at == 0
        assert await quota(running) == (before[0] + 1, before[1] + 512)
