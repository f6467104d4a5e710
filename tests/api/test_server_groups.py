"""Server groups, at the versions where something about them changed."""

from typing import Any

import pytest

from moorage_testing.compute_app import ADMIN, MEMBER, READER, STRANGER, ApiClient


async def make(cloud: ApiClient, at: str = "latest", by: Any = MEMBER, **fields: Any) -> Any:
    return await cloud.ask("POST", "/os-server-groups", {"server_group": {"name": "g", **fields}}, at=at, by=by)


async def test_shapes_by_version(cloud: ApiClient) -> None:
    made = (await make(cloud, policy="anti-affinity", rules={"max_server_per_host": "3"})).json()["server_group"]
    whose = {"project_id": MEMBER.project, "user_id": MEMBER.user}
    base = {"id": made["id"], "name": "g", "members": []}
    assert made == {**base, **whose, "policy": "anti-affinity", "rules": {"max_server_per_host": 3}}
    path = f"/os-server-groups/{made['id']}"
    old = {**base, "policies": ["anti-affinity"], "metadata": {}}
    assert (await cloud.get(path, at="2.63", by=MEMBER)).json()["server_group"] == {**old, **whose}
    assert (await cloud.get(path, at="2.12", by=MEMBER)).json()["server_group"] == old
    assert (await cloud.get("/os-server-groups", at="2.12", by=MEMBER)).json()["server_groups"] == [old]


@pytest.mark.parametrize(
    ("at", "fields", "status"),
    [
        ("2.14", {"policies": ["soft-affinity"]}, 400),
        ("2.15", {"policies": ["soft-affinity"]}, 200),
        ("2.15", {"policies": []}, 400),
        ("2.15", {"policies": ["affinity", "anti-affinity"]}, 400),
        ("2.15", {"policies": ["together"]}, 400),
        ("2.63", {"policy": "affinity"}, 400),
        ("2.64", {"policies": ["affinity"]}, 400),
        ("2.64", {"policy": "affinity"}, 200),
        ("2.64", {"policy": "affinity", "rules": {"max_server_per_host": 2}}, 400),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": 0}}, 400),
        ("2.64", {}, 400),
    ],
)
async def test_valid_and_invalid_server_groups(cloud: ApiClient, at: str, fields: dict[str, Any], status: int) -> None:
    assert (await make(cloud, at=at, **fields)).status_code == status


async def test_server_groups_of_other_projects_are_hidden(cloud: ApiClient) -> None:
    group = (await make(cloud, policy="affinity")).json()["server_group"]["id"]
    assert (await cloud.get(f"/os-server-groups/{group}", by=STRANGER)).status_code == 403
    assert (await cloud.get("/os-server-groups", by=STRANGER)).json()["server_groups"] == []
    assert (await cloud.get("/os-server-groups?all_projects=1", by=STRANGER)).json()["server_groups"] == []
    assert len((await cloud.get("/os-server-groups?all_projects=1")).json()["server_groups"]) == 1
    assert (await make(cloud, by=READER, policy="affinity")).status_code == 403
    assert (await cloud.ask("DELETE", f"/os-server-groups/{group}", by=STRANGER)).status_code == 403
    assert (await cloud.ask("DELETE", f"/os-server-groups/{group}", by=MEMBER)).status_code == 204
    gone = await cloud.get(f"/os-server-groups/{group}", by=ADMIN)
    assert gone.json()["itemNotFound"]["message"] == f"Instance group {group} could not be found."


async def test_the_number_of_server_groups_is_limited(cloud: ApiClient) -> None:
    await cloud.ask("PUT", f"/os-quota-sets/{MEMBER.project}", {"quota_set": {"server_groups": 1}})
    assert (await make(cloud, policy="affinity")).status_code == 200
    refused = await make(cloud, policy="affinity")
    assert refused.json()["forbidden"]["message"] == "Quota exceeded, too many server groups."
    assert len((await cloud.get("/os-server-groups?limit=1&offset=1", by=MEMBER)).json()["server_groups"]) == 0
