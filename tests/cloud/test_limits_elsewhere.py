"""Limits of compute at the identity service change nothing here, and `moorage status` says so."""

from typing import Any

import pytest
from tests.cloud.conftest import Running, Start

from moorage.cli import status
from moorage.main.config import Hosts
from moorage.main.status import make_report

CHANGE_NOTHING = "the identity service has registered limits of compute (class:VCPU, servers), which change nothing"


async def register(running: Running, kind: str, *names: str) -> None:
    http, identity = running.admin.http, f"{running.config.api.identity.url}/v3"
    (service,) = (await http.get(f"{identity}/services", params={"type": kind})).json()["services"]
    limits = [{"service_id": service["id"], "resource_name": each, "default_limit": 0} for each in names]
    made = await http.post(f"{identity}/registered_limits", json={"registered_limits": limits})
    assert made.status_code == 201, made.text


@pytest.mark.parametrize("of_compute", [True, False])
async def test_registered_limits_of_compute_are_named(start: Start, of_compute: bool) -> None:
    async with start(hosts=Hosts(count=1)) as running:
        await register(running, "image", "image_size_total")
        if of_compute:
            await register(running, "compute", "servers", "class:VCPU")
        gates: dict[str, Any] = (await running.admin.compute("GET", "/ext/gates")).json()["gates"]
        printed = "\n".join(status.lines(gates))
        local = (await make_report(running.config)).warnings
        assert (CHANGE_NOTHING in printed) == of_compute, printed
        assert any(each.startswith(CHANGE_NOTHING) for each in local) == of_compute
        assert "image_size_total" not in printed
        server = await running.admin.active("unlimited")
        await running.admin.gone(server["id"])
