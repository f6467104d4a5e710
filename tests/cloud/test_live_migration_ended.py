"""Live migrations in a whole cloud that are slow, queued, forced, aborted or end otherwise."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_shelve import act, actions, guests, held, ports, until
from tests.helpers.guaranteed_ports import (
    KBPS,
)
from tests.helpers.live_migrated_cloud import LIVE, SLOW, ended, silences, turned, under_way
from tests.helpers.resized_cloud import assert_nothing_to_repair, host_of, migrations, power, quota

from moorage.main.config import Hosts
from moorage.main.seed_data import ROUTED
from moorage.model.guest import PowerState

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {"hosts": Hosts(count=6, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, packet_rate_kpps=100)}


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def sends(running: Running, id: str, number: int) -> dict[str, Any]:
    """The move, when its source has said that it sends: "running" is shown before it is told to."""

    async def shown() -> dict[str, Any]:
        reply = await running.admin.compute("GET", f"/servers/{id}/migrations/{number}")
        return dict(reply.json()["migration"])

    return dict(await until(shown, lambda row: row["memory_processed_bytes"] > 0))


async def test_a_slow_migration_shows_progress_and_is_forced(running: Running) -> None:
    """It writes to its memory faster than it is sent, so it never ends by itself."""
    server = await running.admin.active("a")
    id, source = server["id"], host_of(server)
    turned(running, source, live_mib_per_s=SLOW, live_dirty_mib_per_s=SLOW)
    await act(running, id, {"os-migrateLive": {"host": None, "block_migration": True}}, "2.30")
    assert (await running.admin.server(id) or {})["status"] == "MIGRATING"
    number = (await under_way(running, id))["id"]

    sent = await sends(running, id, number)
    assert sent["memory_total_bytes"] == 128 << 20
    assert sent["memory_remaining_bytes"] > 0
    assert sent["disk_remaining_bytes"] == 0
    assert sent["disk_processed_bytes"] == sent["disk_total_bytes"]
    assert power(running, source, id) is PowerState.RUNNING
    assert guests(running, id) == sorted([source, sent["dest_compute"]])
    assert (await act(running, id, {"os-stop": None})).status_code == 409
    path = f"/servers/{id}/migrations/{number}/action"
    assert (await running.admin.compute("POST", path, {"force_complete": None})).status_code == 202
    there = await ended(running, id, "completed")
    turned(running, source, live_mib_per_s=0.0, live_dirty_mib_per_s=0.0)
    assert guests(running, id) == [host_of(there)] == [sent["dest_compute"]]
    words = [each for each, _ in await actions(running, id)]
    assert words == ["live_migration_force_complete", "live-migration", "create"]
    for method, tail, code in (("GET", "", 404), ("DELETE", "", 409), ("POST", "/action", 409)):
        body = {"force_complete": None} if method == "POST" else None
        reply = await running.admin.compute(method, f"/servers/{id}/migrations/{number}{tail}", body)
        assert reply.status_code == code, (method, reply.text)
    await assert_nothing_to_repair(running)


@pytest.mark.parametrize("status", ["preparing", "running"])
async def test_an_aborted_migration_causes_no_silence(running: Running, status: str) -> None:
    server = await running.admin.active("a", networks=ROUTED)
    id, source, before = server["id"], host_of(server), await ports(running, server["id"])
    claim, usage = await held(running, id), await quota(running)
    prepared = running.delay_verb("prepare_live") if status == "preparing" else asyncio.Event()
    for host in running.cloud.fleet.drivers:
        turned(running, host, live_mib_per_s=1.0)
    await act(running, id, LIVE)
    number = (await under_way(running, id, status))["id"]
    path = f"/servers/{id}/migrations/{number}"
    url, old = running.config.api.compute.url + "/v2.1" + path, {"OpenStack-API-Version": "compute 2.64"}
    early = await running.admin.http.delete(url, headers=old)
    assert early.status_code == (400 if status == "preparing" else 202), early.text
    if status == "preparing":
        assert (await running.admin.compute("DELETE", path)).status_code == 202
    prepared.set()
    there = await ended(running, id, "cancelled")
    for host in running.cloud.fleet.drivers:
        turned(running, host, live_mib_per_s=0.0)
    assert host_of(there) == source
    assert guests(running, id) == [source]
    assert power(running, source, id) is PowerState.RUNNING
    assert silences(running, there) == ()
    assert [each["binding:host_id"] for each in await ports(running, id)] == [
        each["binding:host_id"] for each in before
    ]
    assert (await held(running, id), await quota(running)) == (claim, usage)
    assert [each for each, _ in await actions(running, id)] == ["live_migration_cancel", "live-migration", "create"]
    await assert_nothing_to_repair(running)


async def test_a_host_sends_one_guest_at_a_time(running: Running) -> None:
    """Queued ones are aborted since 2.65 and deleted at any time; the next one in line goes when the one before has left or stays."""
    source = "host1"
    servers = [await running.admin.active(f"s{number}", availability_zone=f"nova:{source}") for number in range(5)]
    ids, moves = [str(each["id"]) for each in servers], list[dict[str, Any]]()
    turned(running, source, live_mib_per_s=SLOW, live_dirty_mib_per_s=SLOW)

    for number, id in enumerate(ids):
        assert (await act(running, id, LIVE)).status_code == 202
        moves.append(await under_way(running, id, "queued" if number else "running"))
    assert all(each["dest_compute"] not in (None, source) for each in moves)

    async def abort(number: int, version: str) -> int:
        url = f"{running.config.api.compute.url}/v2.1/servers/{ids[number]}/migrations/{moves[number]['id']}"
        return int((await running.admin.http.delete(url, headers={"OpenStack-API-Version": version})).status_code)

    assert await abort(3, "compute 2.64") == 400
    assert await abort(3, "compute 2.65") == 202
    assert host_of(await ended(running, ids[3], "cancelled")) == source
    await running.admin.gone(ids[4])
    assert (await migrations(running, ids[4]))[0]["status"] == "cancelled"
    aborted = running.delay_verb("abort_live", {source})
    assert [await abort(0, "compute 2.64") for _ in range(2)] == [202, 202], (
        "it is aborting, and that is accepted again"
    )
    aborted.set()
    await ended(running, ids[0], "cancelled")
    await under_way(running, ids[1])
    assert (await under_way(running, ids[2], "queued"))["memory_total_bytes"] == 0
    turned(running, source, live_mib_per_s=0.0, live_dirty_mib_per_s=0.0)
    assert {host_of(await ended(running, each, "completed")) != source for each in ids[1:3]} == {True}
    assert [guests(running, ids[number]) for number in (0, 3, 4)] == [[source], [source], []]
    await assert_nothing_to_repair(running)


async def test_an_agent_dies_while_it_sends(running: Running) -> None:
    """The transfer died with it, and the guest did not: the move is taken back when the host says so."""
    server = await running.admin.active("a")
    id, source = server["id"], host_of(server)
    fleet = running.cloud.fleet
    driver = fleet.drivers[source]
    turned(running, source, live_mib_per_s=SLOW, live_dirty_mib_per_s=SLOW)
    assert (await act(running, id, LIVE)).status_code == 202
    await sends(running, id, (await under_way(running, id))["id"])
    await fleet.agents[source].stop()
    await driver.close()
    await driver.start()
    await fleet.restart(next(plan for plan in running.cloud.plans if plan.host == source))
    there = await ended(running, id, "failed")
    turned(running, source, live_mib_per_s=0.0, live_dirty_mib_per_s=0.0)
    assert host_of(there) == source
    await until(lambda: running.admin.settled(id), lambda seen: guests(running, id) == [source])
    assert power(running, source, id) is PowerState.RUNNING
    assert (await act(running, id, LIVE)).status_code == 202
    await ended(running, id, "completed")
    await assert_nothing_to_repair(running)


async def test_a_delete_ends_a_live_migration(running: Running) -> None:
    server = await running.admin.active("a")
    id, source = server["id"], host_of(server)
    turned(running, source, live_mib_per_s=SLOW, live_dirty_mib_per_s=SLOW)
    assert (await act(running, id, LIVE)).status_code == 202
    move = await under_way(running, id)
    await running.admin.gone(id)
    turned(running, source, live_mib_per_s=0.0, live_dirty_mib_per_s=0.0)
    assert guests(running, id) == []
    assert (await held(running, id), await held(running, move["uuid"])) == ({}, {})
    assert (await migrations(running, id))[0]["status"] == "cancelled"
    await assert_nothing_to_repair(running)
