"""The embedded identity service: what an administrator makes works with its own credentials, and other users may not make it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.sql import open_database
from moorage_embedded.identity.app import Bootstrap, FirstUser, IdentitySettings, make_identity

FIRST = Bootstrap(users=(FirstUser("admin", "secret", (("admin", "admin"),), ("admin",)),))


class Cloud:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http, self.admin = http, ""

    async def ask(self, method: str, path: str, token: str | None = None, **more: Any) -> httpx.Response:
        headers = {"X-Auth-Token": self.admin if token is None else token}
        return await self.http.request(method, f"/v3{path}", headers=headers, **more)

    async def made(self, noun: str, **fields: Any) -> Any:
        answer = await self.ask("POST", f"/{noun}s", json={noun: fields})
        assert answer.status_code == 201, answer.text
        return answer.json()[noun]

    async def login(self, identity: Any, scope: Any = None) -> httpx.Response:
        auth = {"identity": identity, **({} if scope is None else {"scope": scope})}
        return await self.ask("POST", "/auth/tokens", "", json={"auth": auth})

    async def role(self, name: str) -> str:
        return str((await self.ask("GET", f"/roles?name={name}")).json()["roles"][0]["id"])


def with_password(user: str, password: str) -> Any:
    return {"methods": ["password"], "password": {"user": {"id": user, "password": password}}}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def cloud(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    url = f"sqlite:///{tmp_path}/identity.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    database = await open_database(url, name="identity")
    service = make_identity(
        database, public_url="http://c:5000/v3", bootstrap=FIRST, key=b"k", settings=IdentitySettings(password_rounds=4)
    )
    await service.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service.app), base_url="http://c:5000") as http:
        made = Cloud(http)
        user = {"name": "admin", "password": "secret", "domain": {"name": "Default"}}
        identity = {"methods": ["password"], "password": {"user": user}}
        scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
        made.admin = (await made.login(identity, scope)).headers["x-subject-token"]
        yield made
    service.close()
    await database.close()


async def test_a_new_user_works_with_its_own_credentials(cloud: Cloud) -> None:
    project = await cloud.made("project", name="p", description="d")
    assert (project["domain_id"], project["parent_id"], project["is_domain"]) == ("default", "default", False)
    user = await cloud.made("user", name="u", password="pw", email="a@b.c")
    assert "password" not in user
    assert "password_hash" not in user
    scope = {"project": {"id": project["id"]}}
    assert (await cloud.login(with_password(user["id"], "pw"), scope)).status_code == 401
    grant = f"/projects/{project['id']}/users/{user['id']}/roles/{await cloud.role('member')}"
    assert (await cloud.ask("HEAD", grant)).status_code == 404
    assert (await cloud.ask("PUT", grant)).status_code == 204
    assert (await cloud.ask("HEAD", grant)).status_code == 204
    issued = await cloud.login(with_password(user["id"], "pw"), scope)
    assert [role["name"] for role in issued.json()["token"]["roles"]] == ["member", "reader"]
    token = issued.headers["x-subject-token"]
    assert (await cloud.ask("GET", f"/users/{user['id']}", token)).status_code == 200
    assert (await cloud.ask("GET", f"/projects/{project['id']}", token)).status_code == 200
    for method, path in (
        ("GET", "/users"),
        ("GET", "/projects"),
        ("DELETE", f"/users/{user['id']}"),
        ("PUT", grant),
        ("GET", "/role_assignments"),
        ("GET", "/services"),
    ):
        assert (await cloud.ask(method, path, token)).status_code == 403, path
    for path, action in (("/users", "list_users"), ("/users/nobody", "get_user"), ("/projects/none", "get_project")):
        refused = await cloud.ask("GET", path, token)
        told = f"You are not authorized to perform the requested action: identity:{action}."
        assert (refused.status_code, refused.json()["error"]["message"]) == (403, told)
    assert (await cloud.ask("POST", "/projects", token, json={"project": {"name": "q"}})).status_code == 403
    changed = {"user": {"original_password": "pw", "password": "new"}}
    assert (await cloud.ask("POST", f"/users/{user['id']}/password", "", json=changed)).status_code == 204
    assert (await cloud.ask("GET", f"/users/{user['id']}", token)).status_code == 401
    assert (await cloud.login(with_password(user["id"], "pw"))).status_code == 401
    assert (await cloud.login(with_password(user["id"], "new"), scope)).status_code == 201


async def test_projects_are_found_by_their_tags_and_show_their_relatives(cloud: Cloud) -> None:
    top = await cloud.made("project", name="top", tags=["red", "blue"])
    mid = await cloud.made("project", name="mid", parent_id=top["id"], tags=["red"])
    low = await cloud.made("project", name="low", parent_id=mid["id"])
    others = {"admin", "demo", "service"}
    for query, names in (
        ("tags=red", {"top", "mid"}),
        ("tags=red,blue", {"top"}),
        ("tags-any=blue,green", {"top"}),
        ("not-tags=red,blue", {"mid", "low"} | others),
        ("not-tags-any=red,green", {"low"} | others),
    ):
        found = (await cloud.ask("GET", f"/projects?{query}")).json()["projects"]
        assert {one["name"] for one in found} == names, query
    shown = (await cloud.ask("GET", f"/projects/{mid['id']}?parents_as_ids&subtree_as_ids=True")).json()["project"]
    assert (shown["parents"], shown["subtree"]) == ({top["id"]: {"default": None}}, {low["id"]: None})
    shown = (await cloud.ask("GET", f"/projects/{low['id']}?parents_as_list&subtree_as_ids")).json()["project"]
    assert (shown["parents"], shown["subtree"]) == ([], None), "the asker has no role above"
    (admin,) = (await cloud.ask("GET", "/users?name=admin")).json()["users"]
    inherited = f"/OS-INHERIT/projects/{top['id']}/users/{admin['id']}/roles/{await cloud.role('reader')}"
    assert (await cloud.ask("PUT", f"{inherited}/inherited_to_projects")).status_code == 204
    shown = (await cloud.ask("GET", f"/projects/{top['id']}?subtree_as_list")).json()["project"]
    assert [one["project"]["name"] for one in shown["subtree"]] == ["mid", "low"]
    effective = (await cloud.ask("GET", f"/role_assignments?effective&user.id={admin['id']}")).json()
    places = {one["scope"].get("project", {}).get("id") for one in effective["role_assignments"]}
    assert {mid["id"], low["id"]} <= places
    assert (await cloud.ask("GET", f"/projects/{low['id']}?parents_as_list&parents_as_ids")).status_code == 400


async def test_lists_of_unbuilt_resources_are_empty(cloud: Cloud) -> None:
    for place in ("identity_providers", "mappings", "service_providers"):
        listed = await cloud.ask("GET", f"/OS-FEDERATION/{place}")
        assert (listed.status_code, listed.json()[place]) == (200, [])
        assert (await cloud.ask("GET", f"/OS-FEDERATION/{place}/x")).status_code == 404
        assert (await cloud.ask("PUT", f"/OS-FEDERATION/{place}/x", json={})).status_code == 501
    assert (await cloud.ask("GET", "/OS-OAUTH1/consumers")).json()["consumers"] == []
    assert (await cloud.ask("POST", "/OS-OAUTH1/consumers", json={})).status_code == 501


async def test_domain_roles_are_listed_only_with_their_domain(cloud: Cloud) -> None:
    domain = await cloud.made("domain", name="d")
    await cloud.made("role", name="theirs", domain_id=domain["id"])
    plain = (await cloud.ask("GET", "/roles")).json()["roles"]
    assert {"admin", "member"} <= {one["name"] for one in plain}
    assert "theirs" not in {one["name"] for one in plain}
    of_domain = (await cloud.ask("GET", f"/roles?domain_id={domain['id']}")).json()["roles"]
    assert [one["name"] for one in of_domain] == ["theirs"]


async def test_roles_come_from_groups_domains_and_inheritance(cloud: Cloud) -> None:
    domain = await cloud.made("domain", name="d")
    project = await cloud.made("project", name="p", domain_id=domain["id"])
    below = await cloud.made("project", name="q", parent_id=project["id"])
    assert below["domain_id"] == domain["id"]
    user = await cloud.made("user", name="u", domain_id=domain["id"], password="pw")
    group = await cloud.made("group", name="g", domain_id=domain["id"])
    assert (await cloud.ask("PUT", f"/groups/{group['id']}/users/{user['id']}")).status_code == 204
    reader = await cloud.role("reader")
    inherited = f"/OS-INHERIT/domains/{domain['id']}/groups/{group['id']}/roles/{reader}/inherited_to_projects"
    assert (await cloud.ask("PUT", inherited)).status_code == 204
    for place in (project, below):
        issued = await cloud.login(with_password(user["id"], "pw"), {"project": {"id": place["id"]}})
        assert [role["name"] for role in issued.json()["token"]["roles"]] == ["reader"]
    on_domain = f"/domains/{domain['id']}/users/{user['id']}/roles/{await cloud.role('manager')}"
    assert (await cloud.ask("PUT", on_domain)).status_code == 204
    issued = await cloud.login(with_password(user["id"], "pw"), {"domain": {"id": domain["id"]}})
    token = issued.headers["x-subject-token"]
    mine = (await cloud.ask("GET", "/users", token)).json()["users"]
    assert [one["name"] for one in mine] == ["u"]
    roles = (await cloud.ask("GET", "/roles", token)).json()["roles"]
    assert {"member", "reader"} <= {one["name"] for one in roles}, "what a manager may give"
    assert (await cloud.ask("GET", "/users/nobody", token)).status_code == 403
    assert (await cloud.ask("DELETE", "/users/nobody", token)).status_code == 403
    other = await cloud.ask("POST", "/users", token, json={"user": {"name": "x", "domain_id": "default"}})
    assert other.status_code == 403
    assert (await cloud.ask("POST", "/users", token, json={"user": {"name": "x"}})).status_code == 403
    theirs = {"user": {"name": "x", "domain_id": domain["id"]}}
    assert (await cloud.ask("POST", "/users", token, json=theirs)).status_code == 201
    admin = on_domain.rpartition("/")[0] + "/" + await cloud.role("admin")
    assert (await cloud.ask("PUT", admin, token)).status_code == 403, "a manager makes nobody administrator"
    listed = (await cloud.ask("GET", f"/role_assignments?effective&include_names&user.id={user['id']}")).json()
    names = {(one["role"]["name"], next(iter(one["scope"]))) for one in listed["role_assignments"]}
    assert names == {("reader", "project"), ("manager", "domain"), ("member", "domain"), ("reader", "domain")}
    assert (await cloud.ask("DELETE", f"/domains/{domain['id']}")).status_code == 403
    assert (
        await cloud.ask("PATCH", f"/domains/{domain['id']}", json={"domain": {"enabled": False}})
    ).status_code == 200
    assert (await cloud.ask("DELETE", f"/domains/{domain['id']}")).status_code == 204
    assert (await cloud.ask("GET", f"/users/{user['id']}")).status_code == 404


async def test_application_credentials(cloud: Cloud) -> None:
    unnamed = await cloud.ask("GET", "/auth/tokens")
    assert unnamed.status_code == 404, "no subject token was named"
    user = (await cloud.ask("GET", "/users?name=admin")).json()["users"][0]["id"]
    path = f"/users/{user}/application_credentials"
    body = {"application_credential": {"name": "c", "roles": [{"name": "reader"}]}}
    made = (await cloud.ask("POST", path, json=body)).json()["application_credential"]
    lent = {"id": made["id"], "secret": made["secret"]}
    issued = await cloud.login({"methods": ["application_credential"], "application_credential": lent})
    assert issued.status_code == 201
    token = issued.json()["token"]
    assert [role["name"] for role in token["roles"]] == ["reader"]
    assert token["application_credential"]["restricted"] is True
    held = issued.headers["x-subject-token"]
    assert (await cloud.ask("POST", path, held, json=body)).status_code == 403
    assert (await cloud.login({"methods": ["token"], "token": {"id": held}})).status_code == 403
    assert (await cloud.ask("POST", path, json=body)).status_code == 409
    listed = (await cloud.ask("GET", path)).json()["application_credentials"]
    assert ["secret" in one or "secret_hash" in one for one in listed] == [False]
    assert (await cloud.ask("DELETE", f"{path}/{made['id']}")).status_code == 204
    assert (await cloud.ask("GET", f"/users/{user}", held)).status_code == 401


async def test_filters_duplicates_and_invalid_fields(cloud: Cloud) -> None:
    await cloud.made("project", name="alpha", tags=["t"])
    closed = await cloud.made("project", name="beta", enabled=False)
    names = (await cloud.ask("GET", "/projects?name__startswith=al")).json()["projects"]
    assert [one["name"] for one in names] == ["alpha"]
    found = (await cloud.ask("GET", "/projects?enabled=false")).json()["projects"]
    assert [one["id"] for one in found] == [closed["id"]]
    cut = (await cloud.ask("GET", "/projects?limit=1")).json()
    assert (len(cut["projects"]), cut["truncated"]) == (1, True)
    assert (await cloud.ask("POST", "/projects", json={"project": {"name": "alpha"}})).status_code == 409
    for bad in ({}, {"name": ""}, {"name": "x" * 65}, {"name": 5}, {"name": "x", "enabled": "maybe"}):
        assert (await cloud.ask("POST", "/projects", json={"project": bad})).status_code == 400
    tags = f"/projects/{closed['id']}/tags"
    assert (await cloud.ask("PUT", f"{tags}/blue")).status_code == 201
    assert (await cloud.ask("GET", tags)).json() == {"tags": ["blue"]}
    assert (await cloud.ask("DELETE", f"{tags}/blue")).status_code == 204
    assert (await cloud.ask("GET", f"{tags}/blue")).status_code == 404
    assert (await cloud.ask("DELETE", f"/projects/{closed['id']}")).status_code == 204
    assert (await cloud.ask("GET", f"/projects/{closed['id']}")).json()["error"]["title"] == "Not Found"


async def test_the_catalog_can_be_changed(cloud: Cloud) -> None:
    service = await cloud.made("service", type="compute", name="nova")
    fields = {"service_id": service["id"], "interface": "public", "region_id": "RegionOne", "url": "http://n/v2.1"}
    endpoint = await cloud.made("endpoint", **fields)
    assert endpoint["region"] == "RegionOne"
    catalog = (await cloud.ask("GET", "/auth/catalog")).json()["catalog"]
    assert catalog[0]["endpoints"][0]["url"] == "http://n/v2.1"
    odd = await cloud.ask("POST", "/endpoints", json={"endpoint": {**fields, "interface": "odd"}})
    assert odd.status_code == 400
    assert (await cloud.ask("DELETE", "/regions/RegionOne")).status_code == 409
    assert (await cloud.ask("DELETE", f"/services/{service['id']}")).status_code == 204
    assert (await cloud.ask("GET", f"/endpoints/{endpoint['id']}")).status_code == 404
    inferences = (await cloud.ask("GET", "/role_inferences")).json()["role_inferences"]
    pairs = {(one["prior_role"]["name"], one["implies"][0]["name"]) for one in inferences}
    assert pairs == {("admin", "manager"), ("manager", "member"), ("member", "reader")}


async def test_a_domain_is_listed_among_projects_only_when_asked_for(cloud: Cloud) -> None:
    plain = (await cloud.ask("GET", "/projects")).json()["projects"]
    domains = (await cloud.ask("GET", "/projects?is_domain=true")).json()["projects"]
    assert "default" not in {project["id"] for project in plain}
    assert "default" in {project["id"] for project in domains}


async def lent(cloud: Cloud, rules: Any, status: int = 201) -> Any:
    user = (await cloud.ask("GET", "/users?name=admin")).json()["users"][0]["id"]
    body = {"application_credential": {"name": f"c{id(rules)}", "secret": "s3cret", "access_rules": rules}}
    made = await cloud.ask("POST", f"/users/{user}/application_credentials", json=body)
    assert made.status_code == status, made.text
    return made.json().get("application_credential")


async def token_of(cloud: Cloud, credential: Any) -> str:
    proof = {"id": credential["id"], "secret": "s3cret"}
    issued = await cloud.login({"methods": ["application_credential"], "application_credential": proof})
    assert issued.status_code == 201, issued.text
    return str(issued.headers["x-subject-token"])


async def test_access_rules_are_returned_stored_once_and_enforced(cloud: Cloud) -> None:
    rules = [{"service": "identity", "method": "GET", "path": "/v3/auth/*"}]
    rules.append({"service": "compute", "method": "GET", "path": "/v2.1/servers/**"})
    made = await lent(cloud, rules)
    assert [{name: each[name] for name in ("service", "method", "path")} for each in made["access_rules"]] == rules
    user = made["user_id"]
    again = await lent(cloud, [rules[1], {"id": made["access_rules"][0]["id"]}])
    assert {each["id"] for each in again["access_rules"]} == {each["id"] for each in made["access_rules"]}
    path = f"/users/{user}/access_rules"
    listed = (await cloud.ask("GET", path)).json()["access_rules"]
    assert len(listed) == 2
    assert len((await cloud.ask("GET", f"{path}?service=compute")).json()["access_rules"]) == 1
    one = listed[0]
    assert (await cloud.ask("GET", f"{path}/{one['id']}")).json()["access_rule"] == one
    assert (await cloud.ask("GET", f"{path}/nobody")).status_code == 404
    assert (await cloud.ask("DELETE", f"{path}/{one['id']}")).status_code == 403
    token = await token_of(cloud, made)
    assert (await cloud.ask("GET", "/auth/projects", token)).status_code == 200
    assert (await cloud.ask("GET", "/users", token)).status_code == 401
    headers = {"X-Auth-Token": cloud.admin, "X-Subject-Token": token}
    blind = await cloud.http.get("/v3/auth/tokens", headers=headers)
    assert blind.status_code == 404, "who does not heed rules is told of no such token"
    headers["OpenStack-Identity-Access-Rules"] = "1.0"
    seen = (await cloud.http.get("/v3/auth/tokens", headers=headers)).json()["token"]
    assert seen["application_credential"]["access_rules"] == made["access_rules"]
    for each in (made, again):
        lent_at = f"/users/{user}/application_credentials/{each['id']}"
        assert (await cloud.ask("DELETE", lent_at)).status_code == 204
    assert (await cloud.ask("DELETE", f"{path}/{one['id']}")).status_code == 204


@pytest.mark.parametrize(
    "rules",
    [
        "all",
        [{"service": "compute", "method": "TRACE", "path": "/"}],
        [{"service": "compute", "method": "GET", "path": "servers"}],
        [{"service": "", "method": "GET", "path": "/"}],
        [{"service": "compute", "method": "GET", "path": "/" + "x" * 300}],
        ["x"],
    ],
)
async def test_access_rules_that_are_refused(cloud: Cloud, rules: Any) -> None:
    await lent(cloud, rules, 400)


async def test_a_credential_with_an_empty_rule_list_allows_nothing(cloud: Cloud) -> None:
    token = await token_of(cloud, await lent(cloud, []))
    assert (await cloud.ask("GET", "/auth/projects", token)).status_code == 401


async def test_credentials_of_other_kinds(cloud: Cloud) -> None:
    user = (await cloud.ask("GET", "/users?name=admin")).json()["users"][0]["id"]
    project = (await cloud.ask("GET", "/projects?name=admin")).json()["projects"][0]["id"]
    assert (await cloud.ask("GET", "/credentials")).json()["credentials"] == []
    blob = '{"access": "181920", "secret": "hush"}'
    made = await cloud.made("credential", user_id=user, project_id=project, type="ec2", blob=blob)
    assert (made["blob"], len(made["id"])) == (blob, 64)
    cert = await cloud.made("credential", user_id=user, type="cert", blob="pem")
    assert [each["id"] for each in (await cloud.ask("GET", "/credentials?type=cert")).json()["credentials"]] == [
        cert["id"]
    ]
    changed = await cloud.ask("PATCH", f"/credentials/{cert['id']}", json={"credential": {"blob": "other"}})
    assert changed.json()["credential"]["blob"] == "other"
    odd = {"credential": {"type": "x", "blob": "y"}}
    assert (await cloud.ask("PATCH", f"/credentials/{cert['id']}", json=odd)).status_code == 400
    for wrong in (
        {"user_id": user, "type": "ec2", "blob": blob},
        {"user_id": user, "type": "cert"},
        {"type": "c", "blob": "b"},
    ):
        assert (await cloud.ask("POST", "/credentials", json={"credential": wrong})).status_code in {400, 403}
    doubled = {"user_id": user, "project_id": project, "type": "ec2", "blob": blob}
    assert (await cloud.ask("POST", "/credentials", json={"credential": doubled})).status_code == 409
    assert (await cloud.ask("DELETE", f"/credentials/{cert['id']}")).status_code == 204
    assert (await cloud.ask("GET", f"/credentials/{cert['id']}")).status_code == 404


@pytest.mark.parametrize("address", ["/users?name=%00", "/users/%00"])
async def test_an_address_that_no_service_reads_is_refused(cloud: Cloud, address: str) -> None:
    assert (await cloud.ask("GET", address)).status_code == 400


async def test_versions_and_addresses_that_end_with_a_slash(cloud: Cloud) -> None:
    answers = [
        await cloud.http.request(method, path) for method, path in (("GET", "/"), ("GET", "/v3/"), ("PUT", "/v3"))
    ]
    assert [answer.status_code for answer in answers] == [300, 200, 405]
    assert answers[0].json()["versions"]["values"] == [answers[1].json()["version"]]
    elsewhere = await cloud.ask("GET", "/projects/?name=admin")
    assert (elsewhere.status_code, elsewhere.headers["location"]) == (307, "http://c:5000/v3/projects?name=admin")
    assert (await cloud.ask("GET", "/nothing/")).status_code == 404
    assert (await cloud.ask("GET", "//projects")).status_code == 404


async def test_an_end_that_is_before_the_first_year_is_refused(cloud: Cloud) -> None:
    admin = (await cloud.ask("GET", "/users?name=admin")).json()["users"][0]["id"]
    said = {"application_credential": {"name": "c", "expires_at": "0001-01-01T00:00:00+14:00"}}
    answer = await cloud.ask("POST", f"/users/{admin}/application_credentials", json=said)
    assert (answer.status_code, "expires_at" in answer.text) == (400, True)
