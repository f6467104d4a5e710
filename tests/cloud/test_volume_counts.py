"""What boots from volumes and actions on servers with volumes cost: statements, commits, commands to hosts, calls of the volume and the image service (docs/performance.md)."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_snapshots import act
from tests.cloud.test_volumes import attach, becomes, detach, snapshot_that_waits, volume
from tests.cloud.test_volumes_swapped import as_service, moves, swap

from moorage.main.config import Hosts
from moorage.operations.steps import server_lock
from moorage_testing.bench.counts import BACKGROUND
from moorage_testing.waiting import until

BUDGET: dict[str, tuple[int, int, int]] = {
    "boot": (17, 6, 2),
    "attach": (28, 4, 2),
    "swap": (17, 5, 2),
    "detach": (16, 5, 1),
    "extend": (21, 6, 1),
    "createImage": (19, 5, 0),
    "rebuild": (29, 9, 3),
    "shelve": (30, 10, 2),
    "unshelve": (33, 10, 2),
    "boot from image": (20, 7, 2),
    "boot from snapshot": (20, 7, 2),
}
"""Operation → at most so many (statements on SQLite, commits, commands to hosts); who asks for an attach looks until it is listed."""
STATEMENTS_A_LOOK = 2
"""Of who waits until the volume service shows a detach: whether the operation has ended."""
NAMED = {"volume": "", "image": "image "}
EXPORT = {"GET volumes": 1, "POST attachments": 1, "PUT attachments": 1, "POST attachments action": 1}
"""Shown with the user's token; reserved, exported, complete."""
MADE = {"POST volumes": 1, "POST attachments": 1, "PUT attachments": 1, "POST attachments action": 1}
FRESH = {"GET attachments": 1, "POST attachments": 1, "DELETE attachments": 1}
"""Another attachment is reserved, and then the exported one goes."""
CALLS: dict[str, dict[str, int]] = {
    "boot": EXPORT,
    "attach": EXPORT,
    "swap": {**EXPORT, "GET volumes": 2, "POST volumes action": 1, "DELETE attachments": 1},
    "detach": {"POST volumes action": 1, "DELETE attachments": 1},
    "extend": {"GET volumes": 1, "POST volumes action": 1},
    "createImage": {
        "POST snapshots": 1, "image POST images": 1, "image PATCH images": 1, "image PUT images data": 1, "image GET images": 1,
    },
    "rebuild": {
        **FRESH, "POST volumes action": 1, "PUT attachments": 1, "POST attachments action": 1, "image GET images": 1,
    },
    "shelve": FRESH,
    "unshelve": {"PUT attachments": 1, "POST attachments action": 1},
    "boot from image": {**MADE, "image GET images": 1},
    "boot from snapshot": {**MADE, "GET snapshots": 1},
}  # fmt: skip
"""Calls of the volume and the image service, each exactly so often, beside `LOOKS`."""
LOOKS = {
    "detach": ("GET volumes", 2),
    "createImage": ("GET snapshots", 1),
    "rebuild": ("GET volumes", 3),
    "boot from image": ("GET volumes", 1),
    "boot from snapshot": ("GET volumes", 2),
}
"""Calls that are repeated until the volume service has done it, and how often there are at least: what is asked before is the rest."""


def counted(table: Any) -> int:
    return sum(number for (_, name), number in table.items() if not name.startswith(BACKGROUND))


def calls(running: Running) -> Counter[str]:
    """Of the volume service, and, named so, of the image service."""
    found: Counter[str] = Counter()
    for neighbour in running.cloud.region.clients.services:
        if neighbour.name in NAMED:
            found.update({NAMED[neighbour.name] + call: number for call, number in neighbour.calls.items()})
    return found


async def cost(
    running: Running, asked: Callable[[], Awaitable[Any]]
) -> tuple[tuple[int, int, int], dict[str, int], Any]:
    """Of one operation, from its request until nobody tells it any more."""
    region = running.cloud.region
    conductor = region.conductor
    assert conductor is not None
    await until(lambda: not conductor.executing)
    running.commands_once.clear()
    before = calls(running)
    region.meter.reset()
    answer = await asked()
    assert answer.status_code == 202, answer.text
    await until(lambda: not conductor.executing and region.meter.has_committed("end"))
    found = counted(region.meter.statements), counted(region.meter.commits), len(running.commands_once)
    return found, dict(calls(running) - before), answer


async def test_statements_and_messages_of_each_volume_operation(
    start: Start, rounds_are_far_away: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOK_FIRST_S", "LOOK_MOST_S"):
        monkeypatch.setattr(
            server_lock, name, 2.0
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
        bigger = {"os-extend": {"new_size": 2}}
        found["extend"], made["extend"], _ = await cost(
            running, lambda: admin.volume("POST", f"/volumes/{new}/action", bigger)
        )
        await becomes(running, new, "in-use")
        found["detach"], made["detach"], _ = await cost(running, lambda: detach(running, server, new))
        await becomes(running, new, "available")
        looks = made["detach"]["GET volumes"] - 1
        statements, commits, commands = found["detach"]
        found["detach"] = (statements - looks * STATEMENTS_A_LOOK, commits, commands)
        for name, body in (
            ("createImage", {"createImage": {"name": "copy"}}),
            ("rebuild", {"rebuild": {"imageRef": await admin.id_of("image", "tiny")}}),
            ("shelve", {"shelve": None}),
            ("unshelve", {"unshelve": None}),
        ):
            found[name], made[name], _ = await cost(running, lambda body=body: act(running, server, body))  # type: ignore[misc]
            await admin.settled(server)
        taken = await snapshot_that_waits(running, root)
        for source, id in (("image", await admin.id_of("image", "tiny")), ("snapshot", taken)):
            device = {
                "source_type": source,
                "destination_type": "volume",
                "uuid": id,
                "boot_index": 0,
                "volume_size": 1,
            }
            name = f"boot from {source}"
            found[name], made[name], answer = await cost(
                running,
                lambda device=device: admin.ask_boot("b", imageRef="", block_device_mapping_v2=[device]),  # type: ignore[misc]
            )
            await admin.settled(answer.json()["server"]["id"])
        for name, (call, least) in LOOKS.items():
            seen = made[name].pop(call)
            assert seen >= least, name
        over = {
            name: each for name, each in found.items() if any(a > b for a, b in zip(each, BUDGET[name], strict=True))
        }
        assert not over
        assert made == CALLS
