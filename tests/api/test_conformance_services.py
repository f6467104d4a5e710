"""What OpenStack clients expect of the embedded services, and faults that other projects' test suites found here."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_embedded_identity_people import Cloud as IdentityCloud
from tests.api.test_embedded_identity_people import cloud as identity
from tests.helpers.embedded_network_cloud import Cloud as NetworkCloud
from tests.helpers.embedded_network_cloud import cloud as network

from moorage_testing.image_app import ImageApp as ImageCloud
from moorage_testing.image_app import image_service

__all__ = ["identity", "network"]


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[ImageCloud]:
    async with image_service(tmp_path) as opened:
        yield opened


# ------------------------------------------------------------------------------------------------ identity


async def test_a_region_may_be_put_under_its_name(identity: IdentityCloud) -> None:
    answer = await identity.ask("PUT", "/regions/North", json={"region": {"description": "cold"}})
    assert (answer.status_code, answer.json()["region"]["id"]) == (201, "North")
    other = await identity.ask("PUT", "/regions/South", json={"region": {"id": "East"}})
    assert other.status_code == 400


async def test_an_endpoint_accepts_the_older_name_of_its_region(identity: IdentityCloud) -> None:
    service = (await identity.made("service", type="compute"))["id"]
    made = await identity.made("endpoint", service_id=service, interface="public", url="http://x", region="West")
    assert (made["region"], made["region_id"]) == ("West", "West")
    assert (await identity.ask("GET", "/regions/West")).status_code == 200
    unknown = {"service_id": service, "interface": "public", "url": "http://x", "region_id": "Nowhere"}
    assert (await identity.ask("POST", "/endpoints", json={"endpoint": unknown})).status_code in {400, 404}


async def test_a_project_may_be_made_a_domain(identity: IdentityCloud) -> None:
    made = await identity.made("project", name="realm", is_domain=True)
    assert (made["is_domain"], made["domain_id"], made["parent_id"]) == (True, None, None)
    as_projects = (await identity.ask("GET", "/projects?is_domain=true")).json()["projects"]
    assert made["id"] in {row["id"] for row in as_projects}
    assert (await identity.ask("GET", f"/domains/{made['id']}")).status_code == 200
    plain = (await identity.ask("GET", "/projects")).json()["projects"]
    assert made["id"] not in {row["id"] for row in plain}
    assert (await identity.ask("DELETE", f"/projects/{made['id']}")).status_code == 403
    off = await identity.ask("PATCH", f"/projects/{made['id']}", json={"project": {"enabled": False}})
    assert off.status_code == 200, off.text
    assert (await identity.ask("DELETE", f"/projects/{made['id']}")).status_code == 204


async def test_domain_roles_have_effect_only_through_implied_roles(identity: IdentityCloud) -> None:
    domain = (await identity.made("domain", name="realm"))["id"]
    local = (await identity.made("role", name="clerk", domain_id=domain))["id"]
    member = await identity.role("member")
    user = (await identity.made("user", name="u", domain_id=domain, password="secret"))["id"]
    project = (await identity.made("project", name="p", domain_id=domain))["id"]
    assert (await identity.ask("PUT", f"/projects/{project}/users/{user}/roles/{local}")).status_code == 204
    query = f"/role_assignments?effective&user.id={user}&scope.project.id={project}"
    assert (await identity.ask("GET", query)).json()["role_assignments"] == []
    assert (await identity.ask("PUT", f"/roles/{member}/implies/{local}")).status_code == 403
    pair = f"/roles/{local}/implies/{member}"
    assert (await identity.ask("GET", pair)).status_code == 404
    assert (await identity.ask("PUT", pair)).status_code == 201
    assert (await identity.ask("GET", pair)).json()["role_inference"]["implies"]["id"] == member
    assert (await identity.ask("HEAD", pair)).status_code == 204
    effective = (await identity.ask("GET", query)).json()["role_assignments"]
    reader = await identity.role("reader")
    assert {row["role"]["id"] for row in effective} == {member, reader}
    way = {"methods": ["password"], "password": {"user": {"id": user, "password": "secret"}}}
    token = await identity.login(way, {"project": {"id": project}})
    assert {role["name"] for role in token.json()["token"]["roles"]} == {"member", "reader"}


async def test_limits_are_made_in_bulk(identity: IdentityCloud) -> None:
    service = (await identity.made("service", type="compute"))["id"]
    listed = [{"service_id": service, "resource_name": name, "default_limit": 5} for name in ("a", "b")]
    made = await identity.ask("POST", "/registered_limits", json={"registered_limits": listed})
    assert made.status_code == 201, made.text
    rows = made.json()["registered_limits"]
    assert [(row["resource_name"], row["default_limit"]) for row in rows] == [("a", 5), ("b", 5)]
    assert (await identity.ask("GET", f"/registered_limits/{rows[0]['id']}")).status_code == 200
    own = [{"service_id": service, "resource_name": "a", "resource_limit": 2, "project_id": "p"}]
    assert (await identity.ask("POST", "/limits", json={"limits": own})).json()["limits"][0]["resource_limit"] == 2
    for body in ({}, {"limits": []}, {"limits": {}}, {"limits": ["x"]}, {"limits": [{}]}):
        assert (await identity.ask("POST", "/limits", json=body)).status_code == 400


# ------------------------------------------------------------------------------------------------ network


@pytest.mark.parametrize("path", ["networks", "qos/policies"])
async def test_tags_are_added_replaced_and_shown(network: NetworkCloud, path: str) -> None:
    noun = {"networks": "network", "qos/policies": "policy"}[path]
    made = (await network.ok("POST", f"/{path}", {noun: {"name": "n"}}))[noun]
    at = f"/{path}/{made['id']}"
    await network.ok("PUT", f"{at}/tags", {"tags": ["blue"]})
    assert (await network.ok("GET", at))[noun]["tags"] == ["blue"]
    added = await network.call("POST", f"{at}/tags", {"tags": ["red", "blue"]})
    assert (added.status_code, added.json()) == (201, {"tags": ["blue", "red"]})
    assert (await network.ok("GET", at))[noun]["tags"] == ["blue", "red"]
    assert (await network.call("POST", f"{at}/tags", {"tags": "red"})).status_code == 400


@pytest.mark.parametrize("content", [b"", b"null", b'"{}"', b"{}"])
async def test_a_tag_can_be_put_with_any_body(network: NetworkCloud, content: bytes) -> None:
    net = (await network.ok("POST", "/networks", {"network": {}}))["network"]
    headers = {"X-Auth-Token": "admin", "Content-Type": "application/json"}
    answer = await network.http.put(f"/v2.0/networks/{net['id']}/tags/blue", headers=headers, content=content)
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    ("said", "status", "text"),
    [
        ({"port_range_min": -16, "port_range_max": 80}, 400, "Invalid value for port -16"),
        ({"port_range_min": 80, "port_range_max": 65536}, 400, "Invalid value for port 65536"),
        ({"port_range_min": "x", "port_range_max": 80}, 400, "Invalid value for port x"),
        ({"remote_group_id": "bad_group_id"}, 404, "bad_group_id"),
    ],
)
async def test_invalid_rules_are_refused_with_keystones_messages(
    network: NetworkCloud, said: dict[str, Any], status: int, text: str
) -> None:
    group = (await network.ok("POST", "/security-groups", {"security_group": {"name": "g"}}))["security_group"]
    rule = {"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp", **said}
    answer = await network.call("POST", "/security-group-rules", {"security_group_rule": rule})
    assert answer.status_code == status
    assert text in answer.json()["NeutronError"]["message"]


async def test_no_group_is_renamed_to_default(network: NetworkCloud) -> None:
    group = (await network.ok("POST", "/security-groups", {"security_group": {"name": "g"}}))["security_group"]
    body = {"security_group": {"name": "default"}}
    assert (await network.call("PUT", f"/security-groups/{group['id']}", body)).status_code == 409


# ------------------------------------------------------------------------------------------------ image


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_image_without_a_name_is_not_the_list(image: ImageCloud, method: str) -> None:
    assert (await image.open_as("alice").request(method, "/v2/images/")).status_code == 404
