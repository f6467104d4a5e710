"""Pauses between tries, and log lines that are not repeated often."""

import logging
import random

import pytest

from moorage.model.retry import Backoff, SeldomLog, jittered


def test_pauses_double_up_to_a_limit_with_jitter() -> None:
    backoff = Backoff(0.5, 15.0, random.Random(7))
    pauses = [backoff.next_s() for _ in range(12)]
    for number, pause in enumerate(pauses):
        whole = min(0.5 * 2**number, 15.0)
        assert whole / 2 <= pause <= whole
    assert len(set(pauses)) == len(pauses)
    backoff.reset()
    assert backoff.next_s() <= 0.5


def test_periodic_work_is_spread() -> None:
    dice = random.Random(7)
    times = {jittered(10.0, 0.1, dice) for _ in range(100)}
    assert len(times) == 100
    assert min(times) >= 9.0
    assert max(times) <= 11.0


def test_repeated_log_lines_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    log = SeldomLog(logging.getLogger("a-test"), lambda: now)
    for _ in range(500):
        log.warning("full", "it is full: %s", "disk")
    log.warning("other", "something else")
    now += 11.0
    log.warning("full", "it is full: %s", "disk")
    assert [each.getMessage() for each in caplog.records] == [
        "it is full: disk",
        "something else",
        "it is full: disk (and 499 more of this kind since the last line)",
    ]
