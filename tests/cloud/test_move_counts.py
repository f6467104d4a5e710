"""What a resize, its revert and its confirm, a live migration, an evacuation, and a server with a volume cost: statements, commits, commands to hosts,
calls of the network and the volume service (docs/performance.md)."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_evacuate import force
from tests.cloud.test_shelve import act
from tests.cloud.test_volume_counts import counted
from tests.cloud.test_volumes import attach, becomes, volume

from moorage.main.config import Hosts
from moorage_testing.waiting import until

BUDGET: dict[str, tuple[int, int, int]] = {
    "resize": (50, 10, 5),
    "revert": (40, 8, 5),
    "migrate": (48, 10, 5),
    "confirm": (29, 7, 2),
    "live migration": (90, 20, 20),
    "resize with a volume": (52, 11, 6),
    "revert with a volume": (42, 9, 6),
    "evacuation with a volume": (51, 11, 6),
}
"""Operation → at most so many (statements on SQLite, commits, commands to hosts): three statements and a commit more than was
measured, for when the network service tells that a port is up may make one more look of it. A live migration (66, 13 and 7) is looked at
more often where it takes longer."""
READ = {"GET networks": 1, "GET subnets": 1, "GET segments": 1}
EXPORTED = {
    "GET attachments": 1, "GET volumes": 1, "POST attachments": 1, "PUT attachments": 1, "POST attachments action": 1,
    "DELETE attachments": 1,
}  # fmt: skip
"""Which there are, and on which hosts; reserved, exported, complete; the one of the other host goes."""
GONE = {"GET bindings": 1, "DELETE bindings": 1, "PUT ports": 1}
"""No agent of Neutron's is told that a binding was deleted, so the port is read and written once more, unchanged."""
THERE = {**READ, "POST bindings": 1, "PUT bindings": 1}
BACK = {**READ, "GET agents": 1, "PUT bindings": 2, **GONE}
CALLS: dict[str, dict[str, int]] = {
    "resize": THERE,
    "revert": BACK,
    "migrate": THERE,
    "confirm": GONE,
    "live migration": {**THERE, **GONE},
    "resize with a volume": THERE | EXPORTED,
    "revert with a volume": BACK | EXPORTED,
    "evacuation with a volume": {**READ, "PUT ports": 1} | EXPORTED,
}
"""Operation → calls of the network and the volume service, each exactly so often, beside `LOOKS`: ports are read once, and until they are up."""
LOOKS = "GET ports"
PERMITTED = {"compute:servers:resize:cross_cell": "role:admin"}
ACROSS_CELLS: dict[str, tuple[int, int, int]] = {
    "within the cell": (52, 13, 6),
    "to another cell": (64, 16, 6),
    "revert": (58, 13, 5),
    "confirm": (38, 9, 2),
}
"""The same of migrations of who may have servers moved to other cells, and of the revert and the confirmation of those that were."""


def calls(running: Running, name: str) -> Counter[str]:
    """Of all clients of that service: hosts have one of the image service, too."""
    return sum((Counter(each.calls) for each in running.cloud.region.clients.services if each.name == name), Counter())


async def cost(
    running: Running, asked: Callable[[], Awaitable[Any]], server: str, status: str
) -> tuple[tuple[int, int, int], dict[str, int]]:
    """Of one operation, from its request until nobody tells it any more."""
    region = running.cloud.region
    conductor = region.conductor
    assert conductor is not None
    await until(lambda: not conductor.executing)
    running.commands_once.clear()
    before = calls(running, "network") + calls(running, "volume")
    region.meter.reset()
    answer = await asked()
    assert answer.status_code in {200, 202, 204}, answer.text
    await until(lambda: not conductor.executing and len(running.commands_once) > 0)
    found = counted(region.meter.statements), counted(region.meter.commits), len(running.commands_once)
    made = calls(running, "network") + calls(running, "volume") - before
    seen = await running.admin.settled(server)
    assert seen["status"] == status, seen
    return found, dict(made)


@pytest.mark.slow
async def test_statements_and_messages_of_each_move(start: Start, rounds_are_far_away: None) -> None:
    async with start(hosts=Hosts(count=4, physical_networks=(("physnet1",),))) as running:
        admin = running.admin
        id = (await admin.active("a"))["id"]
        flavors = [await admin.id_of("flavor", each) for each in ("m1.micro", "m1.tiny")]
        found: dict[str, tuple[int, int, int]] = {}
        made: dict[str, dict[str, int]] = {}

        async def step(name: str, action: dict[str, Any], status: str) -> None:
            found[name], made[name] = await cost(running, lambda: act(running, id, action), id, status)

        await step("resize", {"resize": {"flavorRef": flavors[0]}}, "VERIFY_RESIZE")
        await step("revert", {"revertResize": None}, "ACTIVE")
        await step("migrate", {"migrate": None}, "VERIFY_RESIZE")
        await step("confirm", {"confirmResize": None}, "ACTIVE")
        await step("live migration", {"os-migrateLive": {"host": None, "block_migration": "auto"}}, "ACTIVE")
        disk = await volume(running)
        assert (await attach(running, id, disk)).status_code == 202
        await becomes(running, disk, "in-use")
        await step("resize with a volume", {"resize": {"flavorRef": flavors[1]}}, "VERIFY_RESIZE")
        await step("revert with a volume", {"revertResize": None}, "ACTIVE")
        await force(running, (await admin.settled(id))["OS-EXT-SRV-ATTR:host"], True)
        await step("evacuation with a volume", {"evacuate": {}}, "SHUTOFF")
        over = {
            name: each for name, each in found.items() if any(a > b for a, b in zip(each, BUDGET[name], strict=True))
        }
        assert not over
        for name, each in made.items():
            assert each.pop(LOOKS, 0) <= (3 if "POST bindings" in each else 1) + each.get("DELETE bindings", 0)
            assert each == CALLS[name], name


@pytest.mark.slow
async def test_statements_of_a_move_to_another_cell(start: Start, rounds_are_far_away: None) -> None:
    """Against one within the cell, by who has the permission and by who has not."""
    async with start(hosts=Hosts(count=4, physical_networks=(("physnet1",),)), policy=PERMITTED) as running:
        admin = running.admin
        server = await admin.active("a")
        id, cells = server["id"], {plan.host: plan.cell for plan in running.cloud.plans}
        found: dict[str, tuple[int, int, int]] = {}
        images: dict[str, Counter[str]] = {}

        async def step(name: str, action: dict[str, Any], status: str) -> str:
            before = calls(running, "image")
            found[name], _ = await cost(running, lambda: act(running, id, action), id, status)
            images[name] = calls(running, "image") - before
            return str((await admin.settled(id))["OS-EXT-SRV-ATTR:host"])

        here = await step("within the cell", {"migrate": None}, "VERIFY_RESIZE")
        assert cells[here] == cells[server["OS-EXT-SRV-ATTR:host"]], "its own cell is preferred"
        await step("confirm within", {"confirmResize": None}, "ACTIVE")
        there = next(host for host, cell in cells.items() if cell != cells[here])
        assert await step("there and back", {"migrate": {"host": there}}, "VERIFY_RESIZE") == there
        await step("revert", {"revertResize": None}, "ACTIVE")
        assert await step("to another cell", {"migrate": {"host": there}}, "VERIFY_RESIZE") == there
        await step("confirm", {"confirmResize": None}, "ACTIVE")
        over = {
            name: found[name]
            for name, most in ACROSS_CELLS.items()
            if any(a > b for a, b in zip(found[name], most, strict=True))
        }
        assert not over, found
        assert [name for name, made in images.items() if made] == ["there and back", "to another cell"]
        made = images["to another cell"]
        assert (made.total(), made["PUT images data"], made["GET images data"]) == (9, 1, 1), made
