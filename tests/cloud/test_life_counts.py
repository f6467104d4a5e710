"""What rebuild, rescue, unrescue, soft delete and restore cost: commits, commands to hosts, calls of the services (docs/performance.md)."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.cloud.conftest import Running, Start

from moorage.main.config import Compute, Hosts
from moorage_testing.bench.counts import BACKGROUND
from moorage_testing.waiting import until

BUDGET: dict[str, tuple[int, int, int, int]] = {
    "rebuild": (22, 6, 1, 4),
    "rescue": (15, 4, 1, 4),
    "unrescue": (15, 4, 1, 0),
    "trigger_crash_dump": (15, 4, 1, 0),
    "soft delete": (14, 5, 1, 0),
    "restore": (20, 5, 1, 0),
}
"""Operation → at most so many (statements on SQLite, commits, commands to hosts, calls of the network service)."""


def counted(table: Any) -> int:
    return sum(number for (_, name), number in table.items() if not name.startswith(BACKGROUND))


async def cost(running: Running, asked: Callable[[], Awaitable[Any]]) -> tuple[int, int, int, int]:
    """Of one operation, from its request until nobody tells it any more."""
    region = running.cloud.region
    conductor, network = region.conductor, region.context.network
    assert conductor is not None
    calls, neighbour = 0, network.service  # type: ignore[attr-defined]
    plain = neighbour.call

    async def call(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        return await plain(*args, **more)

    await until(lambda: not conductor.executing)
    neighbour.call = call
    running.commands_once.clear()
    region.meter.reset()
    try:
        answer = await asked()
        assert answer.status_code in {200, 202, 204}, answer.text
        await until(lambda: not conductor.executing and len(running.commands_once) > 0)
    finally:
        neighbour.call = plain
    return counted(region.meter.statements), counted(region.meter.commits), len(running.commands_once), calls


async def test_statements_and_messages_of_each_operation(start: Start, rounds_are_far_away: None) -> None:
    async with start(hosts=Hosts(count=1), compute=Compute(reclaim_instance_interval=3600.0)) as running:
        admin = running.admin
        server = (await admin.active("counted", config_drive=True))["id"]
        image, path = await admin.id_of("image", "tiny"), f"/servers/{server}/action"
        found: dict[str, tuple[int, int, int, int]] = {}
        for name, body in (
            ("rebuild", {"rebuild": {"imageRef": image}}),
            ("rescue", {"rescue": None}),
            ("unrescue", {"unrescue": None}),
            ("trigger_crash_dump", {"trigger_crash_dump": None}),
        ):
            found[name] = await cost(running, lambda body=body: admin.compute("POST", path, body))  # type: ignore[misc]
            await admin.settled(server)
        found["soft delete"] = await cost(running, lambda: admin.compute("DELETE", f"/servers/{server}"))
        await admin.settled(server)
        found["restore"] = await cost(running, lambda: admin.compute("POST", path, {"restore": None}))
        await admin.settled(server)
        over = {
            name: each for name, each in found.items() if any(a > b for a, b in zip(each, BUDGET[name], strict=True))
        }
        assert not over
        assert found.keys() == BUDGET.keys()
        assert all(each[2] == 1 for each in found.values()), "one command to the host each"
