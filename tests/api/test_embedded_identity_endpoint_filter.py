"""The embedded identity service: groups of endpoints, and catalogs that are limited by project."""

from typing import Any

import pytest
from tests.api.test_embedded_identity_people import Cloud, cloud, with_password

from moorage_embedded.identity import endpoint_filter

__all__ = ["cloud"]

ON_SQLITE = pytest.mark.parametrize("cloud", ["sqlite"], indirect=True)
"""For what no database has a part in."""

GROUPS = "/OS-EP-FILTER/endpoint_groups"


async def _service(cloud: Cloud, type_: str, *interfaces: str) -> tuple[str, dict[str, str]]:
    service = str((await cloud.made("service", type=type_, name=type_))["id"])
    ids: dict[str, str] = {}
    for interface in interfaces:
        made = await cloud.made("endpoint", service_id=service, interface=interface, url="http://a/$(project_id)s")
        ids[interface] = made["id"]
    return service, ids


async def _group(cloud: Cloud, **filters: Any) -> str:
    made = await cloud.ask("POST", GROUPS, json={"endpoint_group": {"name": "g", "filters": filters}})
    assert made.status_code == 201, made.text
    return str(made.json()["endpoint_group"]["id"])


async def test_a_catalog_has_the_endpoints_of_its_project(cloud: Cloud) -> None:
    project, user = await cloud.made("project", name="p"), await cloud.made("user", name="u", password="pw")
    mine = f"/projects/{project['id']}"
    assert (await cloud.ask("PUT", f"{mine}/users/{user['id']}/roles/{await cloud.role('member')}")).status_code == 204
    _, one = await _service(cloud, "one", "public", "internal")
    _, two = await _service(cloud, "two", "public")
    scope = {"project": {"id": project["id"]}}

    async def catalog() -> dict[str, set[str]]:
        issued = await cloud.login(with_password(user["id"], "pw"), scope)
        token, found = issued.headers["x-subject-token"], issued.json()["token"]["catalog"]
        assert (await cloud.ask("GET", "/auth/catalog", token)).json()["catalog"] == found
        return {each["name"]: {endpoint["id"] for endpoint in each["endpoints"]} for each in found}

    async def own() -> set[str]:
        answer = await cloud.ask("GET", f"/OS-EP-FILTER{mine}/endpoints")
        return {each["id"] for each in answer.json()["endpoints"]}

    expected = {"one": set(one.values()), "two": set(two.values())}
    assert await catalog() == expected
    direct = f"/OS-EP-FILTER{mine}/endpoints/{one['public']}"
    for method, status in (("HEAD", 404), ("DELETE", 404), ("PUT", 204), ("PUT", 409), ("GET", 204), ("HEAD", 204)):
        assert (await cloud.ask(method, direct)).status_code == status, method
    assert await catalog() == {"one": {one["public"]}}
    having = (await cloud.ask("GET", f"/OS-EP-FILTER/endpoints/{one['public']}/projects")).json()["projects"]
    assert [each["id"] for each in having] == [project["id"]]

    group = await _group(cloud, interface="internal")
    pair = f"{GROUPS}/{group}/projects/{project['id']}"
    for method, status in (("HEAD", 404), ("DELETE", 404), ("PUT", 204), ("PUT", 409), ("HEAD", 200)):
        assert (await cloud.ask(method, pair)).status_code == status, method
    assert (await cloud.ask("GET", pair)).json() == {
        "project_endpoint_group": {
            "endpoint_group_id": group, "project_id": project["id"],
            "links": {"self": f"/OS-EP-FILTER/endpoint_groups/{group}/projects/{project['id']}"},
        }
    }  # fmt: skip
    assert await catalog() == {"one": set(one.values())}
    assert await own() == set(one.values())
    groups = (await cloud.ask("GET", f"/OS-EP-FILTER{mine}/endpoint_groups")).json()["endpoint_groups"]
    assert [each["id"] for each in groups] == [group]
    members = (await cloud.ask("GET", f"{GROUPS}/{group}/projects")).json()["projects"]
    assert [each["id"] for each in members] == [project["id"]]
    # a group is what its filters say today; one of nothing limits nothing
    changed = {"endpoint_group": {"filters": {"interface": "public"}}}
    assert (await cloud.ask("PATCH", f"{GROUPS}/{group}", json=changed)).status_code == 200
    assert await catalog() == {"one": {one["public"]}, "two": set(two.values())}
    assert (await cloud.ask("DELETE", direct)).status_code == 204
    nothing = {"endpoint_group": {"filters": {"region_id": "nowhere"}}}
    assert (await cloud.ask("PATCH", f"{GROUPS}/{group}", json=nothing)).status_code == 200
    assert await own() == set()
    assert await catalog() == expected
    # what goes, goes from here too: a group, an endpoint, a service's endpoints, a project
    assert (await cloud.ask("DELETE", f"{GROUPS}/{group}")).status_code == 204
    assert (await cloud.ask("GET", f"{GROUPS}/{group}/projects")).json()["projects"] == []
    for endpoint in (one["public"], two["public"]):
        assert (await cloud.ask("PUT", f"/OS-EP-FILTER{mine}/endpoints/{endpoint}")).status_code == 204
    assert (await cloud.ask("PATCH", f"/endpoints/{one['public']}", json={"endpoint": {"enabled": False}})).is_success
    assert await catalog() == {"two": {two["public"]}}
    assert (await cloud.ask("DELETE", f"/endpoints/{one['public']}")).status_code == 204
    service = (await cloud.ask("GET", "/services?type=two")).json()["services"][0]["id"]
    assert (await cloud.ask("DELETE", f"/services/{service}")).status_code == 204
    assert await own() == set()
    assert await catalog() == {"one": {one["internal"]}}
    assert (await cloud.ask("PUT", f"/OS-EP-FILTER{mine}/endpoints/{one['internal']}")).status_code == 204
    assert (await cloud.ask("DELETE", mine)).status_code == 204
    having = (await cloud.ask("GET", f"/OS-EP-FILTER/endpoints/{one['internal']}/projects")).json()["projects"]
    assert having == []


async def test_groups_of_endpoints(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    service, ids = await _service(cloud, "one", "public", "internal")
    for said in (
        {}, {"name": "g"}, {"name": "g", "filters": {}}, {"filters": {"interface": "public"}},
        {"name": " ", "filters": {"interface": "public"}}, {"name": "g", "filters": {"interface": "middle"}},
        {"name": "g", "filters": {"enabled": True}}, {"name": "g", "filters": {"service_id": 3}},
        {"name": "g", "filters": ["interface"]}, {"name": "g", "filters": {"interface": "public"}, "more": 1},
    ):  # fmt: skip
        assert (await cloud.ask("POST", GROUPS, json={"endpoint_group": said})).status_code == 400, said
    group = await _group(cloud, interface="internal", service_id=service)
    shown = (await cloud.ask("GET", f"{GROUPS}/{group}")).json()["endpoint_group"]
    assert shown == {
        "id": group, "name": "g", "description": None, "filters": {"interface": "internal", "service_id": service},
        "links": {"self": f"http://c:5000/v3{GROUPS}/{group}"},
    }  # fmt: skip
    inside = (await cloud.ask("GET", f"{GROUPS}/{group}/endpoints")).json()["endpoints"]
    assert [each["id"] for each in inside] == [ids["internal"]]
    assert (await cloud.ask("GET", f"{GROUPS}?name=g")).json()["endpoint_groups"] == [shown]
    assert (await cloud.ask("GET", f"{GROUPS}?name=h")).json()["endpoint_groups"] == []
    assert (await cloud.ask("GET", f"{GROUPS}?filters=h")).status_code == 400
    for spoilt in ({}, {"id": "x"}, {"filters": {"url": "x"}}, {"name": None}):
        refused = await cloud.ask("PATCH", f"{GROUPS}/{group}", json={"endpoint_group": spoilt})
        assert refused.status_code == 400, spoilt
    changed = await cloud.ask("PATCH", f"{GROUPS}/{group}", json={"endpoint_group": {"description": "d"}})
    assert changed.json()["endpoint_group"] == {**shown, "description": "d"}

    project = await cloud.made("project", name="p")
    pair, direct = f"{GROUPS}/{group}/projects/{project['id']}", f"/OS-EP-FILTER/projects/{project['id']}/endpoints"
    for method, path in (
        ("GET", f"{GROUPS}/no"), ("PATCH", f"{GROUPS}/no"), ("DELETE", f"{GROUPS}/no"), ("GET", f"{GROUPS}/no/endpoints"),
        ("PUT", f"{GROUPS}/no/projects/{project['id']}"), ("PUT", f"{GROUPS}/{group}/projects/no"),
        ("PUT", f"{direct}/no"), ("GET", f"{direct}/no"), ("DELETE", f"{direct}/no"),
        ("PUT", f"/OS-EP-FILTER/projects/no/endpoints/{ids['public']}"), ("GET", "/OS-EP-FILTER/endpoints/no/projects"),
        ("GET", "/OS-EP-FILTER/projects/no/endpoints"), ("GET", "/OS-EP-FILTER/projects/no/endpoint_groups"),
    ):  # fmt: skip
        body: Any = {"json": {"endpoint_group": {"name": "n"}}} if method == "PATCH" else {}
        assert (await cloud.ask(method, path, **body)).status_code == 404, f"{method} {path}"

    user = await cloud.made("user", name="u", password="pw")
    assert (await cloud.ask("PUT", f"/system/users/{user['id']}/roles/{await cloud.role('reader')}")).status_code == 204
    reader = (await cloud.login(with_password(user["id"], "pw"), {"system": {"all": True}})).headers["x-subject-token"]
    nobody = (await cloud.login(with_password(user["id"], "pw"))).headers["x-subject-token"]
    assert (await cloud.ask("PUT", pair)).status_code == 204
    for path in (GROUPS, f"{GROUPS}/{group}", f"{GROUPS}/{group}/endpoints", f"{GROUPS}/{group}/projects", pair, direct,
                 f"/OS-EP-FILTER/projects/{project['id']}/endpoint_groups",
                 f"/OS-EP-FILTER/endpoints/{ids['public']}/projects"):  # fmt: skip
        assert (await cloud.ask("GET", path, reader)).status_code == 200, path
        assert (await cloud.ask("GET", path, nobody)).status_code == 403, path
    for token in (reader, nobody):
        for method, path in (("DELETE", f"{GROUPS}/{group}"), ("PUT", pair), ("DELETE", pair),
                             ("PUT", f"{direct}/{ids['public']}"), ("DELETE", f"{direct}/{ids['public']}")):  # fmt: skip
            assert (await cloud.ask(method, path, token)).status_code == 403, f"{method} {path}"
        said = {"name": "n", "filters": {"interface": "public"}}
        assert (await cloud.ask("POST", GROUPS, token, json={"endpoint_group": said})).status_code == 403
        assert (await cloud.ask("PATCH", f"{GROUPS}/{group}", token, json={"endpoint_group": said})).status_code == 403

    monkeypatch.setattr(endpoint_filter, "GROUPS_MAX", 1)
    monkeypatch.setattr(endpoint_filter, "OF_A_PROJECT_MAX", 0)
    more = {"endpoint_group": {"name": "n", "filters": {"interface": "public"}}}
    assert (await cloud.ask("POST", GROUPS, json=more)).status_code == 409
    assert (await cloud.ask("PUT", f"{direct}/{ids['public']}")).status_code == 409


@ON_SQLITE
async def test_trust_lists_are_empty(cloud: Cloud) -> None:
    user = await cloud.made("user", name="u", password="pw")
    token = (await cloud.login(with_password(user["id"], "pw"))).headers["x-subject-token"]
    path = "/OS-TRUST/trusts"
    for asking, query, status in (
        (None, "", 200), (token, "", 403), (token, f"?trustor_user_id={user['id']}", 200),
        (token, f"?trustee_user_id={user['id']}", 200), (token, "?trustor_user_id=other", 403),
    ):  # fmt: skip
        answer = await cloud.ask("GET", path + query, asking)
        assert answer.status_code == status, query
        assert status != 200 or answer.json()["trusts"] == []
    assert (await cloud.ask("GET", f"{path}/no")).status_code == 404
    assert (await cloud.ask("POST", path, json={"trust": {}})).status_code == 400
