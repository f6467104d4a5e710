"""What a snapshot, a shelve and an unshelve cost: commits by database, commands to hosts, and calls of services."""

from collections import Counter
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_shelve import act, until

from moorage.main.config import Hosts

ROUNDS = ("reconciler", "look", "lease", "stores", "presence", "hosts", "external")
"""Labels of what goes on beside."""
SENT = {"image GET images": 1, "image PATCH images": 1, "image PUT images data": 1}
"""By the host that sends a disk."""
COSTS: dict[str, tuple[dict[str, int], dict[str, int], dict[str, int]]] = {
    "createImage": (
        {"region": 5, "cell": 2},
        {"take_snapshot": 1, "upload_image": 1},
        {"image POST images": 1, **SENT},
    ),
    "createBackup": (
        {"region": 5, "cell": 2},
        {"take_snapshot": 1, "upload_image": 1},
        {"image POST images": 1, "image GET images": 2, "image PUT images data": 1},
    ),
    "createBackup again": (
        {"region": 5, "cell": 2},
        {"take_snapshot": 1, "upload_image": 1},
        {"image POST images": 1, "image GET images": 2, "image PUT images data": 1, "image DELETE images": 1},
    ),
    "shelve": (
        {"region": 6, "cell": 3},
        {"stop_guest": 1, "take_snapshot": 1, "upload_image": 1, "clear_host": 1},
        {"image POST images": 1, **SENT, "network GET ports": 1, "network PUT ports": 1},
    ),
    "unshelve": (
        {"region": 4, "cell": 4},
        {"start_guest": 1},
        {
            "image GET images": 2,
            "image GET images data": 1,
            "image DELETE images": 1,
            "network GET ports": 1,
            "network GET networks": 1,
            "network GET subnets": 1,
            "network GET segments": 1,
            "network PUT ports": 1,
        },
    ),
}
"""docs/performance.md tells of them. Commits are at most so many: those of operations that meet may be shared."""


BODIES = {
    "createImage": {"name": "x"},
    "createBackup": {"name": "x", "backup_type": "daily", "rotation": 1},
}


def _seen(running: Running) -> tuple[Counter[str], Counter[str], Counter[str]]:
    region = running.cloud.region
    commits: Counter[str] = Counter()
    for (database, label), number in region.meter.commits.items():
        if not label.startswith(ROUNDS):
            commits["region" if database == "region" else "cell"] += number
    calls: Counter[str] = Counter()
    for neighbour in region.clients.services:
        if neighbour.name in {"image", "network"}:
            calls.update({f"{neighbour.name} {call}": number for call, number in neighbour.calls.items()})
    return commits, Counter(step for _, step in running.commands_once), calls


async def _cost(running: Running, server: str, action: dict[str, Any]) -> Any:
    async def is_open() -> bool:
        operations = (await running.admin.compute("GET", "/ext/operations", server=server)).json()["operations"]
        return any(each["ended_at"] is None for each in operations)

    await until(is_open, lambda seen: not seen)
    before = _seen(running)
    assert (await act(running, server, action)).status_code == 202
    await until(is_open, lambda seen: not seen)
    return tuple(dict(now - then) for now, then in zip(_seen(running), before, strict=True))


@pytest.mark.slow
async def test_statements_and_messages_of_images_and_shelving(start: Start, rounds_are_far_away: None) -> None:
    async with start(hosts=Hosts(count=2)) as running:
        server = (await running.admin.active("a"))["id"]
        for name, wanted in COSTS.items():
            action = name.split()[0]
            commits, commands, calls = await _cost(running, server, {action: BODIES.get(action)})
            assert (commands, calls) == wanted[1:], name
            assert all(commits.get(each, 0) <= most for each, most in wanted[0].items()), (name, commits)
