"""Some thousand malformed requests and messages, always the same ones: no 500, no traceback, and the cloud continues. `make fuzz` sends more."""

import logging
import os

import pytest
from tests.cloud.conftest import Running, Start

from moorage_testing.fuzz.cloud import BROKEN, FuzzedCloud
from moorage_testing.fuzz.random_values import FuzzDice
from moorage_testing.fuzz.run import Fuzz
from moorage_testing.fuzz.seeded import Seeded

SEED = 1
REQUESTS, MESSAGES = 2_000, 800


async def sent(running: Running, seed: int, requests: int, messages: int) -> Fuzz:
    hosts = [(str(plan.cell), plan.host) for plan in running.cloud.plans]
    async with Seeded(running.config) as seeded:
        fuzz = Fuzz(
            FuzzedCloud(running.config, os.getpid()), seeded, FuzzDice(seed), running.cloud.region.bus.publish, hosts
        )
        await fuzz.requests(requests)
        await fuzz.messages(messages)
        await fuzz.still_boots()
    return fuzz


async def test_malformed_requests_and_messages(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with start() as running:
        found = (await sent(running, SEED, REQUESTS, MESSAGES)).found
    assert (found.requests, found.messages) == (REQUESTS, MESSAGES)
    assert found.failed == []
    assert found.boots, found.why_not
    broken = [
        record.getMessage()
        for record in caplog.records
        if record.exc_info or any(each in record.getMessage() for each in BROKEN)
    ]
    assert broken == []
