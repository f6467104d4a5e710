"""A front desk for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.testing.frontdesk import Client, front_desk


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[Client]:
    async with front_desk(tmp_path) as client:
        yield client
