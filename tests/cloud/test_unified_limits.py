"""Limits of the identity service hold as with Nova's driver: for servers, disks, key pairs and groups, and quotas show them."""

import asyncio
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start

from moorage.main import limits_command
from moorage.main.config import Hosts, Quota
from moorage.model.errors import Unavailable
from moorage.model.unified_limits import UnifiedLimits
from moorage.operations import unified_limits
from moorage.operations.class_counts import ClassCounts

UNIFIED = Quota(driver="unified_limits")


@pytest.fixture(autouse=True)
def kept_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change at the identity service holds at once."""
    monkeypatch.setattr(unified_limits, "KEPT_S", 0.0)


async def identity(running: Running, method: str, path: str, **more: Any) -> Any:
    reply = await running.admin.http.request(method, f"{running.config.api.identity.url}/v3{path}", **more)
    assert reply.status_code < 300, reply.text
    return reply.json() if reply.content else {}


async def place_of(running: Running) -> dict[str, str]:
    (service,) = (await identity(running, "GET", "/services", params={"type": "compute"}))["services"]
    endpoints = (await identity(running, "GET", "/endpoints", params={"service_id": service["id"]}))["endpoints"]
    (public,) = (each for each in endpoints if each["interface"] == "public")
    return {"service_id": service["id"], "region_id": public["region_id"]}


async def register(running: Running, **limits: int) -> None:
    place = await place_of(running)
    names = {name.replace("CLASS_", "class:"): limit for name, limit in limits.items()}
    rows = [{**place, "resource_name": name, "default_limit": limit} for name, limit in names.items()]
    await identity(running, "POST", "/registered_limits", json={"registered_limits": rows})


async def limit(running: Running, project: str, name: str, most: int) -> None:
    row = {**await place_of(running), "resource_name": name, "resource_limit": most, "project_id": project}
    await identity(running, "POST", "/limits", json={"limits": [row]})


def refused(reply: Any) -> str:
    assert reply.status_code == 403, reply.text
    return str(reply.json()["forbidden"]["message"])


async def test_servers_are_limited(start: Start) -> None:
    async with start(hosts=Hosts(count=2), quota=UNIFIED) as running, running.person("demo", "demo") as demo:
        project = demo.project
        assert refused(await demo.ask_boot("none", networks="none")) == (
            f"Project {project} is over a limit for [Resource servers is over limit of 0 due to current usage 0 and delta 1]"
        )
        gates = (await running.admin.compute("GET", "/ext/gates")).json()["gates"]
        assert any("no registered limit `servers`" in each for each in gates["warnings"])
        await register(running, servers=1)
        first = await demo.active("first", networks="none")
        said = refused(await demo.ask_boot("second", networks="none"))
        assert "Resource servers is over limit of 1 due to current usage 1 and delta 1" in said
        await limit(running, project, "servers", 2)
        second = await demo.active("second", networks="none")
        await demo.gone(first["id"])
        await demo.gone(second["id"])


async def test_disks_are_counted_from_the_servers_that_exist(start: Start) -> None:
    async with start(hosts=Hosts(count=2), quota=UNIFIED) as running, running.person("demo", "demo") as demo:
        await register(running, servers=-1)
        first = await demo.active("before", networks="none")
        gib = (await demo.compute("GET", f"/servers/{first['id']}")).json()["server"]["flavor"]["disk"]
        assert gib > 0
        await register(running, CLASS_DISK_GB=2 * gib)
        second = await demo.active("within", networks="none")
        said = refused(await demo.ask_boot("beyond", networks="none"))
        assert (
            f"Resource class:DISK_GB is over limit of {2 * gib} due to current usage {2 * gib} and delta {gib}" in said
        )
        await demo.gone(first["id"])
        third = await demo.active("again", networks="none")
        for each in (second, third):
            await demo.gone(each["id"])


async def test_boots_at_once_do_not_exceed_a_limit_of_disks(start: Start) -> None:
    async with start(hosts=Hosts(count=2), quota=UNIFIED) as running, running.person("demo", "demo") as demo:
        await register(running, servers=-1)
        first = await demo.active("before", networks="none")
        gib = (await demo.compute("GET", f"/servers/{first['id']}")).json()["server"]["flavor"]["disk"]
        await register(running, CLASS_DISK_GB=3 * gib)
        replies = await asyncio.gather(*(demo.ask_boot(f"s{number}", networks="none") for number in range(6)))
        assert sorted(each.status_code for each in replies) == [202] * 2 + [403] * 4
        assert all("Resource class:DISK_GB" in refused(each) for each in replies if each.status_code == 403)
        for each in replies:
            if each.status_code == 202:
                await demo.gone(each.json()["server"]["id"])
        await demo.gone(first["id"])


async def test_only_who_takes_from_a_quota_waits_for_its_count(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cell_is_out(_: ClassCounts, limits: UnifiedLimits) -> None:
        if limits.limited_classes():
            raise Unavailable("The cell cell1 does not answer.")

    monkeypatch.setattr(ClassCounts, "ready", cell_is_out)
    async with start(hosts=Hosts(count=1), quota=UNIFIED) as running, running.person("demo", "demo") as demo:
        await register(running, servers=-1, CLASS_DISK_GB=1000)
        assert (await demo.ask_boot("counted", networks="none")).status_code == 503
        assert (await demo.compute("GET", "/limits")).status_code == 200
        assert (await running.admin.compute("GET", f"/os-quota-sets/{demo.project}")).status_code == 200
        group = {"server_group": {"name": "g", "policy": "affinity"}}
        assert (await demo.compute("POST", "/os-server-groups", group)).status_code == 200


async def test_key_pairs_groups_and_metadata_are_limited(start: Start) -> None:
    async with start(hosts=Hosts(count=1), quota=UNIFIED) as running, running.person("demo", "demo") as demo:
        await register(running, servers=-1, server_key_pairs=0, server_groups=0, server_metadata_items=1)
        key = {
            "keypair": {
                "name": "k",
                "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
            }
        }
        assert refused(await demo.compute("POST", "/os-keypairs", key)) == (
            "Project None is over a limit for "
            "[Resource server_key_pairs is over limit of 0 due to current usage 0 and delta 1]"
        )
        group = {"server_group": {"name": "g", "policy": "affinity"}}
        assert refused(await demo.compute("POST", "/os-server-groups", group)) == (
            "Project None is over a limit for "
            "[Resource server_groups is over limit of 0 due to current usage 0 and delta 1]"
        )
        assert "Resource server_metadata_items is over limit of 1 due to current usage 0 and delta 2" in refused(
            await demo.ask_boot("much", metadata={"a": "b", "c": "d"}, networks="none")
        )


async def test_quotas_show_limits_and_change_none(start: Start) -> None:
    async with start(hosts=Hosts(count=1), quota=UNIFIED) as running:
        admin = running.admin
        await register(running, servers=3, CLASS_VCPU=8, server_groups=4)
        path = f"/os-quota-sets/{admin.project}"
        await limit(running, admin.project, "servers", 5)
        shown = (await admin.compute("GET", path)).json()["quota_set"]
        assert (shown["instances"], shown["cores"], shown["ram"], shown["server_groups"]) == (5, 8, 0, 4)
        changed = await admin.compute("PUT", path, {"quota_set": {"instances": 99}})
        assert (changed.status_code, changed.json()["quota_set"]["instances"]) == (200, 5)
        assert (await admin.compute("DELETE", path)).status_code == 202
        defaults = (await admin.compute("GET", f"{path}/defaults")).json()["quota_set"]
        assert defaults["instances"] == 3
        classes = await admin.compute("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"instances": 99}})
        assert classes.json()["quota_class_set"]["instances"] == 3
        absolute = (await admin.compute("GET", "/limits")).json()["limits"]["absolute"]
        assert (absolute["maxTotalInstances"], absolute["maxTotalCores"]) == (5, 8)


async def test_the_migration_copies_what_is_missing(
    start: Start, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start(hosts=Hosts(count=1), quota=Quota(instances=7)) as running:
        admin = running.admin
        await register(running, servers=3)
        quotas = {"quota_set": {"cores": 40}}
        assert (await admin.compute("PUT", f"/os-quota-sets/{admin.project}", quotas)).status_code == 200
        file = tmp_path_factory.mktemp("migration") / "moorage.toml"
        port = running.config.api.identity.port
        file.write_text(f'data_dir = "{running.config.data}"\n[api.identity]\nport = {port}\n[quota]\ninstances = 7\n')

        async def run(*more: str) -> int:
            words = ["migrate", "--config", str(file), "--project-id", admin.project, *more]
            return await asyncio.to_thread(limits_command.main, words)

        async def found(kind: str, value: str) -> dict[str, int]:
            rows = (await identity(running, "GET", f"/{kind}", params=await place_of(running)))[kind]
            return {each["resource_name"]: each[value] for each in rows}

        assert await run("--dry-run") == limits_command.MISSING
        assert await found("registered_limits", "default_limit") == {"servers": 3}
        assert await run("--verbose") == limits_command.MISSING
        printed = capsys.readouterr().out
        assert "registered limit servers = 3 exists and stays" in printed
        assert "class:DISK_GB: no registered limit" in printed
        registered = await found("registered_limits", "default_limit")
        assert (registered["servers"], registered["class:VCPU"], registered["class:PCPU"]) == (3, 20, 20)
        assert await found("limits", "resource_limit") == {"class:VCPU": 40, "class:PCPU": 40}
        await register(running, CLASS_DISK_GB=-1)
        assert await run() == limits_command.DONE
        assert await found("limits", "resource_limit") == {"class:VCPU": 40, "class:PCPU": 40}
        assert await run("--verbose", "--quiet") == limits_command.FAILED
