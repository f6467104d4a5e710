"""What the tests of live migrations in a whole cloud share."""

from typing import Any

import msgspec

from moorage.model.ids import ServerId
from tests.cloud.conftest import Running
from tests.cloud.test_shelve import until
from tests.helpers.resized_cloud import host_of, migrations

LIVE = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
SLOW = 256.0


def turned(running: Running, host: str, **changes: Any) -> None:
    driver = running.cloud.fleet.drivers[host]
    driver.turn(msgspec.structs.replace(driver.dials, **changes))


def silences(running: Running, server: dict[str, Any]) -> tuple[float, ...]:
    return running.cloud.fleet.drivers[host_of(server)].silences(ServerId(server["id"]))


async def ended(running: Running, id: str, status: str, state: str = "ACTIVE") -> dict[str, Any]:
    """The server, when its last move came to that status."""
    moves = await until(lambda: migrations(running, id), lambda rows: bool(rows) and rows[0]["status"] == status)
    assert moves[0]["migration_type"] == "live-migration"
    seen = await running.admin.settled(id)
    await running.wait_until_unlocked(id)
    assert (seen["status"], seen["OS-EXT-STS:task_state"]) == (state, None)
    return dict(seen)


async def under_way(running: Running, id: str, status: str = "running") -> dict[str, Any]:
    async def listed() -> list[dict[str, Any]]:
        reply = await running.admin.compute("GET", f"/servers/{id}/migrations")
        return list(reply.json()["migrations"])

    rows = await until(listed, lambda found: bool(found) and found[0]["status"] == status)
    return rows[0]
