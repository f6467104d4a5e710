"""Scheduler hints name servers that the caller can see, and are stored only as long as they are needed."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.cloud.conftest import Running, Shared

from moorage.store.region.operations import operations

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def test_servers_of_another_project_are_never_group_members(running: Running) -> None:
    """Another's server is as unknown as an id that nobody has: no host will do, and the fault says no more than that."""
    victim = await running.admin.active("victim", networks="none")
    unknown = "11111111-2222-4333-8444-555555555555"
    async with running.person("demo", "demo") as demo:
        own = await demo.active("own", networks="none")
        faults = []
        for hint in (victim["id"], unknown, [victim["id"], unknown]):
            beside = await demo.settled(await demo.boot("beside", networks="none", hints={"same_host": hint}))
            assert beside["status"] == "ERROR"
            faults.append({**beside["fault"], "created": ""})
        assert faults[0] == faults[1] == faults[2]
        both = await demo.active("both", networks="none", hints={"same_host": [victim["id"], own["id"]]})
        where = {
            each["id"]: each["OS-EXT-SRV-ATTR:host"]
            for each in [await running.admin.server(each["id"]) or {} for each in (own, both)]
        }
        assert where[both["id"]] == where[own["id"]]
        away = await demo.active("away", networks="none", hints={"different_host": [own["id"]]})
        assert ((await running.admin.server(away["id"])) or {})["OS-EXT-SRV-ATTR:host"] != where[own["id"]]
    hints = {"same_host": own["id"]}
    administrators = await running.admin.active("administrators", networks="none", hints=hints)
    assert administrators["OS-EXT-SRV-ATTR:host"] == where[own["id"]]
    moved = await running.admin.compute("POST", f"/servers/{administrators['id']}/action", {"migrate": None})
    assert moved.status_code == 202, moved.text  # another project's server does not hold it where it is
    assert (await running.admin.settled(administrators["id"]))["status"] == "VERIFY_RESIZE"
    await running.admin.gone(administrators["id"])


async def test_hints_apply_to_their_server_only(running: Running) -> None:
    hints = {"note": "a hint " * 500}
    server = await running.admin.active("noted", networks="none", hints=hints, user_data="QkJC")
    assert ((await running.admin.server(server["id"])) or {})["scheduler_hints"] == hints
    await running.wait_until_unlocked(server["id"])
    region = running.cloud.region.databases.region
    asked = sa.select(operations.c.asked).where(operations.c.server == server["id"])
    kept = await region.read(lambda tx: [row.asked for row in tx.rows(asked)])
    assert len(kept) == 1
    assert "a hint" not in kept[0]
    assert "QkJC" not in kept[0]
    await running.admin.gone(server["id"])
    for database in running.cloud.region.databases.cells.values():
        left = await database.read(lambda tx: tx.rows(sa.text("SELECT doc FROM servers WHERE doc LIKE '%a hint%'")))
        assert list(left) == []
