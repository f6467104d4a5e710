"""What the contract tests of the volume service share."""

import uuid
from collections.abc import Callable

from moorage_testing.waiting import until

NOTHING = "0fc0a3f5-6d0c-4b0e-9d3c-4f6f5b7f1f0a"
"""Of no volume, snapshot or image."""


def server_id() -> str:
    return str(uuid.uuid4())


async def eventually(condition: Callable[[], bool]) -> None:
    await until(condition)
