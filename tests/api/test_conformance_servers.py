"""What OpenStack clients send and expect of servers, and faults that other projects' test suites found here."""

from typing import Any

import pytest

from moorage_testing.compute_app import ADMIN, MEMBER, ApiClient
from moorage_testing.fake_server_service import a_server

ME = f"/servers/{a_server().id}"


@pytest.mark.parametrize("at", ["2.1", "2.70", "2.71", "latest"])
async def test_lists_never_show_server_groups(servers: Any, at: str) -> None:
    await servers.keep(a_server())
    rows = (await servers.get("/servers/detail?all_tenants=1", at=at, by=ADMIN)).json()["servers"]
    assert rows
    assert all("server_groups" not in row for row in rows)


@pytest.mark.parametrize("value", [None, {}, "", {"locked_reason": "x"}])
async def test_before_2_73_every_lock_is_shown_as_locked(servers: Any, value: object) -> None:
    await servers.keep(a_server())
    answer = await servers.ask("POST", f"{ME}/action", {"lock": value}, at="2.72")
    assert answer.status_code == 202, answer.text
    shown = await servers.shown()
    assert (shown["locked"], shown["locked_reason"]) == (True, None)


async def test_an_address_is_shown_in_its_shortest_form(servers: Any) -> None:
    await servers.keep(a_server())
    body = {"server": {"accessIPv6": "0000:0000:0000:0000:0000:babe:220.12.22.2"}}
    answer = await servers.ask("PUT", ME, body, at="2.1")
    assert answer.json()["server"]["accessIPv6"] == "::babe:dc0c:1602"


async def test_metadata_at_create_is_limited_by_the_project_quota(servers: Any) -> None:
    asked = {"quota_set": {"metadata_items": 2}}
    answer = await servers.ask("PUT", f"/os-quota-sets/{MEMBER.project}", asked, by=ADMIN)
    assert answer.status_code == 200, answer.text
    refused = await servers.make(metadata={"a": "1", "b": "2", "c": "3"})
    assert refused.status_code == 403
    assert refused.json()["forbidden"]["message"] == "Maximum number of metadata items exceeds 2"
    assert (await servers.make(metadata={"a": "1", "b": "2"})).status_code == 202
    await servers.keep(a_server())
    most = await servers.ask("PUT", f"{ME}/metadata", {"metadata": {"a": "1", "b": "2", "c": "3"}})
    assert most.status_code == 403


@pytest.mark.parametrize("path", ["/servers/", "/os-simple-tenant-usage/", "/flavors//os-extra_specs"])
async def test_an_empty_name_in_a_path_is_unknown(cloud: ApiClient, path: str) -> None:
    assert (await cloud.get(path, by=ADMIN)).status_code == 404


async def test_the_version_document_is_served_with_a_trailing_slash(cloud: ApiClient) -> None:
    for path in ("/v2.1", "/v2.1/", "/v2/"):
        assert (await cloud.http.get(path)).status_code == 200


async def test_no_aggregate_has_a_number_below_one(cloud: ApiClient) -> None:
    assert (await cloud.get("/os-aggregates/-1", by=ADMIN)).status_code == 404
    assert (await cloud.get("/os-aggregates/one", by=ADMIN)).status_code == 400


async def test_network_data_is_accepted_without_injection(servers: Any) -> None:
    await servers.keep(a_server())
    body = {"injectNetworkInfo": None}
    assert (await servers.ask("POST", f"{ME}/action", body, at="2.1", by=ADMIN)).status_code == 202
    assert (await servers.ask("POST", f"{ME}/action", body, at="2.1", by=MEMBER)).status_code == 403
    assert (await servers.ask("POST", "/servers/nobody/action", body, at="2.1", by=ADMIN)).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/servers", {"server": {"name": "a", "flavorRef": "1", "networks": "none", "key_name": None}}),
        ("POST", "/servers", {"server": {"name": "a", "flavorRef": "1", "networks": [{"uuid": None}]}}),
        ("POST", "/os-keypairs", {"keypair": {"name": "a", "public_key": None}}),
        ("POST", "/os-server-groups", {"server_group": {"name": "a", "policy": "affinity", "rules": None}}),
        ("PUT", f"/os-quota-sets/{MEMBER.project}", {"quota_set": {"cores": None}}),
        ("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"cores": None}}),
        ("PUT", ME, {"server": {"accessIPv4": None}}),
        ("POST", f"{ME}/action", {"rebuild": {"imageRef": a_server(9).id, "adminPass": None}}),
        ("POST", f"{ME}/action", {"rescue": {"rescue_image_ref": None}}),
    ],
)
async def test_optional_fields_cannot_be_null(servers: Any, method: str, path: str, body: Any) -> None:
    await servers.keep(a_server())
    answer = await servers.ask(method, path, body, at="2.64", by=ADMIN)
    assert (answer.status_code, "None is not of type" in answer.text) == (400, True), answer.text


async def test_an_empty_access_address_is_none(servers: Any) -> None:
    await servers.keep(a_server())
    answer = await servers.ask("PUT", ME, {"server": {"accessIPv4": ""}})
    assert (answer.status_code, "'' is not a 'ipv4'" in answer.text) == (400, True)


async def test_a_policy_that_is_no_text_is_refused(servers: Any) -> None:
    for policies in ([[]], [{}], [5]):
        body = {"server_group": {"name": "a", "policies": policies}}
        for at in ("2.1", "2.15"):
            assert (await servers.ask("POST", "/os-server-groups", body, at=at)).status_code == 400


async def test_base64_is_decoded_as_nova_does(servers: Any) -> None:
    """What is not of its alphabet is passed over."""
    body = {"server": {"name": "a", "flavorRef": "none such", "networks": "none", "user_data": "aGVs bG8=\r\n"}}
    answer = await servers.ask("POST", "/servers", body, at="2.37")
    assert "base64" not in answer.text
    body["server"]["user_data"] = "a"
    assert "is not a 'base64'" in (await servers.ask("POST", "/servers", body, at="2.37")).text
