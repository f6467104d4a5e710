"""The census that other tests trust finds what is planted."""

import shutil

import pytest
from conftest import Running

from moorage.sql import Tx
from moorage.store.region import quotas
from moorage.testing.census import census, leaks, nothing_leaked


async def test_what_is_planted_is_found(running: Running) -> None:
    config, admin = running.config, running.admin
    server = await admin.active("one")
    host = server["OS-EXT-SRV-ATTR:host"]
    await nothing_leaked(config, admin)

    room = config.data / "hosts"
    other = next(plan.host for plan in running.cloud.plans if plan.host != host)
    doubled = room / other / "guests" / f"{server['id']}.json"
    shutil.copy(room / host / "guests" / doubled.name, doubled)
    network = await admin.id_of("network", "private")
    body = {"network_id": network, "device_id": "nobody", "device_owner": "compute:nova"}
    port = (await admin.network("POST", "/ports", {"port": body})).json()["port"]["id"]

    def charge(tx: Tx) -> None:
        quotas.reserve(tx, admin.project, {"instances": 1})

    def discharge(tx: Tx) -> None:
        quotas.release(tx, admin.project, {"instances": 1})

    await running.cloud.region.databases.region.write(charge)
    with pytest.raises(AssertionError, match="does not add up"):
        await nothing_leaked(config, admin, patience_s=0.0)
    found = "\n".join(leaks(await census(config, admin)))
    assert "has guests on" in found
    assert f"port {port} of no server" in found
    assert "is charged" in found

    doubled.unlink()
    await admin.network("DELETE", f"/ports/{port}")
    await running.cloud.region.databases.region.write(discharge)
    await nothing_leaked(config, admin, patience_s=0.0)
