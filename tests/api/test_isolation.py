"""Every route below a server or a server group, called by every user: a project learns nothing about the servers of another one.

The table of routes is walked, so a route that comes later is asked too.  What a stranger is answered about a server that
exists must be, word for word, what anybody is answered about a server that never was.
"""

from typing import Any

import pytest
from tests.helpers.route_bodies import body_of, newest

from moorage.api.route_table import TABLE
from moorage.api.routes import Route
from moorage.model.principal import Principal
from moorage_testing.compute_app import ADMIN, MEMBER, READER, STRANGER
from moorage_testing.fake_server_service import a_server

HERS, NOBODYS = a_server(1).id, a_server(999).id
SYSTEM = Principal("6" * 32, project=None, roles=("admin", "member", "reader"), system=True)
UNSCOPED = Principal("1" * 32, project=None, roles=())
FOREIGN_MANAGER = Principal("7" * 32, project="5" * 32, roles=("manager", "member", "reader"))
SERVICE = Principal("8" * 32, project="9" * 32, roles=("service",))
OPEN = {"POST /servers/{id}/action:resetNetwork": {410}, "POST /servers/{id}/action:os-getRDPConsole": {400}}
"""Gone for everybody, whether there is a server or not."""


def routes() -> list[Route]:
    below = ("/servers/{id}", "/os-volumes_boot/{id}", "/ext/servers/{id}")
    return [route for route in TABLE if any(route.path == each or route.path.startswith(each + "/") for each in below)]


def path_of(route: Route, server: str) -> str:
    parts = {"{id}": server, "{key}": "role", "{tag}": "blue", "{network}": "private"}
    return "/".join(parts.get(part, "x" if part.startswith("{") else part) for part in route.path.split("/"))


async def asked(servers: Any, route: Route, by: Principal, server: str) -> tuple[int, str]:
    answer = await servers.ask(route.method, path_of(route, server), body_of(route), at=str(newest(route)), by=by)
    return answer.status_code, answer.text.replace(server, "ID")


async def test_a_server_of_another_project_looks_absent(servers: Any) -> None:
    await servers.keep(a_server(1))
    before = await servers.shown(by=ADMIN)
    told_too_much = []
    for route in routes():
        allowed = {404, 410} | OPEN.get(route.key.replace("os-volumes_boot", "servers"), set())
        for who in (STRANGER, FOREIGN_MANAGER):
            told = await asked(servers, route, who, HERS)
            if told[0] not in allowed or told != await asked(servers, route, who, NOBODYS):
                told_too_much.append((route.key, told))
        for who in (SERVICE, SYSTEM, UNSCOPED):
            status, text = await asked(servers, route, who, HERS)
            if status not in {401, 403} | allowed:
                told_too_much.append((route.key, (status, text)))
    assert told_too_much == []
    assert await servers.shown(by=ADMIN) == before
    assert servers.book.untouched()


async def test_a_reader_cannot_change_anything(servers: Any) -> None:
    await servers.keep(a_server(1))
    before = await servers.shown(by=ADMIN)
    answers = {route.key: (await asked(servers, route, READER, HERS))[0] for route in routes() if route.method != "GET"}
    refused = {name: {403} | OPEN.get(name.replace("os-volumes_boot", "servers"), {410}) for name in answers}
    assert {name: status for name, status in answers.items() if status not in refused[name]} == {}
    assert await servers.shown(by=ADMIN) == before
    assert servers.book.untouched()


async def test_the_owner_and_an_administrator_get_through(servers: Any) -> None:
    """So that the refusals above are not those of an API that refuses everything."""
    stopped = []
    for number, (route, who) in enumerate([(route, who) for route in routes() for who in (MEMBER, ADMIN)], start=1):
        await servers.keep(a_server(number))
        status, text = await asked(servers, route, who, a_server(number).id)
        if status == 500 or "Instance ID could not be found" in text or (who is ADMIN and status == 403):
            stopped.append((route.key, status, text))
    assert stopped == []


LISTS = ["/servers", "/servers/detail", "/os-server-groups", "/os-keypairs", "/ext/operations"]
WHOLE = "&all_tenants=1&all_projects=1&project_id={project}&tenant_id={project}&deleted=true"


@pytest.mark.parametrize("path", LISTS)
async def test_lists_show_the_users_own_project(servers: Any, path: str) -> None:
    """Whatever the query says, what a stranger is shown does not hold what is another project's."""
    await servers.keep(a_server(1))
    made = await servers.ask(
        "POST", "/os-server-groups", {"server_group": {"name": "hers", "policy": "affinity"}}, at="2.64", by=MEMBER
    )
    assert made.status_code == 200, made.text
    theirs = (HERS, made.json()["server_group"]["id"], MEMBER.project or "")
    for query in ("", "?limit=100", f"?{WHOLE.format(project=MEMBER.project)}", "?name=web", "?ip=10", "?all_projects"):
        answer = await servers.get(path + query, at="2.66", by=STRANGER)
        assert answer.status_code in {200, 400, 403}, answer.text
        assert answer.status_code != 200 or not any(each in answer.text for each in theirs), answer.text


async def test_a_server_group_of_another_project_is_not_shown(servers: Any) -> None:
    made = await servers.ask(
        "POST", "/os-server-groups", {"server_group": {"name": "hers", "policy": "affinity"}}, at="2.64", by=MEMBER
    )
    group = made.json()["server_group"]["id"]
    for method in ("GET", "DELETE"):
        answer = await servers.ask(method, f"/os-server-groups/{group}", by=STRANGER, at="latest")
        assert answer.status_code == 403, answer.text  # Nova's: it says that there is one, and no more
        assert "hers" not in answer.text
    assert (await servers.get(f"/os-server-groups/{group}", by=MEMBER, at="latest")).status_code == 200


async def test_quotas_and_limits_of_another_project_are_hidden(servers: Any) -> None:
    for path in (f"/os-quota-sets/{MEMBER.project}", f"/os-quota-sets/{MEMBER.project}/detail"):
        assert (await servers.get(path, by=STRANGER, at="latest")).status_code == 403
    answer = await servers.get(f"/limits?tenant_id={MEMBER.project}", by=STRANGER, at="latest")
    assert answer.status_code == 403
    usage = await servers.get(f"/os-simple-tenant-usage/{MEMBER.project}", by=STRANGER, at="latest")
    assert usage.status_code == 403
    body = {"quota_set": {"instances": 1}}
    assert (await servers.ask("PUT", f"/os-quota-sets/{MEMBER.project}", body, by=STRANGER)).status_code == 403
    assert (await servers.ask("PUT", f"/os-quota-sets/{MEMBER.project}", body, by=MEMBER)).status_code == 403
