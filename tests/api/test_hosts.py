"""Services, hypervisors, aggregates and zones, at the versions where something about them changed."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.api.host_view import past_number
from moorage.model.errors import Unavailable
from moorage.model.guest import ResourceInventory
from moorage.model.host import Host
from moorage.model.ids import CellId, ConductorId, HostId
from moorage.model.resources import DISABLED_TRAIT, Inventory
from moorage.placement import inventory
from moorage.sql import Database
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers
from moorage.store.region import conductors
from moorage.store.region.placement import provider_statements
from moorage_testing.compute_app import MEMBER, ApiClient, cells_in, compute_api
from moorage_testing.fake_server_service import a_server, keep

STOCK = {"VCPU": 8, "MEMORY_MB": 1024, "DISK_GB": 100}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ApiClient]:
    """Two cells with a host each, and a conductor."""
    async with cells_in(tmp_path, "cell1", "cell2") as cells, compute_api(tmp_path, cells=cells) as client:
        for number, (name, database) in enumerate(cells.items(), 1):
            await settle(client, cells, f"host{number}", name)
            assert database is not None
        await client.context.region.write(lambda tx: conductors.take(tx, ConductorId("c1"), (), "control", ["boot/1"]))
        yield client


async def settle(client: ApiClient, cells: dict[str, Database], name: str, cell: str) -> None:
    report = inventory.HostInventory(
        host=name, cell=CellId(cell), inventories={each: Inventory(total=total) for each, total in STOCK.items()}
    )
    provider = await client.context.region.write(lambda tx: inventory.report_host(tx, report))
    host = Host(
        number=0, id=HostId(provider), service="", host=name, node=f"{name}.node", cell=CellId(cell),
        hypervisor_type="simulated", hypervisor_version=1, cpu_info={"arch": "x86_64"}, address="10.0.0.1",
        inventory={each: ResourceInventory(total=total) for each, total in STOCK.items()},
    )  # fmt: skip
    now = int(time.time() * 1e6)
    await cells[cell].write(lambda tx: cell_hosts.report(tx, host, now))


async def service(cloud: ApiClient, host: str, at: str = "2.53") -> Any:
    rows = (await cloud.get(f"/os-services?host={host}", at=at)).json()["services"]
    return rows[0]


async def test_services_are_novas_binaries(cloud: ApiClient) -> None:
    rows = (await cloud.get("/os-services", at="latest")).json()["services"]
    assert [(row["binary"], row["host"], row["zone"], row["state"]) for row in rows] == [
        ("nova-scheduler", "control", "internal", "up"),
        ("nova-conductor", "control", "internal", "up"),
        ("nova-compute", "host1", "nova", "up"),
        ("nova-compute", "host2", "nova", "up"),
    ]
    assert len(rows[2]["id"]) == 36
    assert "past_id" not in rows[2]
    old = await service(cloud, "host1", at="2.52")
    assert (old["id"], old["forced_down"]) == (past_number(rows[2]["id"]), False)
    assert "forced_down" not in await service(cloud, "host1", at="2.10")
    only = (await cloud.get("/os-services?binary=nova-compute")).json()["services"]
    assert len(only) == 2
    assert (await cloud.get("/os-services", by=MEMBER)).status_code == 403


async def test_disabling_by_name(cloud: ApiClient) -> None:
    body = {"host": "host1", "binary": "nova-compute"}
    off = await cloud.ask("PUT", "/os-services/disable", body, at="2.52")
    assert off.json() == {"service": {**body, "status": "disabled"}}
    row = await service(cloud, "host1")
    assert (row["status"], row["disabled_reason"]) == ("disabled", None)
    provider = await cloud.context.region.read(lambda tx: provider_statements.find_by_name(tx, "host1"))
    assert provider is not None
    assert DISABLED_TRAIT in await cloud.context.region.read(
        lambda tx: provider_statements.traits_of(tx, provider.uuid)
    )
    why = await cloud.ask("PUT", "/os-services/disable-log-reason", {**body, "disabled_reason": "dust"})
    assert why.json()["service"]["disabled_reason"] == "dust"
    assert (await cloud.ask("PUT", "/os-services/disable-log-reason", body)).status_code == 400
    on = await cloud.ask("PUT", "/os-services/enable", body)
    assert on.json() == {"service": {**body, "status": "enabled"}}
    assert (await service(cloud, "host1"))["disabled_reason"] is None
    assert (await cloud.ask("PUT", "/os-services/explode", body)).status_code == 404
    assert (await cloud.ask("PUT", "/os-services/enable", {**body, "host": "nowhere"})).status_code == 404
    assert (await cloud.ask("PUT", "/os-services/enable", {**body, "binary": "nova-conductor"})).status_code == 400
    assert (await cloud.ask("PUT", "/os-services/enable", {"host": "host1"})).status_code == 400


async def test_force_down_from_2_11_on(cloud: ApiClient) -> None:
    body = {"host": "host1", "binary": "nova-compute", "forced_down": True}
    assert (await cloud.ask("PUT", "/os-services/force-down", body, at="2.10")).status_code == 400
    down = await cloud.ask("PUT", "/os-services/force-down", body, at="2.11")
    assert down.json() == {"service": body}
    row = await service(cloud, "host1")
    assert (row["state"], row["forced_down"]) == ("down", True)


async def test_changing_a_service_by_id(cloud: ApiClient) -> None:
    path = f"/os-services/{(await service(cloud, 'host1'))['id']}"
    off = await cloud.ask(
        "PUT", path, {"status": "disabled", "disabled_reason": "dust", "forced_down": "true"}, at="2.53"
    )
    row = off.json()["service"]
    assert (row["status"], row["disabled_reason"], row["forced_down"], row["host"]) == (
        "disabled",
        "dust",
        True,
        "host1",
    )
    assert "past_id" not in row
    for body in ({}, {"status": "enabled", "disabled_reason": "x"}, {"status": "gone"}, {"host": "host1"}):
        assert (await cloud.ask("PUT", path, body, at="2.53")).status_code == 400, body
    assert (await cloud.ask("PUT", "/os-services/disable", {"status": "disabled"}, at="2.53")).status_code == 400
    nobody = "/os-services/00000000-0000-0000-0000-000000000000"
    assert (await cloud.ask("PUT", nobody, {"status": "disabled"}, at="2.53")).status_code == 404
    conductor = (await cloud.get("/os-services?binary=nova-conductor", at="2.53")).json()["services"][0]["id"]
    assert (await cloud.ask("PUT", f"/os-services/{conductor}", {"status": "disabled"}, at="2.53")).status_code == 400


async def test_deleting_a_service(cloud: ApiClient) -> None:
    made = (await cloud.ask("POST", "/os-aggregates", {"aggregate": {"name": "a"}})).json()["aggregate"]["id"]
    await cloud.ask("POST", f"/os-aggregates/{made}/action", {"add_host": {"host": "host2"}})
    path = f"/os-services/{(await service(cloud, 'host2'))['id']}"
    assert (await cloud.ask("DELETE", path, at="2.53")).status_code == 204
    assert (await cloud.ask("DELETE", path, at="2.53")).status_code == 404
    assert (await cloud.get(f"/os-aggregates/{made}")).json()["aggregate"]["hosts"] == []
    assert await cloud.context.region.read(lambda tx: provider_statements.find_by_name(tx, "host2")) is None
    assert (await cloud.ask("DELETE", "/os-services/1", at="2.53")).status_code == 400
    number = (await service(cloud, "host1", at="2.1"))["id"]
    assert (await cloud.ask("DELETE", f"/os-services/{number}", at="2.52")).status_code == 204
    assert (await cloud.ask("DELETE", f"/os-services/{number}", at="2.52")).status_code == 404


async def test_hypervisors_by_version(cloud: ApiClient) -> None:
    today = (await cloud.get("/os-hypervisors/detail", at="2.88")).json()["hypervisors"]
    assert [row["hypervisor_hostname"] for row in today] == ["host1.node", "host2.node"]
    first = dict(today[0])
    assert len(first.pop("id")) == 36
    assert len(first["service"].pop("id")) == 36
    assert first == {
        "hypervisor_hostname": "host1.node", "state": "up", "status": "enabled", "hypervisor_type": "simulated",
        "hypervisor_version": 1, "host_ip": "10.0.0.1", "uptime": None,
        "service": {"host": "host1", "disabled_reason": None},
    }  # fmt: skip
    full = (await cloud.get(f"/os-hypervisors/{today[0]['id']}", at="2.87")).json()["hypervisor"]
    assert (full["vcpus"], full["memory_mb"], full["free_disk_gb"], full["running_vms"]) == (8, 1024, 100, 0)
    assert full["cpu_info"] == {"arch": "x86_64"}
    assert "uptime" not in full
    number = past_number(today[0]["id"])
    old = (await cloud.get(f"/os-hypervisors/{number}", at="2.27")).json()["hypervisor"]
    assert (old["id"], old["cpu_info"]) == (number, '{"arch":"x86_64"}')
    assert old["service"]["id"] == past_number((await service(cloud, "host1"))["id"])
    assert (await cloud.get("/os-hypervisors/1", at="2.53")).status_code == 400
    brief = (await cloud.get("/os-hypervisors", at="2.53")).json()["hypervisors"][0]
    assert sorted(brief) == ["hypervisor_hostname", "id", "state", "status"]
    assert (await cloud.get("/os-hypervisors", by=MEMBER)).status_code == 403


async def test_hypervisor_routes_by_version(cloud: ApiClient) -> None:
    for path, last in (("statistics", "2.87"), ("host1/search", "2.52"), ("host1/servers", "2.52")):
        after = f"2.{int(last.split('.')[1]) + 1}"
        assert (await cloud.get(f"/os-hypervisors/{path}", at=last)).status_code == 200, path
        assert (await cloud.get(f"/os-hypervisors/{path}", at=after)).status_code in {400, 404}, path
    totals = (await cloud.get("/os-hypervisors/statistics")).json()["hypervisor_statistics"]
    assert (totals["count"], totals["vcpus"], totals["free_ram_mb"]) == (2, 16, 2048)
    number = (await cloud.get("/os-hypervisors")).json()["hypervisors"][0]["id"]
    assert (await cloud.get(f"/os-hypervisors/{number}/uptime")).status_code == 501
    assert (await cloud.get("/os-hypervisors/1/uptime", at="2.88")).status_code == 404


async def test_searching_and_paging_hypervisors(cloud: ApiClient) -> None:
    found = await cloud.get("/os-hypervisors?hypervisor_hostname_pattern=host2", at="2.53")
    assert len(found.json()["hypervisors"]) == 1
    assert (await cloud.get("/os-hypervisors?hypervisor_hostname_pattern=moon", at="2.53")).status_code == 404
    assert (await cloud.get("/os-hypervisors?hypervisor_hostname_pattern=host&limit=1", at="2.53")).status_code == 400
    with_servers = (await cloud.get("/os-hypervisors?with_servers=true", at="2.75")).json()["hypervisors"]
    assert with_servers[0]["servers"] == []
    assert "servers" not in (await cloud.get("/os-hypervisors?with_servers=1", at="2.74")).json()["hypervisors"][0]
    page = (await cloud.get("/os-hypervisors?limit=1", at="2.53")).json()
    rest = await cloud.get(page["hypervisors_links"][0]["href"].removeprefix("http://cloud"), at="2.53")
    assert [row["hypervisor_hostname"] for row in rest.json()["hypervisors"]] == ["host2.node"]
    assert len((await cloud.get("/os-hypervisors?limit=1", at="2.32")).json()["hypervisors"]) == 2


async def test_aggregates(cloud: ApiClient) -> None:
    new = {"aggregate": {"name": "fast", "availability_zone": "north"}}
    made = (await cloud.ask("POST", "/os-aggregates", new, at="2.41")).json()["aggregate"]
    assert sorted(made) == [
        "availability_zone",
        "created_at",
        "deleted",
        "deleted_at",
        "id",
        "name",
        "updated_at",
        "uuid",
    ]
    path = f"/os-aggregates/{made['id']}"
    assert "uuid" not in (await cloud.get(path, at="2.40")).json()["aggregate"]
    assert (await cloud.ask("POST", "/os-aggregates", new)).status_code == 409
    filled = await cloud.ask("POST", path + "/action", {"add_host": {"host": "host1"}})
    assert filled.json()["aggregate"]["hosts"] == ["host1"]
    assert (await cloud.ask("POST", path + "/action", {"add_host": {"host": "host1"}})).status_code == 409
    assert (await cloud.ask("POST", path + "/action", {"add_host": {"host": "moon"}})).status_code == 404
    assert (await service(cloud, "host1"))["zone"] == "north"
    members = await cloud.context.region.read(lambda tx: provider_statements.members(tx, made["uuid"]))
    assert len(members) == 1
    body = {"set_metadata": {"metadata": {"ssd": "yes", "gone": None}}}
    assert (await cloud.ask("POST", path + "/action", body)).json()["aggregate"]["metadata"] == {
        "availability_zone": "north", "ssd": "yes",
    }  # fmt: skip
    for nowhere, status in ((path, 400), ("/os-aggregates/99", 404)):
        away: dict[str, Any] = {"set_metadata": {"metadata": {"availability_zone": None}}}
        assert (await cloud.ask("POST", f"{nowhere}/action", away)).status_code == status
        away = {"aggregate": {"availability_zone": None}}
        assert (await cloud.ask("PUT", nowhere, away)).status_code == status
    other = (
        await cloud.ask("POST", "/os-aggregates", {"aggregate": {"name": "o", "availability_zone": "south"}})
    ).json()
    refused = await cloud.ask(
        "POST", f"/os-aggregates/{other['aggregate']['id']}/action", {"add_host": {"host": "host1"}}
    )
    assert (refused.status_code, "already in availability zone(s) ['north']" in refused.text) == (409, True)
    renamed = await cloud.ask("PUT", path, {"aggregate": {"name": "faster", "availability_zone": "west"}})
    assert (renamed.json()["aggregate"]["name"], renamed.json()["aggregate"]["availability_zone"]) == ("faster", "west")
    assert (await cloud.ask("PUT", path, {"aggregate": {}})).status_code == 400
    assert (await cloud.ask("DELETE", path)).status_code == 400
    emptied = await cloud.ask("POST", path + "/action", {"remove_host": {"host": "host1"}})
    assert emptied.json()["aggregate"]["hosts"] == []
    assert (await cloud.ask("POST", path + "/action", {"remove_host": {"host": "host1"}})).status_code == 404
    assert (await cloud.ask("DELETE", path)).status_code == 200
    assert (await cloud.get(path)).status_code == 404
    assert (await cloud.get("/os-aggregates/x")).status_code == 400
    assert (await cloud.ask("POST", "/os-aggregates/1/images", {"cache": []}, at="2.80")).status_code == 404
    assert (await cloud.ask("POST", "/os-aggregates/1/images", {"cache": []}, at="2.81")).status_code == 400


async def test_zones(cloud: ApiClient) -> None:
    zones = await cloud.get("/os-availability-zone", by=MEMBER)
    assert zones.json() == {
        "availabilityZoneInfo": [{"zoneName": "nova", "zoneState": {"available": True}, "hosts": None}]
    }
    detail = (await cloud.get("/os-availability-zone/detail")).json()["availabilityZoneInfo"]
    assert [zone["zoneName"] for zone in detail] == ["internal", "nova"]
    assert all(service["updated_at"] for service in detail[0]["hosts"]["control"].values())
    assert sorted(detail[0]["hosts"]["control"]) == ["nova-conductor", "nova-scheduler"]
    assert detail[1]["hosts"]["host1"]["nova-compute"]["available"] is True
    assert (await cloud.get("/os-availability-zone/detail", by=MEMBER)).status_code == 403
    for host in ("host1", "host2"):
        await cloud.ask("PUT", "/os-services/disable", {"host": host, "binary": "nova-compute"})
    off = (await cloud.get("/os-availability-zone", by=MEMBER)).json()["availabilityZoneInfo"]
    assert off == [{"zoneName": "nova", "zoneState": {"available": False}, "hosts": None}]


class Out:
    """A cell whose database does not answer."""

    async def read(self, work: Any) -> Any:
        raise Unavailable("the database of cell2 does not answer")

    read_inline = read


async def test_a_cell_that_does_not_answer(cloud: ApiClient) -> None:
    assert cloud.context.cells is not None
    cells: dict[str, Any] = dict(cloud.context.cells)
    cloud.context.cells = {**cells, "cell2": Out()}
    rows = (await cloud.get("/os-services?binary=nova-compute", at="2.68")).json()["services"]
    assert [row["host"] for row in rows] == ["host1"]
    rows = (await cloud.get("/os-services?binary=nova-compute", at="2.69")).json()["services"]
    assert rows[1] == {"binary": "nova-compute", "host": "host2", "status": "UNKNOWN"}
    assert (await cloud.get("/os-availability-zone", by=MEMBER)).status_code == 200

    (mine,) = [row["id"] for row in (await cloud.get("/os-services?host=host1", at="2.68")).json()["services"]]
    cloud.context.cells = {**cells, "cell1": Out()}
    (other,) = [row["id"] for row in (await cloud.get("/os-services?host=host2", at="2.68")).json()["services"]]
    for id, status in ((other, 200), (mine, 503)):
        assert (await cloud.ask("PUT", f"/os-services/{id}", {"forced_down": True}, at="2.68")).status_code == status
    for host, status in (("host2", 200), ("host1", 503)):
        body = {"host": host, "binary": "nova-compute"}
        assert (await cloud.ask("PUT", "/os-services/disable", body, at="2.52")).status_code == status


async def test_a_host_with_servers_does_not_change_its_zone(cloud: ApiClient) -> None:
    async def act(number: int, verb: str) -> int:
        body = {verb: {"host": "host1"}}
        return (await cloud.ask("POST", f"/os-aggregates/{number}/action", body)).status_code

    assert cloud.context.cells is not None
    north, plain = [
        (await cloud.ask("POST", "/os-aggregates", {"aggregate": {"name": name, **zone}})).json()["aggregate"]["id"]
        for name, zone in (("north", {"availability_zone": "north"}), ("plain", {}))
    ]
    await keep(cloud.context.region, cloud.context.cells["cell1"], a_server(1, host="host1"))
    assert await act(north, "add_host") == 409
    assert await act(plain, "add_host") == 200  # no zone, no change
    assert await act(plain, "remove_host") == 200
    emptied = sa.update(cell_servers.servers).values(deleted_at=1)
    await cloud.context.cells["cell1"].write(lambda tx: tx.run(emptied))
    assert await act(north, "add_host") == 200
    await cloud.context.cells["cell1"].write(lambda tx: tx.run(emptied.values(deleted_at=None)))
    assert await act(north, "remove_host") == 409
    assert (await cloud.get(f"/os-aggregates/{north}")).json()["aggregate"]["hosts"] == ["host1"]
