"""The predicted number of servers boots in a running cloud; and servers that are predicted to have no other place are those that an evacuation refuses."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.helpers.guaranteed_ports import KBPS, TWO, network_on, policy_of, providers

from moorage.cli import capacity as command
from moorage.operations.capacity import service as capacity_service

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {"hosts": TWO}
EACH_KBPS = KBPS * 2 // 5


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def asked(running: Running, path: str, body: Any, status: int = 200) -> Any:
    reply = await running.admin.compute("POST", f"/ext/{path}", body)
    assert reply.status_code == status, reply.text
    return reply.json()


async def test_the_predicted_number_of_servers_boots(running: Running, tmp_path: Path) -> None:
    """On a guaranteed network beside the routed one: two fit on the one host with the bandwidth."""
    admin = running.admin
    await providers(admin)
    guaranteed = await network_on(admin, "physnet1", qos_policy_id=await policy_of(admin, kbps=EACH_KBPS))
    routed = await admin.id_of("network", "routed")
    flavor = await admin.id_of("flavor", "m1.nano")
    wanted = {"flavor": flavor, "networks": [{"uuid": routed}, {"uuid": guaranteed}]}
    result = (await asked(running, "capacity", {"capacity": wanted}))["capacity"]
    assert (result["fits"], result["order_matters"], result["whole"]) == (2, False, True), result
    assert result["binds"] == {"NET_BW_EGR_KILOBIT_PER_SEC": 1}
    assert [(each["host"], each["fits"]) for each in result["hosts"]] == [("host1", 2)]
    query = await admin.compute("GET", "/ext/capacity", flavor=flavor, network=[routed, guaranteed])  # type: ignore[arg-type]
    assert query.json()["capacity"] == result

    servers = []
    nics = [{"uuid": routed}, {"uuid": guaranteed}]
    for left in (1, 0):
        servers.append((await admin.active(networks=nics))["id"])
        result = (await asked(running, "capacity", {"capacity": wanted}))["capacity"]
        assert result["fits"] == left
    refused = await admin.settled(await admin.boot(networks=nics))
    assert refused["status"] == "ERROR"
    added = {**wanted, "added": {"uplinks": [{"like": "host1:Open vSwitch agent:br-physnet1"}]}}
    assert (await asked(running, "capacity", {"capacity": added}))["capacity"]["fits"] == 2
    without = {**wanted, "networks": [{"uuid": routed}], "without": {"hosts": ["host1", "host2"]}}
    assert (await asked(running, "capacity", {"capacity": without}))["capacity"]["fits"] == 0

    failed = (await asked(running, "failovers", {"failover": {"kind": "host", "names": ["host1", "host2"]}}))[
        "failovers"
    ]
    assert [(each["name"], each["servers"], each["placed"]) for each in failed] == [("host1", 2, 0), ("host2", 0, 0)]
    assert {each["server"] for each in failed[0]["unplaced"]} == set(servers)
    assert all(each["alone"] for each in failed[0]["unplaced"])

    saved = tmp_path / "world.json"
    saved.write_text(json.dumps((await admin.compute("GET", "/ext/capacity/snapshot")).json()))
    assert command.main(["--world", str(saved), "--fails", "host=host1", "--json"]) == 1
    for each in (*servers, refused["id"]):
        await admin.gone(each)
    await admin.network("DELETE", f"/networks/{guaranteed}")


async def test_unanswerable_capacity_requests_are_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    flavor = await running.admin.id_of("flavor", "m1.nano")
    for path, body, status in (
        ("capacity", {"capacity": {}}, 400),
        ("capacity", {"capacity": {"flavor": "none"}}, 404),
        ("capacity", {"capacity": {"flavor": flavor, "networks": [{"uuid": "none"}]}}, 404),
        ("capacity", {"capacity": {"flavor": flavor, "group": "none"}}, 400),
        ("capacity", {"capacity": {"flavor": flavor, "hosts": 10_001}}, 400),
        ("capacity", {"capacity": {"flavor": flavor, "without": {"hosts": ["none"]}}}, 400),
        ("capacity", {"capacity": {"flavor": flavor, "added": {"hosts": [{"like": "host1", "count": 20_001}]}}}, 400),
        ("capacity", {"capacity": {"flavor": flavor, "more": 1}}, 400),
        ("failovers", {"failover": {"kind": "rack", "names": ["x"]}}, 400),
        ("failovers", {"failover": {"kind": "host", "names": []}}, 400),
        ("failovers", {"failover": {"kind": "host", "names": ["none"]}}, 400),
        ("failovers", {"failover": {"kind": "aggregate", "names": ["none"]}}, 400),
    ):
        await asked(running, path, body, status)
    assert (await running.admin.compute("GET", "/ext/capacity")).status_code == 400
    assert (await running.admin.compute("GET", "/ext/capacity", flavor=flavor, hosts="10001")).status_code == 400
    monkeypatch.setattr(capacity_service, "AT_ONCE", 0)
    await asked(running, "capacity", {"capacity": {"flavor": flavor}}, 429)
