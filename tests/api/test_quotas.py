"""Limits and quotas, at the versions where something about them changed."""

from typing import Any

from moorage.store.region import quotas
from moorage_testing.compute_app import ADMIN, MEMBER, READER, STRANGER, ApiClient
from moorage_testing.fake_server_service import a_server

PATH = f"/os-quota-sets/{MEMBER.project}"
EVERYTHING = {
    "instances": 10, "cores": 20, "ram": 51200, "fixed_ips": -1, "floating_ips": -1, "metadata_items": 128,
    "injected_files": 5, "injected_file_content_bytes": 10240, "injected_file_path_bytes": 255, "key_pairs": 100,
    "security_groups": -1, "security_group_rules": -1, "server_groups": 10, "server_group_members": 10,
}  # fmt: skip
NETWORK = {"fixed_ips", "floating_ips", "security_groups", "security_group_rules"}
INJECTED = {"injected_files", "injected_file_content_bytes", "injected_file_path_bytes"}


def without(*names: set[str]) -> dict[str, int]:
    gone = set().union(*names)
    return {name: limit for name, limit in EVERYTHING.items() if name not in gone}


async def test_quota_sets_by_version(cloud: ApiClient) -> None:
    for at, shown in (("2.35", EVERYTHING), ("2.36", without(NETWORK)), ("2.57", without(NETWORK, INJECTED))):
        for path in (PATH, PATH + "/defaults"):
            answer = await cloud.get(path, at=at, by=READER)
            assert answer.json()["quota_set"] == {"id": MEMBER.project, **shown}
        detail = (await cloud.get(PATH + "/detail", at=at, by=READER)).json()["quota_set"]
        assert set(detail) == {"id", *shown}
        assert detail["cores"] == {"limit": 20, "in_use": 0, "reserved": 0}
    assert (await cloud.get(PATH, by=STRANGER)).status_code == 403


async def test_setting_and_forgetting(cloud: ApiClient) -> None:
    new = {"quota_set": {"cores": "7", "instances": -1}}
    assert (await cloud.ask("PUT", PATH, new, by=MEMBER)).status_code == 403
    changed = await cloud.ask("PUT", PATH, new, at="latest")
    assert changed.json()["quota_set"] == {**without(NETWORK, INJECTED), "cores": 7, "instances": -1}
    for at, name in (("2.36", "fixed_ips"), ("2.57", "injected_files"), ("2.1", "wings")):
        refused = await cloud.ask("PUT", PATH, {"quota_set": {name: 1}}, at=at)
        assert (refused.status_code, name in refused.text) == (400, True)
    assert (await cloud.ask("PUT", PATH, {"quota_set": {"cores": -2}})).status_code == 400
    assert (await cloud.ask("DELETE", PATH)).status_code == 202
    assert (await cloud.get(PATH)).json()["quota_set"]["cores"] == 20


async def test_a_limit_below_what_is_used_needs_force(cloud: ApiClient) -> None:
    used = {"instances": 4, "cores": 8, "ram": 100}
    await cloud.context.region.write(lambda tx: quotas.reserve(tx, str(MEMBER.project), used))
    refused = await cloud.ask("PUT", PATH, {"quota_set": {"ram": 900, "cores": 7}})
    assert refused.json()["badRequest"]["message"] == (
        "Quota limit 7 for cores must be greater than or equal to already used and reserved 8."
    )
    assert (await cloud.get(PATH)).json()["quota_set"]["ram"] == 51200
    assert (await cloud.ask("PUT", PATH, {"quota_set": {"cores": 7, "force": "on"}})).status_code == 200
    assert (await cloud.get(PATH + "/detail")).json()["quota_set"]["cores"] == {"limit": 7, "in_use": 8, "reserved": 0}


async def test_classes(cloud: ApiClient) -> None:
    groups = {"server_groups", "server_group_members"}
    for at, shown in (
        ("2.49", without(groups)),
        ("2.50", without(NETWORK)),
        ("2.57", without(NETWORK, INJECTED)),
    ):
        answer = await cloud.get("/os-quota-class-sets/default", at=at)
        assert answer.json()["quota_class_set"] == {"id": "default", **shown}
    new = {"quota_class_set": {"cores": 3}}
    changed = await cloud.ask("PUT", "/os-quota-class-sets/default", new, at="2.57")
    assert changed.json()["quota_class_set"] == {**without(NETWORK, INJECTED), "cores": 3}
    assert (await cloud.get(PATH)).json()["quota_set"]["cores"] == 3
    assert (await cloud.get("/os-quota-class-sets/default", by=MEMBER)).status_code == 403
    future = {"quota_class_set": {"fixed_ips": 3}}
    assert (await cloud.ask("PUT", "/os-quota-class-sets/default", future, at="2.50")).status_code == 400


async def test_limits_by_version(cloud: ApiClient) -> None:
    await cloud.context.region.write(
        lambda tx: quotas.reserve(tx, str(MEMBER.project), {"instances": 1, "cores": 2, "ram": 3})
    )
    oldest = (await cloud.get("/limits", by=MEMBER)).json()["limits"]
    assert oldest["rate"] == []
    assert len(oldest["absolute"]) == 19
    assert (oldest["absolute"]["totalCoresUsed"], oldest["absolute"]["maxTotalCores"]) == (2, 20)

    async def gone(at: str) -> set[str]:
        return set(oldest["absolute"]) - set(
            (await cloud.get("/limits", at=at, by=MEMBER)).json()["limits"]["absolute"]
        )

    network = {
        "maxSecurityGroups", "maxSecurityGroupRules", "maxTotalFloatingIps", "totalFloatingIpsUsed",
        "totalSecurityGroupsUsed",
    }  # fmt: skip
    assert await gone("2.36") == network
    assert await gone("2.39") == network | {"maxImageMeta"}
    assert await gone("2.57") == network | {"maxImageMeta", "maxPersonality", "maxPersonalitySize"}
    other = await cloud.get(f"/limits?tenant_id={MEMBER.project}")
    assert other.json()["limits"]["absolute"]["totalInstancesUsed"] == 1
    assert (await cloud.get(f"/limits?tenant_id={STRANGER.project}", by=MEMBER)).status_code == 403
    assert (await cloud.get("/limits?reserved=1", at="2.74", by=MEMBER)).status_code == 200
    assert (await cloud.get("/limits?reserved=1", at="2.75", by=MEMBER)).status_code == 400


# ------------------------------------------------------------------------------------------------ users

USER = f"{PATH}?user_id={MEMBER.user}"
DETAIL = f"{PATH}/detail?user_id={MEMBER.user}"


async def refused(cloud: ApiClient, path: str, quota_set: dict[str, int | str]) -> str:
    answer = await cloud.ask("PUT", path, {"quota_set": quota_set}, at="latest")
    assert answer.status_code == 400, answer.text
    return str(answer.json()["badRequest"]["message"])


async def test_a_users_limits_default_to_the_projects_limits(cloud: ApiClient) -> None:
    everybody = (await cloud.get(PATH, at="latest")).json()["quota_set"]
    assert (await cloud.get(USER, at="latest")).json()["quota_set"] == everybody
    changed = await cloud.ask("PUT", USER, {"quota_set": {"cores": 5, "metadata_items": 2}}, at="latest")
    assert changed.json()["quota_set"] == {
        **without(NETWORK, INJECTED), "cores": 5, "metadata_items": 2,
    }  # fmt: skip
    await cloud.ask("PUT", PATH, {"quota_set": {"ram": 100_000}})
    own = (await cloud.get(USER, at="latest", by=READER)).json()["quota_set"]
    assert (own["cores"], own["ram"], own["metadata_items"]) == (5, 100_000, 2)
    assert (await cloud.get(PATH, at="latest")).json()["quota_set"]["cores"] == 20
    assert (await cloud.ask("PUT", USER, {"quota_set": {"cores": 6}}, by=MEMBER)).status_code == 403
    assert (await cloud.ask("DELETE", USER)).status_code == 202
    assert (await cloud.get(USER, at="latest")).json()["quota_set"]["cores"] == 20
    await cloud.ask("PUT", USER, {"quota_set": {"cores": 5}})
    assert (await cloud.ask("DELETE", PATH)).status_code == 202  # the project's, and all of its users'
    assert (await cloud.get(USER, at="latest")).json()["quota_set"]["cores"] == 20


async def test_limits_of_users_are_within_the_projects_limits(cloud: ApiClient) -> None:
    beyond = await refused(cloud, USER, {"cores": 21})
    assert beyond == "Quota limit 21 for cores must be less than or equal to 20."
    assert "less than or equal to 20" in await refused(cloud, USER, {"cores": -1})
    other = f"{PATH}?user_id={READER.user}"
    assert (await cloud.ask("PUT", other, {"quota_set": {"cores": 15}})).status_code == 200
    assert "less than or equal to 5" in await refused(cloud, USER, {"cores": 6})
    assert "less than or equal to 20" in await refused(cloud, other, {"cores": 21})  # what one has is theirs to keep
    given = await refused(cloud, PATH, {"cores": 14})
    assert given == "Quota limit 14 for cores must be greater than or equal to already used and reserved 15."
    assert (await cloud.ask("PUT", PATH, {"quota_set": {"cores": 14, "force": "true"}})).status_code == 200
    assert (await cloud.ask("PUT", USER, {"quota_set": {"cores": 60, "force": True}})).status_code == 200
    assert (await cloud.ask("PUT", USER, {"quota_set": {"floating_ips": 7}}, at="2.35")).status_code == 200
    assert (await cloud.get(PATH, at="2.35")).json()["quota_set"]["floating_ips"] == 7  # of projects only


async def test_usage_of_a_user_counts_its_servers_in_all_cells(servers: Any) -> None:
    await servers.keep(
        a_server(1), a_server(2, cell=None, host=None), a_server(3, user=READER.user), a_server(4, deleted_at=5)
    )
    used = (await servers.get(DETAIL, at="latest")).json()["quota_set"]
    assert {name: used[name]["in_use"] for name in ("instances", "cores", "ram", "server_groups")} == {
        "instances": 2, "cores": 2, "ram": 1024, "server_groups": 0,
    }  # fmt: skip
    below = await refused(servers, USER, {"instances": 1})
    assert below == "Quota limit 1 for instances must be greater than or equal to already used and reserved 2."
    limited = {"instances": 2, "server_groups": 1, "key_pairs": 0, "metadata_items": 0}
    assert (await servers.ask("PUT", USER, {"quota_set": limited})).status_code == 200
    short = await servers.context.region.write(
        lambda tx: quotas.reserve(tx, str(MEMBER.project), {"instances": 1, "cores": 1, "ram": 1}, user=MEMBER.user)
    )
    assert short is not None
    assert (short.over[0].used, short.over[0].limit) == (2, 2)
    group = {"server_group": {"name": "g", "policies": ["affinity"]}}
    assert (await servers.ask("POST", "/os-server-groups", group, by=MEMBER)).status_code == 200
    assert (await servers.ask("POST", "/os-server-groups", group, by=MEMBER)).status_code == 403
    assert (await servers.ask("POST", "/os-server-groups", group, by=ADMIN)).status_code == 200
    key = {"keypair": {"name": "k"}}
    assert (await servers.ask("POST", "/os-keypairs", key, by=MEMBER)).status_code == 403
    metadata = await servers.make(metadata={"a": "b"})
    assert metadata.status_code == 403, metadata.text
