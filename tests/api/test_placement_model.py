"""The Placement API against a model in plain dicts: random writes get the answers that the model predicts, random queries its candidates."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)
from tests.helpers.placement_model import Model

from moorage.sql import open_database
from moorage.store.region.placement import placement_metadata


@pytest.fixture
def own_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The machine's steps are plain functions: they need a loop that is not running."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


SOAK = 1000


def _judge(loop: asyncio.AbstractEventLoop, url: str, examples: int) -> None:
    database = loop.run_until_complete(open_database(url, name="region", durability="process"))
    loop.run_until_complete(database.create(placement_metadata))
    try:
        quick = settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=examples < SOAK,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(partial(Model, loop, database), settings=quick)  # type: ignore[arg-type]
    finally:
        loop.run_until_complete(database.close())


def test_the_service_does_what_the_model_predicts(own_loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    _judge(own_loop, f"sqlite:///{tmp_path}/test.db", 30)


@pytest.mark.slow
@pytest.mark.postgres
def test_the_service_does_what_the_model_predicts_on_postgresql(
    own_loop: asyncio.AbstractEventLoop, postgres_url: str
) -> None:
    _judge(own_loop, postgres_url, 8)


@pytest.mark.soak
def test_the_service_does_what_the_model_predicts_in_a_long_run(
    own_loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    _judge(own_loop, f"sqlite:///{tmp_path}/test.db", SOAK)
