"""The embedded identity service: limits and registered limits, assignments of a tree of projects, access rules in order."""

from typing import Any

from tests.api.test_embedded_identity_logins import Open, opened
from tests.api.test_embedded_identity_people import Cloud, cloud

from moorage.model.errors import TooManyRequests
from moorage_embedded.identity.authentication import _account
from moorage_embedded.identity.lockout import LockoutLimits, Throttle

__all__ = ["cloud", "opened"]


async def _service(cloud: Cloud) -> str:
    made = await cloud.ask("POST", "/services", json={"service": {"type": "compute2", "name": "c"}})
    return str(made.json()["service"]["id"])


async def test_limits_and_registered_limits_are_tied_together(cloud: Cloud) -> None:
    service, project = await _service(cloud), (await cloud.made("project", name="p"))["id"]

    async def post(kind: str, **said: Any) -> Any:
        body = {kind: [{"service_id": service, "resource_name": "cores"} | said]}
        return await cloud.ask("POST", f"/{kind}", json=body)

    refused = await post("limits", project_id=project, resource_limit=5)
    assert (refused.status_code, "no corresponding registered limit" in refused.text) == (403, True)
    made = await post("registered_limits", default_limit=10)
    assert made.status_code == 201, made.text
    path = f"/registered_limits/{made.json()['registered_limits'][0]['id']}"
    assert (await post("registered_limits", default_limit=11)).status_code == 409
    assert (await post("registered_limits", default_limit=11, resource_name="ram")).status_code == 201
    change = {"registered_limit": {"default_limit": 12}}
    assert (await cloud.ask("PATCH", path, json=change)).status_code == 200
    same = {"registered_limit": {"resource_name": "ram"}}
    assert (await cloud.ask("PATCH", path, json=same)).status_code == 409
    limit = await post("limits", project_id=project, resource_limit=5)
    assert limit.status_code == 201, limit.text
    assert (await post("limits", project_id=project, resource_limit=6)).status_code == 409
    for answer in (await cloud.ask("PATCH", path, json=change), await cloud.ask("DELETE", path)):
        assert (answer.status_code, "there are project limits associated with it" in answer.text) == (403, True)
    own = f"/limits/{limit.json()['limits'][0]['id']}"
    assert (await cloud.ask("PATCH", own, json={"limit": {"resource_limit": 7}})).status_code == 200
    assert (await cloud.ask("DELETE", own)).status_code == 204
    assert (await cloud.ask("DELETE", path)).status_code == 204


async def test_assignments_of_a_tree_of_projects(cloud: Cloud) -> None:
    domain = await cloud.made("domain", name="d")
    top = await cloud.made("project", name="top", domain_id=domain["id"])
    under = await cloud.made("project", name="under", parent_id=top["id"])
    lowest = await cloud.made("project", name="lowest", parent_id=under["id"])
    beside = await cloud.made("project", name="beside", domain_id=domain["id"])
    user, role = (await cloud.made("user", name="u", password="pw"))["id"], await cloud.role("member")
    for each in (top, under, lowest, beside):
        await cloud.ask("PUT", f"/projects/{each['id']}/users/{user}/roles/{role}")

    async def of(**query: str) -> list[str]:
        asked = "&".join(
            f"{name.replace('_id', '.id').replace('scope_', 'scope.')}={value}" for name, value in query.items()
        )
        answer = await cloud.ask("GET", f"/role_assignments?{asked}")
        assert answer.status_code == 200, answer.text
        return sorted({each["scope"]["project"]["id"] for each in answer.json()["role_assignments"]})

    tree = sorted(each["id"] for each in (top, under, lowest))
    assert await of(scope_project_id=top["id"]) == [top["id"]]
    assert await of(scope_project_id=top["id"], include_subtree="true") == tree
    assert await of(scope_project_id=top["id"], include_subtree="true", effective="true") == tree
    assert await of(scope_project_id=lowest["id"], include_subtree="true") == [lowest["id"]]
    assert await of(scope_project_id=domain["id"], include_subtree="true") == sorted([*tree, beside["id"]])
    for query in (
        "include_subtree",
        f"include_subtree=1&scope.domain.id={domain['id']}",
        "include_subtree&scope.system=all",
    ):
        refused = await cloud.ask("GET", f"/role_assignments?{query}")
        assert (refused.status_code, "scope.project.id must be specified" in refused.text) == (400, True), query


async def test_access_rules_are_listed_as_they_were_made(cloud: Cloud) -> None:
    user = (await cloud.ask("GET", "/users?name=admin")).json()["users"][0]["id"]
    rules = [{"service": "compute", "method": "GET", "path": f"/v2.1/servers/{n}"} for n in range(20)]
    for part in (rules[:12], rules[12:]):
        body = {"application_credential": {"name": f"a{len(part)}", "access_rules": part}}
        made = await cloud.ask("POST", f"/users/{user}/application_credentials", json=body)
        assert made.status_code == 201, made.text
    listed = (await cloud.ask("GET", f"/users/{user}/access_rules")).json()["access_rules"]
    assert [each["path"] for each in listed] == [each["path"] for each in rules]


def _tries(said: Any) -> int:
    """How many wrong passwords an address may try at what is said, in one moment."""
    throttle = Throttle(60, lambda: 1000.0)
    for n in range(200):
        account = _account({"identity": {"methods": ["password"], "password": {"user": said(n)}}})
        try:
            throttle.check("192.0.2.1", account)
        except TooManyRequests:
            return n
        throttle.failed("192.0.2.1", account)
    return 200


def test_what_nobody_reads_is_no_other_account() -> None:
    user = {"name": "admin", "domain": {"id": "default"}}
    assert _tries(lambda n: user) == 60
    assert _tries(lambda n: user | {"junk": n, "password": f"no{n}"}) == 60
    assert _tries(lambda n: user | {"domain": {"id": "default", "x": n}}) == 60
    assert _tries(lambda n: {"id": "x", "name": f"n{n}", "domain": n}) == 60
    assert _tries(lambda n: user | {"name": f"n{n}"}) == 200


async def test_one_account_has_one_count_by_all_its_names(opened: Open) -> None:
    async with opened(LockoutLimits(failures_per_minute=6)) as cloud:
        users = (await cloud.ask("GET", "/users", await cloud.admin())).json()["users"]
        id_ = next(each["id"] for each in users if each["name"] == "demo")
        names = (
            {"id": id_},
            {"name": "demo", "domain": {"id": "default"}},
            {"name": "demo", "domain": {"name": "Default"}},
        )
        codes = []
        for n in range(9):
            said = {"methods": ["password"], "password": {"user": names[n % 3] | {"password": f"no{n}"}}}
            codes.append((await cloud.auth(said)).status_code)
        assert codes == [401] * 6 + [429] * 3
