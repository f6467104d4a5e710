"""Usage, migrations, extensions, and routes that were removed."""

import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest

from moorage.api import removed_routes
from moorage.model.host import Host
from moorage.model.ids import CellId, FlavorId, OperationId, ServerId, new_uuid
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.principal import Principal
from moorage.model.server import FlavorCopy, Server, VmState
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import usage_audits
from moorage.store.cell.servers import Fence, record
from moorage.store.cell.usage_audits import UsageAuditKey
from moorage_testing.compute_app import ADMIN, MEMBER, READER, STRANGER, ApiClient, cells_in, compute_api
from moorage_testing.fake_server_service import a_migration

HOUR_US = 3_600_000_000


def path_of(template: str) -> str:
    for name in ("{id}", "{name}", "{key}", "{console}"):
        template = template.replace(name, "17")
    return template


@pytest.mark.parametrize(("method", "path"), removed_routes.listed(removed_routes.TOMBSTONES))
async def test_tombstones(cloud: ApiClient, method: str, path: str) -> None:
    for at in ("2.1", "latest"):
        assert (await cloud.ask(method, path_of(path), at=at)).status_code == 410


@pytest.mark.parametrize(("text", "last"), [(removed_routes.ENDED_BY_36, "2.35"), (removed_routes.ENDED_BY_39, "2.38")])
async def test_proxy_routes_end_at_their_version(cloud: ApiClient, text: str, last: str) -> None:
    after = f"2.{int(last.split('.')[1]) + 1}"
    for method, path in removed_routes.listed(text):
        body = {"add_interface": {}} if path.endswith("/action") else None
        assert (await cloud.ask(method, path_of(path), body, at=last)).status_code != 404, path
        assert (await cloud.ask(method, path_of(path), body, at=after)).status_code == 404, path


async def test_bare_metal(cloud: ApiClient) -> None:
    path = "/os-baremetal-nodes"
    assert (await cloud.get(path, at="2.35")).status_code == 501
    assert (await cloud.get(f"{path}/17", at="2.35", by=MEMBER)).status_code == 403
    for method, where, body, command in (
        ("POST", path, {}, "node-create"),
        ("DELETE", f"{path}/17", None, "node-delete"),
        ("POST", f"{path}/17/action", {"add_interface": {}}, "port-create"),
        ("POST", f"{path}/17/action", {"remove_interface": {}}, "port-delete"),
    ):
        answer = await cloud.ask(method, where, body, at="2.35")
        assert (answer.status_code, command in answer.text) == (400, True)


async def test_extensions_and_versions(cloud: ApiClient) -> None:
    listed = (await cloud.get("/extensions", by=MEMBER)).json()["extensions"]
    assert {"os-keypairs", "os-availability-zone"} <= {each["alias"] for each in listed}
    assert (await cloud.get("/extensions/os-keypairs", by=MEMBER)).json()["extension"]["alias"] == "os-keypairs"
    assert (await cloud.get("/extensions/wings", by=MEMBER)).status_code == 404
    assert (await cloud.get("/versions/v2.1", by=MEMBER)).json()["version"]["id"] == "v2.1"
    assert (await cloud.get("/versions/v9", by=MEMBER)).status_code == 404


async def test_migrations(cloud: ApiClient) -> None:
    assert (await cloud.get("/os-migrations?host=x")).json() == {"migrations": []}
    assert (await cloud.get("/os-migrations", by=READER)).status_code == 403
    assert (await cloud.get("/os-migrations?wings=1", at="2.58")).status_code == 200
    for at, query in (("2.59", "wings=1"), ("2.59", "changes-since=x"), ("2.65", "changes-before=2026-01-01T00:00:00Z"),
                      ("2.66", "changes-since=2026-02-01T00:00:00Z&changes-before=2026-01-01T00:00:00Z")):  # fmt: skip
        assert (await cloud.get(f"/os-migrations?{query}", at=at)).status_code == 400, query
    assert (await cloud.get("/os-migrations?user_id=x", at="2.79")).status_code == 400
    assert (await cloud.get("/os-migrations?user_id=x", at="2.80")).status_code == 200
    marker = f"/os-migrations?marker={new_uuid()}"
    assert "could not be found" in (await cloud.get(marker, at="2.59")).json()["badRequest"]["message"]


async def test_migrations_of_all_cells_are_in_one_list(tmp_path: Path) -> None:
    async with cells_in(tmp_path, "cell1", "cell2") as cells, compute_api(tmp_path, cells=cells) as cloud:
        first, second = cells.values()
        kept = (
            (first, a_migration(1, status=MigrationStatus.ERROR)),
            (
                second,
                a_migration(
                    2,
                    MigrationType.RESIZE,
                    MigrationStatus.FINISHED,
                    source_host="host9",
                    updated_at=1_767_225_602_400_000,
                ),
            ),
            (first, a_migration(3, project="p", user="u")),
        )
        for cell, each in kept:
            await cell.write(partial(cell_migrations.put, migration=each))

        async def listed(query: str = "", at: str = "latest", by: Principal = ADMIN) -> list[int]:
            answer = await cloud.get(f"/os-migrations{query}", at=at, by=by)
            assert answer.status_code == 200, answer.text
            return [int(row["created_at"][18]) for row in answer.json()["migrations"]]

        assert await listed() == [3, 2, 1]
        assert await listed(at="2.58") == [1, 2, 3]
        for query, found in (
            ("status=error", [1]),
            ("migration_type=resize", [2]),
            ("host=host2", [3, 2, 1]),
            ("host=host9", [2]),
            ("source_compute=host1", [3, 1]),
            ("source_compute=host2", []),
            (f"instance_uuid={a_migration().server}", [3, 2, 1]),
            (f"instance_uuid={new_uuid()}", []),
            ("hidden=true", []),
            ("hidden=0", [3, 2, 1]),
            ("user_id=u", [3]),
            ("project_id=p", [3]),
            ("limit=0", []),
            ("changes-since=2026-01-01T00:00:02Z", [3, 2]),
            ("changes-before=2026-01-01T00:00:02Z", [2, 1]),
        ):
            assert await listed(f"?{query}") == found, query
        page = (await cloud.get("/os-migrations?limit=2", at="latest")).json()
        assert page["migrations_links"][0]["href"].endswith(f"limit=2&marker={kept[1][1].uuid}")
        assert await listed(f"?limit=2&marker={kept[1][1].uuid}") == [1]
        manager = msgspec.structs.replace(MEMBER, roles=("manager", "member", "reader"))
        own = f"?project_id={manager.project}"
        assert await listed(own, by=manager) == [2, 1]
        rows = (await cloud.get(f"/os-migrations{own}", at="latest", by=manager)).json()["migrations"]
        assert {(row["source_compute"], row["dest_compute"], row["dest_host"]) for row in rows} == {(None, None, None)}
        for query in ("", "?project_id=p", f"{own}&host=host1"):
            assert (await cloud.get(f"/os-migrations{query}", at="latest", by=manager)).status_code == 403, query
        await second.close()
        assert await listed() == [3, 1], "a cell that is out is left out"


async def test_usage(tmp_path: Path) -> None:
    now = int(time.time() * 1e6)
    flavor = FlavorCopy(id=FlavorId("1"), name="small", vcpus=2, ram_mib=512, disk_gib=10, ephemeral_gib=1)
    async with cells_in(tmp_path, "cell1", "cell2") as cells, compute_api(tmp_path, cells=cells) as cloud:
        for number, cell in enumerate(cells.values(), 1):
            ended = now - HOUR_US if number == 2 else None
            server = server_of(number, flavor, now - 3 * HOUR_US, ended)
            await cell.write(partial(record, server=server, fence=Fence(OperationId("o"), 1, 1, 1)))
        window = window_of(now - 2 * HOUR_US)
        answer = await cloud.get(f"/os-simple-tenant-usage/{MEMBER.project}?{window}", by=MEMBER)
        usage = answer.json()["tenant_usage"]
        assert [row["state"] for row in usage["server_usages"]] == ["active", "terminated"]
        assert usage["total_hours"] == pytest.approx(3, abs=0.01)
        assert usage["total_vcpus_usage"] == pytest.approx(6, abs=0.02)
        assert (await cloud.get(f"/os-simple-tenant-usage/{MEMBER.project}", by=STRANGER)).status_code == 403
        page = (await cloud.get(f"/os-simple-tenant-usage?{window}&limit=1&detailed=1", at="2.40")).json()
        assert len(page["tenant_usages"][0]["server_usages"]) == 1
        assert "marker=00000000-0000-0000-0000-000000000001" in page["tenant_usages_links"][0]["href"]
        assert "tenant_usages_links" not in (await cloud.get(f"/os-simple-tenant-usage?{window}&limit=1")).json()
        for bad in ("start=x", "start=2026-02-01T00:00:00&end=2026-01-01T00:00:00"):
            assert (await cloud.get(f"/os-simple-tenant-usage?{bad}")).status_code == 400


async def test_the_instance_usage_audit_log_shows_progress_by_cell(tmp_path: Path) -> None:
    async with cells_in(tmp_path, "cell1", "cell2") as cells, compute_api(tmp_path, cells=cells) as cloud:
        for number in (1, 2):
            host = Host(0, new_uuid(), "", f"host{number}", f"host{number}", CellId(f"cell{number}"))
            await cells[f"cell{number}"].write(lambda tx, host=host: cell_hosts.report(tx, host, 1))
        path = "/os-instance_usage_audit_log"
        log = (await cloud.get(path)).json()["instance_usage_audit_logs"]
        assert (log["num_hosts"], log["hosts_not_run"], log["log"]) == (2, ["host1", "host2"], {})
        assert log["overall_status"] == "0 of 2 hosts done. 0 errors."
        began, ended = (int(datetime(2026, month, 1, tzinfo=UTC).timestamp() * 1e6) for month in (1, 2))
        flavor = FlavorCopy(FlavorId("1"), "m1.tiny", 2, 1024, 10)
        server = msgspec.structs.replace(server_of(1, flavor, began + HOUR_US, None), host="host1")
        for cell, place in (
            ("cell1", UsageAuditKey(ServerId("z"), 1, True)),
            ("cell2", UsageAuditKey(ServerId("y"), 1, False)),
        ):
            await cells[cell].write(lambda tx, place=place: usage_audits.put(tx, began, ended, place, 7))
        await cells["cell1"].write(partial(record, server=server, fence=Fence(OperationId("o"), 1, 1, 1)))
        shown = (await cloud.get(f"{path}/2026-03-01 00:00:00")).json()["instance_usage_audit_log"]
        assert (shown["period_beginning"], shown["period_ending"]) == ("2026-01-01 00:00:00", "2026-02-01 00:00:00")
        states = {host: (each["state"], each["instances"]) for host, each in shown["log"].items()}
        assert states == {"host1": ("DONE", 1), "host2": ("RUNNING", 0)}
        counts = [shown[f"num_hosts{what}"] for what in ("", "_done", "_running", "_not_run")]
        assert (counts, shown["total_instances"]) == ([2, 1, 1, 0], 1)
        assert shown["overall_status"] == "1 of 2 hosts done. 0 errors."
        earlier = (await cloud.get(f"{path}/2026-01-15 12:00:00.5")).json()["instance_usage_audit_log"]
        assert (earlier["period_beginning"], earlier["log"]) == ("2025-12-01 00:00:00", {})
        for bad in ("my_invalid_time", "0001-01-01 00:00:00"):
            assert (await cloud.get(f"{path}/{bad}")).status_code == 400
        assert (await cloud.get(path, by=MEMBER)).status_code == 403


def window_of(start_us: int) -> str:
    return "start=" + time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start_us / 1e6))


def server_of(number: int, flavor: FlavorCopy, launched: int, ended: int | None) -> Server:
    return Server(
        id=ServerId(f"00000000-0000-0000-0000-{number:012}"),
        project=str(MEMBER.project),
        user=MEMBER.user,
        name=f"s{number}",
        hostname=f"s{number}",
        created_at=launched,
        flavor=flavor,
        vm_state=VmState.ACTIVE,
        launched_at=launched,
        terminated_at=ended,
    )
