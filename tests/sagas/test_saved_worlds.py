"""What a proof keeps of an execution at one of its points is what a kill there leaves."""

import pytest

from moorage.model.ids import ServerId
from moorage.operations.registry import SAGAS
from moorage_testing.case_run import CaseRun, SavedRun
from moorage_testing.fault_points import FaultTrigger, SavingTrigger
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server
from moorage_testing.region_prepared import PreparedRegion
from moorage_testing.region_waiting import FullRegion, waiting_boot
from moorage_testing.saga_proof import PROVED_OPERATION

EVERY_POINT = range(1_000)


@pytest.mark.parametrize("name", ["boot/1", "boot/3"])
async def test_a_world_is_saved_as_a_kill_leaves_it(name: str) -> None:
    small = await SmallRegion.open()
    asked = a_boot(PROVED_OPERATION)

    async def ordered() -> SmallRegion:
        return await small.fresh(a_server(), PROVED_OPERATION)

    waits = name == "boot/3"
    worlds = FullRegion(small, ordered) if waits else PreparedRegion(small, ordered)

    async def begun() -> CaseRun[object]:
        return CaseRun(
            SAGAS[name], PROVED_OPERATION, waiting_boot(asked) if waits else asked, await worlds(), (), repeat=False
        )

    whole = await begun()
    saving = SavingTrigger(EVERY_POINT, lambda point: whole.saved(worlds.save(), point))
    await whole.execute(saving)
    seen: list[object] = []
    for at, saved in saving.saved.items():
        killed, trigger = await begun(), FaultTrigger(at, "kill")
        assert (await killed.execute(trigger)).killed
        left = (await killed.world.held(), killed.saved(None, str(trigger.triggered_at)))  # type: ignore[attr-defined]
        again = CaseRun(SAGAS[name], PROVED_OPERATION, asked, worlds.restore(saved.world), (), repeat=False)
        again.go_on_from(saved)
        found = (await again.world.held(), again.saved(None, saved.point))  # type: ignore[attr-defined]
        assert _comparable(found) == _comparable(left), saved.point
        seen.append(found[0])
    assert len(seen) > 15
    assert any(each != seen[0] for each in seen), "the world changed meanwhile"
    await small.close()


def _comparable(found: tuple[object, SavedRun]) -> tuple[object, ...]:
    """Times and new ids differ from one execution to the next; how much is written and what was passed does not."""
    held, saved = found
    return held, saved.point, saved.passed, saved.row.head, saved.row.status, saved.row.epoch, saved.row.cancel


async def test_a_world_is_restored_as_often_as_it_is_wanted() -> None:
    """Whatever was written since is gone, and nothing of the first time shows in the second."""
    small = await SmallRegion.open()

    async def ordered() -> SmallRegion:
        return await small.fresh(a_server(), PROVED_OPERATION)

    worlds = PreparedRegion(small, ordered)
    await worlds()
    saved = worlds.save()
    before = await small.held()
    run: CaseRun[object] = CaseRun(SAGAS["boot/1"], PROVED_OPERATION, a_boot(PROVED_OPERATION), small, (), repeat=False)
    for _ in range(2):
        await run.execute()
        assert (await small.held())["rows"] == 1
        assert small.hosts.guests.keys() == {(host, ServerId(SERVER)) for host, _ in small.hosts.guests}
        run = CaseRun(
            SAGAS["boot/1"], PROVED_OPERATION, a_boot(PROVED_OPERATION), worlds.restore(saved), (), repeat=False
        )
        assert await small.held() == before
        assert not small.hosts.guests
    await small.close()
