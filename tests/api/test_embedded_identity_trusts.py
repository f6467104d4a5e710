"""The embedded identity service: roles are lent by trusts, and tokens are scoped to them."""

from typing import Any

import pytest
from tests.api.test_embedded_identity_tokens import Cloud, cloud, on

__all__ = ["cloud"]

HOUR_S = 3600


class Parties:
    """admin lends, demo borrows; `other` is a third."""

    def __init__(self, cloud: Cloud, admin: str, ids: dict[str, str]) -> None:
        self.cloud, self.admin, self.ids = cloud, admin, ids

    async def make(self, status: int = 201, by: str = "", **more: Any) -> Any:
        said = {
            "trustor_user_id": self.ids["admin"],
            "trustee_user_id": self.ids["demo"],
            "project_id": self.ids["project"],
            "impersonation": True,
            "roles": [{"name": "member"}],
        }
        body = {"trust": said | more}
        answer = await self.cloud.ask("POST", "/OS-TRUST/trusts", by or self.admin, json=body)
        assert answer.status_code == status, answer.text
        return answer.json().get("trust")

    async def login(self, trust: str, name: str = "demo", password: str = "demo-secret") -> Any:
        return await self.cloud.login(name, password, {"OS-TRUST:trust": {"id": trust}})

    async def get(self, path: str, by: str, status: int = 200, method: str = "GET") -> Any:
        answer = await self.cloud.ask(method, f"/OS-TRUST/trusts{path}", by)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


@pytest.fixture
async def parties(cloud: Cloud) -> Parties:
    admin = await cloud.admin()
    ids = {each["name"]: each["id"] for each in (await cloud.ask("GET", "/users", admin)).json()["users"]}
    projects = (await cloud.ask("GET", "/projects", admin)).json()["projects"]
    ids["project"] = next(each["id"] for each in projects if each["name"] == "admin")
    body = {"user": {"name": "other", "password": "other-secret", "domain_id": "default"}}
    ids["other"] = (await cloud.ask("POST", "/users", admin, json=body)).json()["user"]["id"]
    return Parties(cloud, admin, ids)


async def test_a_trust_is_made_shown_and_deleted(parties: Parties) -> None:
    trust = await parties.make()
    assert (trust["expires_at"], trust["remaining_uses"], trust["redelegation_count"]) == (None, None, 0)
    assert [each["name"] for each in trust["roles"]] == ["member"]
    assert trust["links"]["self"] == f"http://cloud:5000/v3/OS-TRUST/trusts/{trust['id']}"
    path, role = f"/{trust['id']}", trust["roles"][0]["id"]
    assert (await parties.get(path, parties.admin))["trust"] == trust
    assert [each["id"] for each in (await parties.get(f"{path}/roles", parties.admin))["roles"]] == [role]
    assert (await parties.get(f"{path}/roles/{role}", parties.admin))["role"]["name"] == "member"
    await parties.get(f"{path}/roles/none", parties.admin, 404)
    demo = await parties.cloud.token("demo", "demo-secret", on("demo"))
    other = await parties.cloud.token("other", "other-secret")
    assert (await parties.get(path, demo))["trust"]["id"] == trust["id"]
    await parties.get(path, other, 403)
    await parties.get(path, demo, 403, method="DELETE")
    for query, by, status in (
        ("", parties.admin, 200), ("", demo, 403), (f"?trustee_user_id={parties.ids['demo']}", demo, 200),
        (f"?trustor_user_id={parties.ids['admin']}", demo, 403),
    ):  # fmt: skip
        listed = await parties.get(query, by, status)
        if status == 200:
            assert [each["id"] for each in listed["trusts"]] == [trust["id"]]
            assert "roles" not in listed["trusts"][0]
    await parties.get(path, parties.admin, 204, method="DELETE")
    await parties.get(path, parties.admin, 404)


@pytest.mark.parametrize("impersonation", [True, False])
async def test_a_token_of_a_trust(parties: Parties, impersonation: bool) -> None:
    trust = await parties.make(impersonation=impersonation)
    answer = await parties.login(trust["id"])
    assert answer.status_code == 201, answer.text
    token, said = answer.headers["x-subject-token"], answer.json()["token"]
    assert said["user"]["name"] == ("admin" if impersonation else "demo")
    assert said["OS-TRUST:trust"] == {
        "id": trust["id"],
        "trustor_user": {"id": parties.ids["admin"]},
        "trustee_user": {"id": parties.ids["demo"]},
        "impersonation": impersonation,
    }
    assert said["project"]["name"] == "admin"
    assert "admin" not in {each["name"] for each in said["roles"]}
    principal = await parties.cloud.service.validate(token)
    assert (principal.project, "member" in principal.roles) == (parties.ids["project"], True)
    again = await parties.cloud.auth({"methods": ["token"], "token": {"id": token}}, on("admin"))
    assert again.status_code == 403
    user = parties.ids["admin" if impersonation else "demo"]
    for path, body in (
        (f"/users/{user}/application_credentials", {"application_credential": {"name": "mine"}}),
        (f"/users/{user}/credentials/OS-EC2", {"tenant_id": parties.ids["project"]}),
        ("/credentials", {"credential": {"user_id": user, "type": "cert", "blob": "x"}}),
    ):
        assert (await parties.cloud.ask("POST", path, token, json=body)).status_code == 403, path


async def test_only_the_trustee_gets_a_token(parties: Parties) -> None:
    trust = await parties.make()
    assert (await parties.login(trust["id"], "other", "other-secret")).status_code == 403
    assert (await parties.login("none")).status_code == 401
    both = {"OS-TRUST:trust": {"id": trust["id"]}, **on("demo")}
    assert (await parties.cloud.login("demo", "demo-secret", both)).status_code == 400
    await parties.get(f"/{trust['id']}", parties.admin, 204, method="DELETE")
    assert (await parties.login(trust["id"])).status_code == 401


async def _is_good(parties: Parties, token: str) -> bool:
    answer = await parties.cloud.ask("GET", "/auth/tokens", parties.admin, headers={"X-Subject-Token": token})
    assert answer.status_code in {200, 404}
    return bool(answer.status_code == 200)


@pytest.mark.parametrize("how", ["trust", "role", "trustor", "trustee", "password"])
async def test_tokens_end_with_what_the_trust_stands_on(parties: Parties, how: str) -> None:
    cloud = parties.cloud
    other = await cloud.token("other", "other-secret")
    role = next(each["id"] for each in (await cloud.ask("GET", "/roles?name=member", parties.admin)).json()["roles"])
    grant = f"/projects/{parties.ids['project']}/users/{parties.ids['other']}/roles/{role}"
    assert (await cloud.ask("PUT", grant, parties.admin)).status_code == 204
    trust = await parties.make(by=other, trustor_user_id=parties.ids["other"])
    token = (await parties.login(trust["id"])).headers["x-subject-token"]
    assert await _is_good(parties, token)
    cloud.clock.now += 1
    users = {"trustor": parties.ids["other"], "trustee": parties.ids["demo"], "password": parties.ids["other"]}
    if how == "trust":
        await parties.get(f"/{trust['id']}", parties.admin, 204, method="DELETE")
    elif how == "role":
        assert (await cloud.ask("DELETE", grant, parties.admin)).status_code == 204
        assert (await parties.login(trust["id"])).status_code == 403
    else:
        change = {"password": "new-secret"} if how == "password" else {"enabled": False}
        answer = await cloud.ask("PATCH", f"/users/{users[how]}", parties.admin, json={"user": change})
        assert answer.status_code == 200
    assert not await _is_good(parties, token)
    if how == "trustor":
        assert (await parties.login(trust["id"])).status_code == 403
        assert (await cloud.ask("DELETE", f"/users/{users[how]}", parties.admin)).status_code == 204
        await parties.get(f"/{trust['id']}", parties.admin, 404)


async def test_a_trust_is_used_up_and_expires(parties: Parties) -> None:
    trust = await parties.make(remaining_uses=2)
    for left in (1, 0):
        assert (await parties.login(trust["id"])).status_code == 201
        if left:
            assert (await parties.get(f"/{trust['id']}", parties.admin))["trust"]["remaining_uses"] == left
    assert (await parties.login(trust["id"])).status_code == 401
    await parties.get(f"/{trust['id']}", parties.admin, 404)
    ends = "2027-01-15T08:10:00.000000Z"
    assert parties.cloud.clock.now == 1_800_000_000.0, "2027-01-15T08:00:00Z"
    trust = await parties.make(expires_at=ends)
    assert trust["expires_at"] == ends
    answer = await parties.login(trust["id"])
    assert answer.json()["token"]["expires_at"] == ends
    await parties.make(409, expires_at=ends)
    await parties.make(400, expires_at="bad.123Z")
    await parties.make(400, expires_at="2026-01-01T00:00:00Z")
    parties.cloud.clock.now += 601
    assert (await parties.login(trust["id"])).status_code == 401


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (400, {"trustee_user_id": None}), (400, {"impersonation": "yes"}), (400, {"project_id": 1}),
        (400, {"roles": "member"}), (400, {"roles": [{"id": "x", "name": "y"}]}), (400, {"remaining_uses": 0}),
        (400, {"remaining_uses": True}), (400, {"redelegation_count": -1}), (400, {"allow_redelegation": 1}),
        (400, {"allow_redelegation": True, "remaining_uses": 1}), (403, {"roles": []}),
        (403, {"allow_redelegation": True, "redelegation_count": 4}), (403, {"trustor_user_id": "other"}),
        (404, {"trustee_user_id": "none"}), (404, {"project_id": "none"}), (404, {"roles": [{"name": "none"}]}),
        (404, {"roles": [{"name": "service"}]}),
    ],
)  # fmt: skip
async def test_what_is_no_trust_is_refused(parties: Parties, status: int, change: dict[str, Any]) -> None:
    await parties.make(status, **change)


async def test_a_trust_is_passed_on(parties: Parties) -> None:
    """As deep as was allowed, with no more than was lent; what came from a deleted trust is deleted."""
    first = await parties.make(allow_redelegation=True, redelegation_count=1, impersonation=False)
    assert first["redelegation_count"] == 1
    token = (await parties.login(first["id"])).headers["x-subject-token"]
    onward = {"trustor_user_id": parties.ids["demo"], "trustee_user_id": parties.ids["other"], "impersonation": False}
    await parties.make(403, by=token, **(onward | {"impersonation": True}))
    await parties.make(403, by=token, **(onward | {"roles": [{"name": "admin"}]}))
    await parties.make(403, by=token, **(onward | {"remaining_uses": 1}))
    second = await parties.make(by=token, **onward)
    assert (second["redelegated_trust_id"], second["redelegation_count"]) == (first["id"], 0)
    answer = await parties.login(second["id"], "other", "other-secret")
    assert answer.status_code == 201, answer.text
    deep = answer.headers["x-subject-token"]
    await parties.make(403, by=deep, **(onward | {"trustor_user_id": parties.ids["other"]}))
    await parties.get(f"/{first['id']}", parties.admin, 204, method="DELETE")
    assert not await _is_good(parties, deep)
    assert (await parties.get("", parties.admin))["trusts"] == []


async def test_application_credentials_have_no_part_in_trusts(parties: Parties) -> None:
    user = parties.ids["admin"]
    body = {"application_credential": {"name": "mine", "unrestricted": True}}
    made = await parties.cloud.ask("POST", f"/users/{user}/application_credentials", parties.admin, json=body)
    lent = made.json()["application_credential"]
    methods = {
        "methods": ["application_credential"],
        "application_credential": {"id": lent["id"], "secret": lent["secret"]},
    }
    token = (await parties.cloud.auth(methods)).headers["x-subject-token"]
    await parties.make(403, by=token)
    await parties.get("", token, 403)
