"""Every route of Compute and Placement, called by every persona; the answers are those of Nova's and Placement's policies."""

import os
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
from tests.helpers.access_matrix import HERS, PERSONAS, YES, Table, nova, placement
from tests.helpers.route_bodies import AN_ID, body_of, newest

from moorage.api.placement.app import make_placement_app
from moorage.api.placement.route_table import ROUTES as PLACEMENT_ROUTES
from moorage.api.route_table import TABLE
from moorage.api.routes import Route
from moorage.model.errors import Unauthenticated, Unavailable
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.placement.engine import Engine
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database
from moorage.store.region import operations
from moorage.store.region.placement import placement_metadata
from moorage_testing.compute_app import MEMBER, token
from moorage_testing.fake_server_service import IMAGE, a_server

OPERATION = OperationId("op-1")
COMPUTE = Table("compute.txt", nova())
PLACEMENT = Table("placement.txt", placement())
HIDDEN = re.compile(rf"(Instance {a_server(1).id[:24]}[0-9]+|Operation {OPERATION}) could not be found")
DENIED = re.compile("Policy does(n't| not) allow")
PLACEMENT_KEYS = [f"{method} {path}" for path, entries in PLACEMENT_ROUTES.items() for method in entries]
BELOW_A_SERVER = ("/servers/{id}", "/os-volumes_boot/{id}", "/ext/servers/{id}", "/ext/dry-run/servers/{id}")
HERS_IN_PATH = ("/os-quota-sets/{id}", "/os-simple-tenant-usage/{id}")
NAMED = {"/os-services/{id}": AN_ID, "/ext/operations/{id}": OPERATION}
PARTS = {"{key}": "role", "{tag}": "blue", "{network}": "private", "{volume}": str(IMAGE)}


def test_access_golden() -> None:
    """Each route has a line, and what the line says of each persona follows from the rules."""
    for table, keys in ((COMPUTE, [route.key for route in TABLE]), (PLACEMENT, PLACEMENT_KEYS)):
        if os.environ.get("MOORAGE_BLESS"):
            table.bless(keys)
        assert sorted(table.checks) == sorted(keys), "a route without a line, or a line without a route"
        unsaid = [key for key, checks in table.checks.items() if checks == "?"]
        assert unsaid == [], f"say in {table.path.name} which rules guard these"
        assert table.outcomes == {key: table.derived(key) for key in table.checks}


@pytest.mark.parametrize("table", [COMPUTE, PLACEMENT], ids=["compute", "placement"])
def test_each_line_names_a_rule_that_its_route_checks(table: Table) -> None:
    """By the calls that the services themselves say their rules guard."""
    wrong = []
    for key, checks in table.checks.items():
        method, _, path = key.replace("/os-volumes_boot", "/servers").replace("/ext/dry-run", "").partition(" ")
        path, _, action = path.partition(":")
        for check in checks.split(" + "):
            rule = check.partition(":")[2]
            if not rule or rule.startswith("moorage:"):
                continue
            guarded = {shape(call) for call in table.judge.guards[rule]}
            if shape(f"{method} {path}" + (f" ({action})" if action else "")) not in guarded:
                wrong.append((key, rule, guarded))
    assert wrong == [], "\n".join(map(str, wrong))


def shape(call: str) -> str:
    """A call without the names of its parameters, and as the path is spelt by Nova's handlers, not by its policy reference."""
    call = call.replace("/os-hypervisors/details", "/os-hypervisors/detail")
    return re.sub(r"\{\w+\}", "{}", call).replace("/ (", " (").rstrip("/")


# ------------------------------------------------------------------------------------------------------- compute


class Out:
    """A service that is out: whoever gets as far as asking it was let through."""

    def __getattr__(self, name: str) -> Any:
        async def out(*_: Any, **__: Any) -> Any:
            raise Unavailable("the service is out")

        return out


async def ask(servers: Any, route: Route, path: str, by: Principal | None) -> httpx.Response:
    answer: httpx.Response = await servers.ask(route.method, path, body_of(route), at=str(newest(route)), by=by)
    return answer


def path_of(route: Route, server: str, group: str) -> str:
    path = route.path
    if path.startswith(BELOW_A_SERVER):
        path = path.replace("{id}", server)
    elif path.startswith("/os-server-groups"):
        path = path.replace("{id}", group)
    elif path.startswith(HERS_IN_PATH):
        path = path.replace("{id}", HERS)
    elif path in NAMED:
        path = path.replace("{id}", NAMED[path])
    return "/".join(PARTS.get(part, "x" if part.startswith("{") else part) for part in path.split("/"))


def outcome(answer: httpx.Response, hidden: bool) -> str:
    """As the table says it."""
    if answer.status_code == 401 or (answer.status_code == 403 and DENIED.search(answer.text)):
        return str(answer.status_code)
    return "404" if hidden else YES


async def test_compute_answers_match_the_matrix(servers: Any) -> None:
    """Whoever is let through may fail of something else: the table says only who is refused, and how."""
    for room in ("network", "image", "volume", "identity"):
        setattr(servers.context, room, Out())
    servers.book.preview = Out
    for question in ("balance_plan", "capacity", "capacity_snapshot", "failover"):
        setattr(servers.book, question, getattr(Out(), question))
    await keep_operation(servers)
    wrong, numbers, group = [], iter(range(1, 100_000)), await a_group(servers)
    for route in TABLE:
        for persona, wanted in sorted(COMPUTE.outcomes[route.key].items(), key=lambda each: each[1] == YES):
            server = a_server(next(numbers))
            if route.path.startswith(BELOW_A_SERVER):
                await servers.keep(server)
            answer = await ask(servers, route, path_of(route, server.id, group), PERSONAS[persona])
            hidden = answer.status_code == 404 and HIDDEN.search(answer.text) is not None
            got = outcome(answer, hidden)
            if got != wanted or answer.status_code == 500:
                wrong.append((route.key, persona, wanted, answer.status_code, answer.text[:120]))
            if route.key == "DELETE /os-server-groups/{id}" and got == YES:
                group = await a_group(servers)
    assert wrong == [], "\n".join(map(str, wrong))


async def keep_operation(servers: Any) -> None:
    accepted = Accepted(
        OPERATION, "boot/1", ServerId(AN_ID), HERS, MEMBER.user, ConductorId("c1"), b"{}", b"", 0, created_at=1
    )
    await servers.context.region.write(lambda tx: operations.accept(tx, [accepted]))


async def a_group(servers: Any) -> str:
    body = {"server_group": {"name": "hers", "policy": "affinity"}}
    made = await servers.ask("POST", "/os-server-groups", body, at="2.64", by=MEMBER)
    assert made.status_code == 200, made.text
    return str(made.json()["server_group"]["id"])


# ----------------------------------------------------------------------------------------------------- placement


@pytest.fixture
async def claims(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    async def authenticate(headers: Mapping[str, str]) -> Principal:
        try:
            return msgspec.json.decode(headers.get("x-auth-token", ""), type=Principal)
        except msgspec.DecodeError as failure:
            raise Unauthenticated("Authentication required") from failure

    await database.create(placement_metadata)
    engine = Engine(database, partial(rank, profile=Profile()))
    await engine.start()
    app = make_placement_app(engine, database, authenticate)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://placement") as http:
        yield http
    await engine.close()


async def test_placement_answers_match_the_matrix(claims: httpx.AsyncClient) -> None:
    wrong = []
    for path, entries in PLACEMENT_ROUTES.items():
        for method, entry in entries.items():
            for persona, wanted in PLACEMENT.outcomes[f"{method} {path}"].items():
                principal = PERSONAS[persona]
                sent = {"OpenStack-API-Version": "placement 1.39"}
                if principal is not None:
                    sent["X-Auth-Token"] = token(principal)
                answer = await claims.request(
                    method,
                    re.sub(r"\{\w+\}", AN_ID, path),
                    params={"project_id": HERS} if path == "/usages" else None,
                    json={} if entry.takes_json else None,
                    headers=sent,
                )
                if outcome(answer, hidden=False) != wanted or answer.status_code == 500:
                    wrong.append((method, path, persona, wanted, answer.status_code, answer.text[:120]))
    assert wrong == [], "\n".join(map(str, wrong))
