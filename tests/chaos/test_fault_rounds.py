"""Rounds of kills and freezes of every role on PostgreSQL and NATS: what was acknowledged is kept, and nothing leaks."""

from pathlib import Path

import pytest

from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.fault_counts import RoundLoad
from moorage_testing.fault_rounds import play

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
]


@pytest.mark.slow
async def test_a_few_rounds_lose_and_leak_nothing(tmp_path: Path) -> None:
    totals = await play(4, 11, tmp_path)
    assert totals.wrong == []
    assert totals.acknowledged > 10
    assert sum(totals.faults.values()) >= 4


@pytest.mark.soak
async def test_a_hundred_rounds_lose_and_leak_nothing(tmp_path: Path) -> None:
    totals = await play(100, 12, tmp_path)
    assert totals.wrong == []


@pytest.mark.soak
async def test_a_hundred_rounds_of_kills_during_moves_lose_leak_and_hold_up_nothing(tmp_path: Path) -> None:
    totals = await play(100, 41, tmp_path, RoundLoad(hosts=6, filled=True, moves=12, kills_only=True))
    assert totals.wrong == []
    assert totals.moves.audits > totals.rounds / 2
    assert {"evacuate", "os-migrateLive", "resize", "shelve", "unshelve"} <= totals.moves.done.keys()
