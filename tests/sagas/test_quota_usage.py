"""The reconciler of quota usage: it corrects the counters of projects and users."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.reconciled_region import BOOT, kept, small

from moorage.conductor.class_usage import correct_classes, wrong_classes
from moorage.conductor.reconcilers.quota_usage import CorrectedUsage, QuotaUsage, QuotaUsageDone
from moorage.model.ids import OperationId
from moorage.store.region import class_usage, counts, quotas, user_quotas
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import PROJECT, SERVER, SmallRegion, a_server

__all__ = ["small"]


# --------------------------------------------------------------------------------------------------- quota usage


ONE = {"instances": 1, "cores": 1, "ram": 64}
NONE = {"instances": 0, "cores": 0, "ram": 0}
DISK = "class:DISK_GB"


async def test_quota_usage_already_fine(small: SmallRegion) -> None:
    before = await small.held()
    assert await QuotaUsage(small.context).run() == QuotaUsageDone(looked_at=1)
    assert await small.held() == before


@pytest.mark.parametrize("wrong", [{"instances": 3, "cores": 7, "ram": 64}, NONE])
async def test_quota_counters_are_corrected(small: SmallRegion, wrong: dict[str, int]) -> None:
    await small.region.write(lambda tx: quotas.recount(tx, PROJECT, wrong))
    assert (await QuotaUsage(small.context).run()).mended == (CorrectedUsage(PROJECT, wrong, ONE),)
    assert await kept(small) == ONE
    assert (await QuotaUsage(small.context).run()).mended == ()


async def test_a_project_without_servers_is_charged_nothing(small: SmallRegion) -> None:
    await small.region.write(lambda tx: quotas.recount(tx, "another", ONE))
    assert (await QuotaUsage(small.context).run()).mended == (CorrectedUsage("another", ONE, NONE),)


async def test_a_server_that_never_got_a_host_is_charged(tmp_path: Path) -> None:
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), BOOT)
    await region.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT))
    assert await QuotaUsage(region.context).run() == QuotaUsageDone(looked_at=1)
    await region.region.write(lambda tx: region_servers.write_order(tx, a_server(deleted_at=5)))
    assert (await QuotaUsage(region.context).run()).mended == (CorrectedUsage(PROJECT, ONE, NONE),)
    await region.close()


async def test_quota_counters_of_a_user_are_corrected(small: SmallRegion) -> None:
    for wrong in (NONE, {"instances": 3, "cores": 7, "ram": 64}):
        for user in ("user-1", "nobody"):
            await small.region.write(lambda tx, user=user, wrong=wrong: user_quotas.recount(tx, PROJECT, user, wrong))
        mended = {each.user: each.now for each in (await QuotaUsage(small.context).run()).mended}
        assert mended == ({"user-1": ONE} if wrong == NONE else {"user-1": ONE, "nobody": NONE})
        assert await small.region.read(lambda tx: user_quotas.usage(tx, PROJECT, "user-1")) == ONE
    await small.region.write(lambda tx: user_quotas.recount(tx, PROJECT, "user-1", NONE))
    await small.hand_to(OperationId("somebody"))
    assert (await QuotaUsage(small.context).run()).mended == ()


async def test_quota_of_a_busy_project_is_left_alone(small: SmallRegion) -> None:
    await small.region.write(lambda tx: quotas.recount(tx, PROJECT, NONE))
    await small.hand_to(OperationId("somebody"))
    assert (await QuotaUsage(small.context).run()).mended == ()
    assert await kept(small) == NONE


async def test_a_count_is_dropped_when_an_operation_began_meanwhile(small: SmallRegion) -> None:
    """An operation comes and goes between the look at the region and the look at the cells."""
    await small.region.write(lambda tx: quotas.recount(tx, PROJECT, NONE))
    cell = next(iter(small.cells.values()))
    plain = cell.read

    async def slow(work: Any) -> Any:
        await small.hand_to(OperationId("somebody"))
        await small.region.write(lambda tx: region_servers.release(tx, SERVER, OperationId("somebody")))
        return await plain(work)

    cell.read = slow  # type: ignore[method-assign]
    assert (await QuotaUsage(small.context).run()).mended == ()
    cell.read = plain  # type: ignore[method-assign]
    assert (await QuotaUsage(small.context).run()).mended == (CorrectedUsage(PROJECT, NONE, ONE),)


async def test_counters_of_classes_are_corrected(small: SmallRegion) -> None:
    """Only those that exist; while an operation is running or a cell has lost a record they stay."""
    for wrong in (0, 9):
        await small.region.write(lambda tx, used=wrong: class_usage.recount(tx, PROJECT, {DISK: used}))
        mended = CorrectedUsage(PROJECT, {DISK: wrong}, {DISK: 1})
        assert (await QuotaUsage(small.context, mends=False).run()).mended == (mended,)
        assert (await QuotaUsage(small.context).run()).mended == (mended,)
        assert await small.region.read(lambda tx: class_usage.usage(tx, PROJECT)) == {DISK: 1}
    await small.region.write(lambda tx: class_usage.recount(tx, PROJECT, {DISK: 0}))
    await small.hand_to(OperationId("somebody"))
    assert (await QuotaUsage(small.context).run()).mended == ()


async def test_a_count_of_classes_is_dropped_when_an_operation_began_meanwhile(small: SmallRegion) -> None:
    await small.region.write(lambda tx: class_usage.recount(tx, PROJECT, {DISK: 0}))
    doings = await small.region.read(counts.doings)
    ((project, before, now),) = await wrong_classes(small.context, doings, ())
    await small.hand_to(OperationId("somebody"))
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, OperationId("somebody")))
    assert not await correct_classes(small.context, project, before, now, doings.get(project))
    await small.region.write(lambda tx: class_usage.recount(tx, PROJECT, {DISK: 5}))
    doings = await small.region.read(counts.doings)
    assert not await correct_classes(small.context, project, before, now, doings.get(project)), "the counter is another"
    assert await small.region.read(lambda tx: class_usage.usage(tx, PROJECT)) == {DISK: 5}
