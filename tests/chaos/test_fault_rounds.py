"""Rounds of kills and freezes of every role on PostgreSQL and NATS: what was acknowledged is kept, and nothing is left over."""

from pathlib import Path

import pytest

from moorage.testing.fault_rounds import play
from moorage.testing.nats import nats_server_program
from moorage.testing.postgres import find_binaries

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
]


@pytest.mark.slow
async def test_a_few_rounds_lose_and_leak_nothing(tmp_path: Path) -> None:
    totals = await play(4, 11, tmp_path)
    assert (totals.lost, totals.leaked) == ([], [])
    assert totals.acknowledged > 10
    assert sum(totals.faults.values()) >= 4


@pytest.mark.soak
async def test_a_hundred_rounds_lose_and_leak_nothing(tmp_path: Path) -> None:
    totals = await play(100, 12, tmp_path)
    assert (totals.lost, totals.leaked) == ([], [])
