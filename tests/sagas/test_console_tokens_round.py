"""The round that removes tokens of consoles whose time is over."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.conductor.reconcilers.console_tokens import ConsoleTokens
from moorage.model.clock import SystemClock
from moorage.model.console import ConsoleSocket, ConsoleToken
from moorage.store.region import console_tokens
from moorage_testing.region_fixture import SmallRegion


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open(tmp_path)
    yield region
    await region.close()


async def test_console_tokens_already_fine(small: SmallRegion) -> None:
    clock = SystemClock()
    later = int(clock.now() * 1_000_000) + 60_000_000
    token = ConsoleToken("hash", "s", "novnc", "host1", ConsoleSocket("192.0.2.1", 5900), later)
    await small.region.write(lambda tx: console_tokens.add(tx, token, 20))
    before = await small.held()
    assert await ConsoleTokens(small.region, clock).run() == 0
    assert await small.region.read(lambda tx: console_tokens.get(tx, "hash")) == token
    assert await small.held() == before


async def test_one_round_removes_more_than_a_batch(small: SmallRegion) -> None:
    rows = [
        {
            "hash": f"hash{n}", "server": f"s{n}", "type": "novnc", "host": "host1", "address": "192.0.2.1", "port": 5900,
            "created_at": 0, "expires_at": 1, "used": False,
        }
        for n in range(1_001)
    ]  # fmt: skip
    await small.region.write(lambda tx: tx.run(console_tokens.console_tokens.insert(), rows))
    assert await ConsoleTokens(small.region, SystemClock()).run() == 1_001
    assert await ConsoleTokens(small.region, SystemClock()).run() == 0
