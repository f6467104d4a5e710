"""What a boot from a volume, attach, swap and detach cost: statements, commits, commands to hosts, calls of the volume service
(docs/performance.md)."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conftest import Running, Start
from test_volumes import attach, becomes, detach, volume
from test_volumes_swapped import as_service, moves, swap

from moorage.main.config import Hosts
from moorage.operations.steps import slot
from moorage.testing.bench.counts import BACKGROUND
from moorage.testing.waiting import until

BUDGET: dict[str, tuple[int, int, int]] = {
    "boot": (17, 6, 2),
    "attach": (32, 4, 2),
    "swap": (18, 5, 2),
    "detach": (16, 5, 1),
}
"""Operation → at most so many (statements on SQLite, commits, commands to hosts); who asks for an attach looks until it is listed."""
STATEMENTS_A_LOOK = 2
"""Of who waits until the volume service shows a detach: whether the operation has ended."""
EXPORT = {"GET volumes": 1, "POST attachments": 1, "PUT attachments": 1, "POST attachments action": 1}
"""Shown with the user's token; reserved, exported, complete."""
CALLS: dict[str, dict[str, int]] = {
    "boot": EXPORT,
    "attach": EXPORT,
    "swap": {**EXPORT, "GET volumes": 2, "POST volumes action": 1, "DELETE attachments": 1},
    "detach": {"POST volumes action": 1, "DELETE attachments": 1},
}
"""Calls of the volume service, each exactly so often."""


def counted(table: Any) -> int:
    return sum(number for (_, name), number in table.items() if not name.startswith(BACKGROUND))


def calls(running: Running) -> Counter[str]:
    (neighbour,) = [each for each in running.cloud.region.clients.neighbours if each.name == "volume"]
    return Counter(neighbour.calls)


async def cost(
    running: Running, asked: Callable[[], Awaitable[Any]]
) -> tuple[tuple[int, int, int], dict[str, int], Any]:
    """Of one operation, from its request until nobody tells it any more."""
    region = running.cloud.region
    conductor = region.conductor
    assert conductor is not None
    await until(lambda: not conductor.telling)
    running.told_once.clear()
    before = calls(running)
    region.meter.reset()
    answer = await asked()
    assert answer.status_code == 202, answer.text
    await until(lambda: not conductor.telling and len(running.told_once) > 0)
    found = counted(region.meter.statements), counted(region.meter.commits), len(running.told_once)
    return found, dict(calls(running) - before), answer


async def test_what_each_costs(start: Start, rounds_are_far_away: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_FIRST_S", "LOOK_MOST_S"):
        monkeypatch.setattr(
            slot, name, 2.0
        )  # who waits for an attach looks once, however long it takes on a busy machine
    async with start(hosts=Hosts(count=1)) as running:
        admin = running.admin
        await as_service(running)
        first, new = await volume(running), await volume(running)
        root = await volume(running, imageRef=await admin.id_of("image", "tiny"))
        await admin.id_of("flavor", "m1.nano")
        await admin.id_of("network", "private")
        device = {"source_type": "volume", "destination_type": "volume", "uuid": root, "boot_index": 0}
        found: dict[str, tuple[int, int, int]] = {}
        made: dict[str, dict[str, int]] = {}
        found["boot"], made["boot"], answer = await cost(
            running, lambda: admin.ask_boot("a", imageRef="", block_device_mapping_v2=[device])
        )
        server = answer.json()["server"]["id"]
        await admin.settled(server)
        found["attach"], made["attach"], _ = await cost(running, lambda: attach(running, server, first))
        await becomes(running, first, "in-use")
        await moves(running, first)
        found["swap"], made["swap"], _ = await cost(running, lambda: swap(running, server, first, new))
        await becomes(running, new, "in-use")
        found["detach"], made["detach"], _ = await cost(running, lambda: detach(running, server, new))
        await becomes(running, new, "available")
        looks = made["detach"].pop("GET volumes") - 1
        assert looks >= 1, "shown with the user's token, and until the volume service shows the detach"
        statements, *rest = found["detach"]
        found["detach"] = (statements - looks * STATEMENTS_A_LOOK, *rest)
        over = {
            name: each for name, each in found.items() if any(a > b for a, b in zip(each, BUDGET[name], strict=True))
        }
        assert not over
        assert made == CALLS
