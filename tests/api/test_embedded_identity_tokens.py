"""The embedded identity service: tokens are issued, validated and revoked over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.model.errors import Unauthenticated
from moorage.sql import open_database
from moorage_embedded.identity.app import (
    Bootstrap,
    EmbeddedIdentity,
    FirstService,
    FirstUser,
    IdentitySettings,
    make_identity,
)

FIRST = Bootstrap(
    users=(
        FirstUser("admin", "secret", (("admin", "admin"), ("demo", "admin")), ("admin",)),
        FirstUser("demo", "demo-secret", (("demo", "member"),)),
        FirstUser("moorage", "service-secret", (("service", "admin"), ("service", "service"))),
    ),
    services=(
        FirstService("identity", "keystone", "http://cloud:5000/v3"),
        FirstService("object-store", "swift", "http://cloud:8080/v1/AUTH_%(project_id)s"),
    ),
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Cloud:
    """A client of the service, and the service."""

    def __init__(self, service: EmbeddedIdentity, http: httpx.AsyncClient, clock: Clock) -> None:
        self.service, self.http, self.clock = service, http, clock

    async def ask(self, method: str, path: str, token: str = "", **more: Any) -> httpx.Response:
        headers = {"X-Auth-Token": token, **more.pop("headers", {})}
        return await self.http.request(method, f"/v3{path}", headers=headers, **more)

    async def token(self, name: str, password: str, scope: Any = None) -> str:
        answer = await self.login(name, password, scope)
        assert answer.status_code == 201, answer.text
        return answer.headers["x-subject-token"]

    async def login(self, name: str, password: str, scope: Any = None) -> httpx.Response:
        user = {"name": name, "password": password, "domain": {"id": "default"}}
        return await self.auth({"methods": ["password"], "password": {"user": user}}, scope)

    async def auth(self, identity: Any, scope: Any = None) -> httpx.Response:
        auth = {"identity": identity} if scope is None else {"identity": identity, "scope": scope}
        return await self.ask("POST", "/auth/tokens", json={"auth": auth})

    async def admin(self) -> str:
        return await self.token("admin", "secret", on("admin"))


def on(project: str) -> dict[str, Any]:
    return {"project": {"name": project, "domain": {"name": "Default"}}}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[Cloud]:
    database = await open_database(f"sqlite:///{tmp_path}/identity.db", name="identity")
    clock = Clock()
    service = make_identity(
        database,
        public_url="http://cloud:5000",
        bootstrap=FIRST,
        key=b"k" * 32,
        clock=clock,
        settings=IdentitySettings(password_rounds=4),
    )
    await service.start()
    await service.start()
    transport = httpx.ASGITransport(service.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://cloud:5000") as http:
        yield Cloud(service, http, clock)
    service.close()
    await database.close()


async def test_versions(cloud: Cloud) -> None:
    every = await cloud.http.get("/")
    assert every.status_code == 300
    assert every.json()["versions"]["values"][0]["links"][0]["href"] == "http://cloud:5000/v3/"
    assert (await cloud.http.get("/v3")).json()["version"]["status"] == "stable"
    missing = await cloud.http.get("/v3/nothing")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == 404


async def test_a_token_shows_user_scope_and_roles(cloud: Cloud) -> None:
    answer = await cloud.login("admin", "secret", on("admin"))
    token = answer.json()["token"]
    assert {role["name"] for role in token["roles"]} == {"admin", "manager", "member", "reader"}
    assert token["project"]["name"] == "admin"
    assert token["methods"] == ["password"]
    assert token["is_domain"] is False
    assert [one["type"] for one in token["catalog"]] == ["identity", "object-store"]
    urls = {one["url"] for one in token["catalog"][1]["endpoints"]}
    assert urls == {f"http://cloud:8080/v1/AUTH_{token['project']['id']}"}
    assert answer.headers["vary"] == "X-Auth-Token"
    assert answer.headers["x-openstack-request-id"].startswith("req-")
    principal = await cloud.service.validate(answer.headers["x-subject-token"])
    assert principal.project == token["project"]["id"]
    assert set(principal.roles) == {"admin", "manager", "member", "reader"}


async def test_scopes(cloud: Cloud) -> None:
    unscoped = (await cloud.login("demo", "demo-secret")).json()["token"]
    assert not {"project", "roles", "catalog"} & unscoped.keys()
    system = (await cloud.login("admin", "secret", {"system": {"all": True}})).json()["token"]
    assert system["system"] == {"all": True}
    assert (await cloud.login("demo", "demo-secret", on("admin"))).status_code == 401
    assert (await cloud.login("demo", "demo-secret", {"domain": {"id": "default"}})).status_code == 401


@pytest.mark.parametrize(("name", "password"), [("admin", "wrong"), ("nobody", "secret"), ("admin", "")])
async def test_a_wrong_password_or_name_is_401(cloud: Cloud, name: str, password: str) -> None:
    refused = await cloud.login(name, password)
    assert refused.status_code == 401
    assert refused.json()["error"]["title"] == "Unauthorized"
    assert "www-authenticate" in refused.headers


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"auth": {}}', b'{"auth": {"identity": {"methods": "password"}}}'])
async def test_an_unreadable_request_is_400(cloud: Cloud, body: bytes) -> None:
    assert (await cloud.http.post("/v3/auth/tokens", content=body)).status_code == 400


async def test_a_body_has_a_limit(cloud: Cloud) -> None:
    assert (await cloud.http.post("/v3/auth/tokens", content=b" " * 200_000)).status_code == 413


async def test_show_and_revoke_with_the_chain(cloud: Cloud) -> None:
    admin = await cloud.admin()
    first = await cloud.token("demo", "demo-secret")
    second = await cloud.auth({"methods": ["token"], "token": {"id": first}}, on("demo"))
    scoped = second.headers["x-subject-token"]
    shown = await cloud.ask("GET", "/auth/tokens?nocatalog", admin, headers={"X-Subject-Token": scoped})
    assert shown.status_code == 200
    assert "catalog" not in shown.json()["token"]
    assert shown.json()["token"]["methods"] == ["password", "token"]
    assert len(shown.json()["token"]["audit_ids"]) == 2
    assert (await cloud.ask("HEAD", "/auth/tokens", admin, headers={"X-Subject-Token": scoped})).status_code == 200
    await cloud.service.validate(scoped)
    gone = await cloud.ask("DELETE", "/auth/tokens", first, headers={"X-Subject-Token": first})
    assert gone.status_code == 204
    with pytest.raises(Unauthenticated):
        await cloud.service.validate(scoped)
    assert (await cloud.ask("GET", "/auth/tokens", admin, headers={"X-Subject-Token": scoped})).status_code == 404


async def test_a_rescoped_token_expires_with_the_first(cloud: Cloud) -> None:
    first = await cloud.token("demo", "demo-secret")
    cloud.clock.now += 3000
    second = await cloud.auth({"methods": ["token"], "token": {"id": first}}, on("demo"))
    await cloud.service.validate(second.headers["x-subject-token"])
    cloud.clock.now += 601
    with pytest.raises(Unauthenticated):
        await cloud.service.validate(second.headers["x-subject-token"])


async def test_a_token_of_another_key_or_a_changed_one_is_refused(cloud: Cloud) -> None:
    token = await cloud.token("demo", "demo-secret")
    for bad in (token[:-2], "x" * 5000, "", token[:40] + "AAAA" + token[44:]):
        with pytest.raises(Unauthenticated):
            await cloud.service.validate(bad)


async def test_tokens_end_when_a_role_is_removed_or_a_user_disabled(cloud: Cloud) -> None:
    admin, demo = await cloud.admin(), await cloud.token("demo", "demo-secret", on("demo"))
    principal = await cloud.service.validate(demo)
    role = (await cloud.ask("GET", "/roles?name=member", admin)).json()["roles"][0]["id"]
    path = f"/projects/{principal.project}/users/{principal.user}/roles/{role}"
    assert (await cloud.ask("DELETE", path, admin)).status_code == 204
    with pytest.raises(Unauthenticated):
        await cloud.service.validate(demo)
    assert (await cloud.ask("PUT", path, admin)).status_code == 204
    await cloud.service.validate(demo)
    cloud.clock.now += 1
    closed = await cloud.ask("PATCH", f"/users/{principal.user}", admin, json={"user": {"enabled": False}})
    assert closed.json()["user"]["enabled"] is False
    with pytest.raises(Unauthenticated):
        await cloud.service.validate(demo)


async def test_projects_domains_and_catalog_of_a_token(cloud: Cloud) -> None:
    token = await cloud.token("demo", "demo-secret")
    projects = (await cloud.ask("GET", "/auth/projects", token)).json()["projects"]
    assert [one["name"] for one in projects] == ["demo"]
    assert (await cloud.ask("GET", "/auth/domains", token)).json()["domains"] == []
    assert (await cloud.ask("GET", "/auth/system", token)).json()["system"] == []
    assert (await cloud.ask("GET", "/auth/catalog", token)).status_code == 403
