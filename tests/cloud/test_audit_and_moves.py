"""Two hundred servers that move in every way cause no false alarm. It takes minutes, so it is only in `make soak`."""

import asyncio
import random
import time
from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_audit import looked
from tests.cloud.test_evacuate import force, killed
from tests.cloud.test_shelve import act
from tests.helpers.resized_cloud import host_of

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Compute, Hosts
from moorage_testing.leak_audit import nothing_leaked
from moorage_testing.waiting import PATIENCE_S

pytestmark = pytest.mark.soak
HOSTS, SERVERS, AT_ONCE = 24, 200, 20
SEED = 10
SLOW = VerbDial(delay_s=4.0, jitter_s=8.0)
"""Of every verb: a move tells hosts three to eight things, so it takes a minute, and the others are at any other step meanwhile."""
LIVE_MIB_PER_S = 30.0
"""A guest of m1.nano is sent with its disk in 38 seconds."""
MANY = 150
"""Moves that are under way when an audit begins, and when it ends, for it to count as one of the middle."""
LOOK_S = 0.5
LIVE: dict[str, Any] = {"os-migrateLive": {"host": None, "block_migration": "auto"}}


async def ordered(running: Running, server: str, action: dict[str, Any]) -> None:
    """A host that is back is said to be silent until it is heard by everybody: 409 until then."""
    deadline = time.monotonic() + PATIENCE_S
    while (reply := await act(running, server, action)).status_code == 409:
        assert time.monotonic() < deadline, (action, reply.text)
        await asyncio.sleep(LOOK_S)
    assert reply.status_code in {200, 202, 204}, (action, reply.text)


async def at_once(running: Running, orders: list[tuple[str, dict[str, Any]]]) -> None:
    """A few requests at a time."""
    for at in range(0, len(orders), AT_ONCE):
        await asyncio.gather(*(ordered(running, *each) for each in orders[at : at + AT_ONCE]))


async def under_way(running: Running) -> Counter[str]:
    """Operations that are not ended, by name."""
    found: Counter[str] = Counter()
    for status in ("open", "cleaning"):
        reply = await running.admin.compute("GET", "/ext/operations", all_projects="1", status=status, limit="1000")
        assert reply.status_code == 200, reply.text
        found.update(each["name"] for each in reply.json()["operations"])
    return found


async def rests(running: Running) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while left := await under_way(running):
        assert time.monotonic() < deadline, left
        await asyncio.sleep(LOOK_S)


async def test_two_hundred_running_moves_raise_no_alarm(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    dice = random.Random(SEED)
    settings = {"hosts": Hosts(count=HOSTS), "compute": Compute(max_concurrent_live_migrations=0)}
    async with start(**settings) as running:
        servers: list[str] = []
        for number in range(0, SERVERS, AT_ONCE):
            some = (running.admin.active(f"s{number + more}") for more in range(AT_ONCE))
            servers += [each["id"] for each in await asyncio.gather(*some)]
        dice.shuffle(servers)
        resized, shelved, plain = servers[:40], servers[40:60], servers[60:]
        bigger = {"resize": {"flavorRef": await running.admin.id_of("flavor", "m1.micro")}}
        await at_once(running, [(each, bigger) for each in resized] + [(each, {"shelve": None}) for each in shelved])
        await rests(running)
        dead = host_of(await running.admin.settled(plain[0]))
        lost = [each for each in plain if host_of(await running.admin.settled(each)) == dead]
        for host, driver in running.cloud.fleet.drivers.items():
            if host != dead:
                driver.turn(msgspec.structs.replace(driver.dials, verbs={"*": SLOW}, live_mib_per_s=LIVE_MIB_PER_S))
        host = await killed(running, dead)
        await force(running, dead, True)
        orders: list[tuple[str, dict[str, Any]]] = [(each, {"evacuate": {}}) for each in lost]
        orders += [(each, {"unshelve": None}) for each in shelved]
        where = {each: host_of(await running.admin.settled(each)) for each in resized}
        moves = await running.admin.compute("GET", "/os-migrations", limit="1000")
        source = {each["instance_uuid"]: each["source_compute"] for each in moves.json()["migrations"]}
        waits = [each for each in resized if dead not in {where[each], source[each]}]
        orders += [(each, {dice.choice(("confirmResize", "revertResize")): None}) for each in waits]
        kinds = (LIVE, LIVE, {"migrate": None}, bigger, {"shelve": None})
        orders += [(each, dice.choice(kinds)) for each in plain if each not in lost]
        dice.shuffle(orders)
        await at_once(running, orders)
        audits, middle, alarms = 0, list[tuple[int, int]](), list[Any]()
        while before := await under_way(running):
            told = await looked(running)
            after = await under_way(running)
            audits += 1
            alarms += told["findings"]
            assert told["status"] == "done"
            if min(before.total(), after.total()) >= MANY:
                middle.append((before.total(), after.total()))
        await host.returns()
        await force(running, dead, False)
        for driver in running.cloud.fleet.drivers.values():
            driver.turn(msgspec.structs.replace(driver.dials, verbs={}, live_mib_per_s=0.0))
        with capsys.disabled():
            print(f"\n{len(orders)} moves, {audits} audits meanwhile, {len(alarms)} alarms; of the middle: {middle}")  # noqa: T201
        assert alarms == []
        assert middle, "moves took long enough for an audit to see most of them"
        reply = await running.admin.compute("GET", "/servers/detail", all_tenants="1", limit="1000")
        statuses = Counter(each["status"] for each in reply.json()["servers"])
        assert not statuses["ERROR"], statuses
        waiting = [each["id"] for each in reply.json()["servers"] if each["status"] == "VERIFY_RESIZE"]
        await at_once(running, [(each, {"confirmResize": None}) for each in waiting])
        await rests(running)
        await nothing_leaked(running.config, running.admin)
        told = await looked(running)
        assert (told["findings"], told["not_looked_at"]) == ([], {})
