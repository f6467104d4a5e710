"""`auto` that cannot be served: 409 with the network service's reason, or Nova's 400 by one line of configuration (D1)."""

import msgspec
import pytest
from tests.cloud.conftest import Start

from moorage.main.config import Compute


@pytest.mark.parametrize(("refusal", "body"), [(409, "conflictingRequest"), (400, "badRequest")])
async def test_the_status_is_the_operators_choice(start: Start, refusal: int, body: str) -> None:
    compute = msgspec.structs.replace(Compute(), auto_refusal=refusal)
    async with start(compute=compute) as running:
        private = await running.admin.id_of("network", "private")
        await running.admin.network("PUT", f"/networks/{private}", {"network": {"shared": False}})
        reply = await running.admin.ask_boot("a", networks="auto")
        assert reply.status_code == refusal, reply.text
        assert "automatically allocate" in reply.json()[body]["message"]
