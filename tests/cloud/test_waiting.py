"""Servers that wait for a host instead of ending in ERROR."""

import asyncio
from typing import Any

from tests.cloud.conftest import Running, Start
from tests.cloud.test_last_address import routed_with

from moorage.main.config import Hosts
from moorage.store.region import waiting
from moorage_testing.waiting import PATIENCE_S, until

WAIT = {"moorage:wait": True}


async def boots(
    running: Running, name: str, count: int = 1, hints: dict[str, Any] | None = None, **body: Any
) -> list[str]:
    """Ids of servers that were asked for, the first first."""
    found = []
    for number in range(count):
        reply = await running.admin.ask_boot(f"{name}{number}", hints=WAIT if hints is None else hints, **body)
        assert reply.status_code == 202, reply.text
        found.append(reply.json()["server"]["id"])
    return found


async def asleep(running: Running) -> dict[str, waiting.WaitingServer]:
    rows = await running.cloud.region.databases.region.read(waiting.listed)
    return {each.server: each for each in rows if each.woken_at is None}


async def sleep(running: Running, *servers: str) -> None:
    """Until all of them sleep."""
    async with asyncio.timeout(PATIENCE_S):
        while not set(servers) <= (await asleep(running)).keys():  # noqa: ASYNC110 - the row is written by another task
            await asyncio.sleep(0.02)


ADDRESSES = 10
WAITERS, FREED = 30, 4


async def full(running: Running, *addresses: int) -> tuple[list[dict[str, str]], list[str]]:
    """A routed network of two segments without a free address, and the servers that have them."""
    addresses = addresses or (ADDRESSES - 2, 2)
    network, _ = await routed_with(running.admin, *addresses)
    networks = [{"uuid": network}]
    servers = [await running.admin.boot(f"first{number}", networks=networks) for number in range(sum(addresses))]
    for each in servers:
        assert (await running.admin.settled(each))["status"] == "ACTIVE"
    return networks, servers


async def test_first_come_first_served(start: Start) -> None:
    """As many are ACTIVE as addresses were freed, those that came first; the others sleep, and nobody was woken for anything else."""
    async with start(hosts=Hosts(count=2)) as running:
        networks, holders = await full(running)
        waker = running.cloud.region.waker
        assert waker is not None
        servers = await boots(running, "w", WAITERS, networks=networks)
        await sleep(running, *servers)
        for each in (servers[0], servers[-1]):
            shown = await running.admin.server(each) or {}
            assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("BUILD", "scheduling")
        rows = await asleep(running)
        assert {row.causes for row in rows.values()} == {("addresses",)}
        conductor = running.cloud.region.conductor
        assert conductor is not None
        await until(lambda: not conductor.executing)
        assert waker.kinds == 1

        unrelated = await running.admin.active("unrelated", networks="none")
        await running.admin.gone(unrelated["id"])
        assert waker.woken["room"] == 0

        for each in holders[:FREED]:
            await running.admin.gone(each)
        for each in servers[:FREED]:
            assert (await running.admin.settled(each))["status"] == "ACTIVE"
        assert (await asleep(running)).keys() == set(servers[FREED:])
        assert (waker.woken["room"], waker.in_vain) == (FREED, 0)

        for each in servers[FREED:]:
            await running.admin.gone(each)
        assert not await asleep(running)
        for each in (*holders[FREED:], *servers[:FREED]):
            await running.admin.gone(each)
