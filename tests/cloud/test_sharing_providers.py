"""A storage pool that shares with a rack's hosts by aggregate: groups of servers are claimed there, move with them, and are released."""

import uuid
from typing import Any

from tests.cloud.conftest import Start
from tests.cloud.test_audit import looked
from tests.helpers.resized_cloud import asked

from moorage_testing.api_user import Person

LICENCE = "CUSTOM_LICENCE"
SHARES = "MISC_SHARES_VIA_AGGREGATE"


async def call(admin: Person, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
    url = f"{admin.config.api.placement.url}/placement{path}"
    reply = await admin.http.request(method, url, json=body, headers={"OpenStack-API-Version": "placement 1.39"})
    assert reply.status_code in {status, 201, 204}, reply.text
    return reply.json() if reply.content else None


async def pool_of_all_hosts(admin: Person) -> str:
    """Twelve licences, which every host of the cloud may take from."""
    pool, rack = str(uuid.uuid4()), str(uuid.uuid4())
    await call(admin, "PUT", f"/resource_classes/{LICENCE}")
    await call(admin, "POST", "/resource_providers", {"name": "pool", "uuid": pool})
    inventories = {LICENCE: {"total": 12}}
    await call(
        admin, "PUT", f"/resource_providers/{pool}/inventories",
        {"resource_provider_generation": 0, "inventories": inventories},
    )  # fmt: skip
    await call(
        admin, "PUT", f"/resource_providers/{pool}/traits", {"resource_provider_generation": 1, "traits": [SHARES]}
    )
    found = (await call(admin, "GET", "/resource_providers"))["resource_providers"]
    for each in found:
        if each["uuid"] == pool or (each["name"].startswith("host") and ":" not in each["name"]):
            generation = (await call(admin, "GET", f"/resource_providers/{each['uuid']}"))["generation"]
            held = (await call(admin, "GET", f"/resource_providers/{each['uuid']}/aggregates"))["aggregates"]
            body = {"resource_provider_generation": generation, "aggregates": [*held, rack]}
            await call(admin, "PUT", f"/resource_providers/{each['uuid']}/aggregates", body)
    return pool


async def licences(admin: Person, pool: str) -> int:
    return int((await call(admin, "GET", f"/resource_providers/{pool}/usages"))["usages"].get(LICENCE, 0))


async def test_a_group_of_a_sharing_provider_is_claimed_moved_and_released(start: Start) -> None:
    async with start() as running:
        admin = running.admin
        pool = await pool_of_all_hosts(admin)
        flavor = {"name": "licensed", "vcpus": 1, "ram": 64, "disk": 1}
        made = (await admin.compute("POST", "/flavors", {"flavor": flavor})).json()["flavor"]["id"]
        specs = {"extra_specs": {f"resources1:{LICENCE}": "4"}}
        assert (await admin.compute("POST", f"/flavors/{made}/os-extra_specs", specs)).status_code == 200

        first = await admin.active("first", flavorRef=made)
        second = await admin.active("second", flavorRef=made)
        assert await licences(admin, pool) == 8
        third = await admin.active("third", flavorRef=made)
        full = await admin.settled(await admin.boot("full", flavorRef=made))
        assert full["status"] == "ERROR", "the pool has none left"
        assert (await looked(running))["findings"] == []

        for each in (third, full):
            await admin.gone(each["id"])

        await asked(running, first["id"], {"migrate": None}, "VERIFY_RESIZE")
        assert await licences(admin, pool) == 12, "the move holds what the server has on its old host, too"
        assert (await looked(running))["findings"] == []
        await asked(running, first["id"], {"revertResize": None}, "ACTIVE")
        assert await licences(admin, pool) == 8
        assert (await looked(running))["findings"] == []
        for each in (first, second):
            await admin.gone(each["id"])
        assert await licences(admin, pool) == 0
