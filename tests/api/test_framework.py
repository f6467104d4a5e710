"""What every call passes: ids, limits, tokens, versions, routes, policy, errors."""

import time
from pathlib import Path
from typing import Any

import pytest

from moorage.api.app import ComputeApp
from moorage.api.call import Call, Response
from moorage.api.context import ApiSettings
from moorage.api.microversions import VersionChange
from moorage.api.route_table import TABLE
from moorage.api.routes import LIMIT, Params, Route, Router
from moorage.api.schema import Body, Name, NovaBool, Positive32
from moorage.api.version_changes import CHANGES
from moorage.model.errors import Conflict
from moorage_testing.compute_app import ADMIN, MEMBER, READER, ApiClient, authenticate, compute_api, token


class Thing(Body):
    name: Name
    size: Positive32 = Positive32(1)
    shiny: NovaBool = NovaBool(False)
    tags: tuple[str, ...] = ()


class NewThing(Body):
    thing: Thing


async def create(call: Call[NewThing]) -> Response:
    new = call.body.thing
    return Response(
        201, {"thing": {"name": new.name, "size": int(new.size), "shiny": bool(new.shiny), "past_blood": "B+"}}
    )


async def show(call: Call[None]) -> Response:
    if call.path["id"] == "taken":
        raise Conflict("it is taken")
    if call.path["id"] == "broken":
        raise RuntimeError("a secret of the house")
    return Response(body={"thing": {"id": call.path["id"], "size": 3, "past_blood": "B+"}})


async def poke(call: Call[Any]) -> Response:
    return Response(202)


THINGS = (
    Route("POST", "/things", create, takes=NewThing, rule="os_compute_api:servers:create"),
    Route(
        "GET", "/things/{id}", show, rule="os_compute_api:servers:show", params=Params({"limit": LIMIT}, strict=(2, 75))
    ),
    Route("GET", "/things/detail", show),
    Route("POST", "/things/{id}/action", poke, action="poke"),
    Route("POST", "/things/{id}/action", poke, action="prod"),
)
PAST = (
    VersionChange(
        at=(2, 10),
        summary="Things have a size, and can be prodded.",
        adds={"GET /things/{id}": {"thing": ("size",)}, "POST /things": {"thing": ("size",)}},
        refuses={"POST /things": {"thing": ("size",)}},
        status={"POST /things": 200},
        begins=("POST /things/{id}/action:prod",),
    ),
    VersionChange(
        at=(2, 20),
        summary="Blood types are nobody's business.",
        retires={route: {"thing": ("past_blood",)} for route in ("GET /things/{id}", "POST /things")},
    ),
)


@pytest.fixture
async def things(tmp_path: Path) -> Any:
    async with compute_api(tmp_path, config=ApiSettings(body_max_bytes=1000), table=THINGS, changes=PAST) as client:
        yield client


async def test_health_needs_no_token(things: ApiClient) -> None:
    answer = await things.get("/healthcheck", by=None)
    assert (answer.status_code, answer.text) == (200, "OK")


async def test_a_401_says_where_to_get_a_token(things: ApiClient) -> None:
    answer = await things.get("/things/1", by=None)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Keystone uri=")
    assert answer.json()["error"]["title"] == "Unauthorized"


async def test_every_answer_has_both_request_id_headers(things: ApiClient) -> None:
    for path in ("/things/1", "/nothing", "/things/taken"):
        answer = await things.get(path)
        assert answer.headers["x-openstack-request-id"].startswith("req-")
        assert answer.headers["x-openstack-request-id"] == answer.headers["x-compute-request-id"]


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({}, "2.1"),
        ({"OpenStack-API-Version": "compute 2.10"}, "2.10"),
        ({"OpenStack-API-Version": "volume 3.1, compute 2.11"}, "2.11"),
        ({"X-OpenStack-Nova-API-Version": "2.12"}, "2.12"),
        ({"OpenStack-API-Version": "compute 2.13", "X-OpenStack-Nova-API-Version": "2.12"}, "2.13"),
        ({"OpenStack-API-Version": "compute latest"}, "2.104"),
        ({"X-OpenStack-Nova-API-Version": "latest"}, "2.104"),
        ({"OpenStack-API-Version": "volume 3.59"}, "2.1"),
    ],
)
async def test_versions_are_negotiated(things: ApiClient, headers: dict[str, str], version: str) -> None:
    answer = await things.get("/things/1", headers=headers)
    assert answer.headers["OpenStack-API-Version"] == f"compute {version}"
    assert answer.headers["X-OpenStack-Nova-API-Version"] == version
    assert "OpenStack-API-Version" in answer.headers["vary"]
    assert "X-OpenStack-Nova-API-Version" in answer.headers["vary"]


async def test_unsupported_versions(things: ApiClient) -> None:
    answer = await things.get("/things/1", at="2.105")
    assert answer.status_code == 406
    message = "Version 2.105 is not supported by the API. Minimum is 2.1 and maximum is 2.104."
    assert answer.json() == {"computeFault": {"code": 406, "message": message}}
    answer = await things.get("/things/1", at="2.x")
    assert answer.status_code == 400
    assert "is of invalid format" in answer.json()["badRequest"]["message"]


async def test_version_documents(things: ApiClient) -> None:
    top = (await things.get("/", by=None)).json()["versions"]
    assert [(one["id"], one["version"]) for one in top] == [("v2.0", ""), ("v2.1", "2.104")]
    for path in ("/v2.1", "/v2.1/"):
        one = (await things.get(path, by=None)).json()["version"]
        assert (one["id"], one["min_version"], one["version"]) == ("v2.1", "2.1", "2.104")
    assert (await things.get("/v2/", by=None)).json()["version"]["id"] == "v2.0"
    assert (await things.ask("GET", "http://cloud/elsewhere", by=None)).status_code == 300


async def test_both_forms_of_url(things: ApiClient) -> None:
    assert (await things.get(f"/{ADMIN.project}/things/1")).status_code == 200
    other = await things.get(f"/{MEMBER.project}/things/1")
    assert other.status_code == 400
    assert "doesn't match Context's project_id" in other.json()["badRequest"]["message"]


@pytest.mark.parametrize("path", ["/v2.1//things/1", "//v2.1/things/1", f"/v2.1/{MEMBER.project}//things///1"])
async def test_several_slashes_are_one(things: ApiClient, path: str) -> None:
    """As in Nova: clients join URLs with paths that begin with a slash."""
    where = f"{str(things.http.base_url).rstrip('/')}{path}"
    reply = await things.http.get(where, headers={"x-auth-token": token(MEMBER)})
    assert (reply.status_code, reply.json()["thing"]["id"]) == (200, "1")


async def test_no_such_thing(things: ApiClient) -> None:
    for method, path in (("GET", "/nothing"), ("PATCH", "/things/1"), ("GET", "/things/1/2/3")):
        answer = await things.ask(method, path)
        assert answer.status_code == 404
        assert answer.json()["itemNotFound"]["code"] == 404


async def test_problems_become_novas_faults(things: ApiClient) -> None:
    answer = await things.get("/things/taken")
    assert (answer.status_code, answer.json()) == (409, {"conflictingRequest": {"code": 409, "message": "it is taken"}})
    broken = await things.get("/things/broken")
    assert broken.status_code == 500
    assert "secret" not in broken.text
    assert broken.json()["computeFault"]["code"] == 500


async def test_policy(things: ApiClient) -> None:
    new = {"thing": {"name": "cup"}}
    assert (await things.ask("POST", "/things", new, by=MEMBER)).status_code == 200
    refused = await things.ask("POST", "/things", new, by=READER)
    message = "Policy doesn't allow os_compute_api:servers:create to be performed."
    assert (refused.status_code, refused.json()) == (403, {"forbidden": {"code": 403, "message": message}})


async def test_masks_and_statuses_follow_the_version(things: ApiClient) -> None:
    new = {"thing": {"name": "cup", "shiny": "on"}}
    old = await things.ask("POST", "/things", new, at="2.9")
    assert (old.status_code, old.json()) == (200, {"thing": {"name": "cup", "shiny": True, "past_blood": "B+"}})
    middle = await things.ask("POST", "/things", new, at="2.19")
    assert (middle.status_code, middle.json()["thing"]["size"]) == (201, 1)
    today = await things.ask("POST", "/things", new, at="latest")
    assert today.json() == {"thing": {"name": "cup", "size": 1, "shiny": True}}


async def test_a_field_from_the_future_is_unknown(things: ApiClient) -> None:
    answer = await things.ask("POST", "/things", {"thing": {"name": "cup", "size": 3}}, at="2.9")
    assert answer.status_code == 400
    message = answer.json()["badRequest"]["message"]
    assert message.endswith("Additional properties are not allowed ('size' was unexpected)")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"thing": {"name": "cup", "size": 0}}, "Invalid input for field/attribute size. Value: 0. 0 is less than the minimum of 1"),
        ({"thing": {"name": "cup", "size": "x"}}, "Invalid input for field/attribute size. Value: x. 'x' does not match '^[0-9]*$'"),
        ({"thing": {"name": "cup", "tags": [1]}}, "Invalid input for field/attribute 0. Value: 1. 1 is not of type 'string'"),
        ({"thing": {"size": 1}}, "Invalid input for field/attribute thing. Value: {'size': 1}. 'name' is a required property"),
        ({"thing": {"name": " cup"}}, "An invalid 'name' value was provided. The name must be: printable characters. "
         "Can not start or end with whitespace."),
        ({}, "'thing' is a required property"),
        ({"thing": {"name": "cup"}, "more": 1}, "Additional properties are not allowed ('more' was unexpected)"),
    ],
)  # fmt: skip
async def test_refusals_have_novas_messages(things: ApiClient, body: Any, message: str) -> None:
    answer = await things.ask("POST", "/things", body, at="latest")
    assert (answer.status_code, answer.json()["badRequest"]["message"]) == (400, message)


async def test_v2_ignores_unknown_fields_and_versions(things: ApiClient) -> None:
    body = {"thing": {"name": "cup", "wings": 2}, "extra": 1}
    answer = await things.ask("POST", "/v2/things", body, at="2.50")
    assert answer.status_code == 200
    assert "OpenStack-API-Version" not in answer.headers


async def test_queries(things: ApiClient) -> None:
    assert (await things.get("/things/1?limit=x")).status_code == 400
    assert (await things.get("/things/1?wings=2", at="2.74")).status_code == 200
    refused = await things.get("/things/1?wings=2", at="2.75")
    message = "Additional properties are not allowed ('wings' was unexpected)"
    assert (refused.status_code, refused.json()["badRequest"]["message"]) == (400, message)


async def test_an_action_is_named_by_the_single_key_of_the_body(things: ApiClient) -> None:
    assert (await things.ask("POST", "/things/1/action", {"poke": None})).status_code == 202
    unknown = await things.ask("POST", "/things/1/action", {"kick": None})
    assert unknown.json()["badRequest"]["message"] == "There is no such action: kick"
    assert (await things.ask("POST", "/things/1/action", {"prod": None})).status_code == 404
    assert (await things.ask("POST", "/things/1/action", {"prod": None}, at="2.10")).status_code == 202
    assert (await things.ask("POST", "/things/1/action", {"poke": 1, "prod": 1})).status_code == 400


async def test_limits_on_bodies(things: ApiClient) -> None:
    assert (await things.ask("POST", "/things", {"thing": {"name": "x" * 2000}})).status_code == 413
    text = await things.http.post(
        "/v2.1/things", content=b"<x/>", headers={"X-Auth-Token": token(ADMIN), "Content-Type": "text/xml"}
    )
    assert text.status_code == 415
    torn = await things.http.post("/v2.1/things", content=b"{", headers={"X-Auth-Token": token(ADMIN)})
    assert torn.json()["badRequest"]["message"] == "Malformed request body"


async def test_cors_is_on_when_configured(tmp_path: Path) -> None:
    config = ApiSettings(cors_origins=("http://console",))
    async with compute_api(tmp_path, config=config, table=THINGS, changes=PAST) as client:
        answer = await client.get("/things/1", headers={"Origin": "http://console"})
        assert answer.headers["access-control-allow-origin"] == "http://console"
        assert "X-Openstack-Request-Id" in answer.headers["access-control-expose-headers"]


async def test_a_small_get_is_cheap(things: ApiClient) -> None:
    """Less than half a millisecond of CPU in the framework (a generous bound: the machine is shared)."""
    context = ComputeApp(things.context, authenticate, table=THINGS, changes=PAST)
    scope = {
        "type": "http", "method": "GET", "path": "/v2.1/things/1", "raw_path": b"/v2.1/things/1", "query_string": b"",
        "headers": [(b"x-auth-token", token(MEMBER).encode()), (b"openstack-api-version", b"compute 2.50")],
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        pass

    await context(dict(scope), receive, send)
    rounds: list[float] = []
    for _ in range(8):  # the best of them: a collection of garbage, which others made, may fall into any
        began = time.process_time()
        for _ in range(50):
            await context(dict(scope), receive, send)
        rounds.append((time.process_time() - began) / 50)
    assert min(rounds) < 0.0005


def test_changes_name_only_routes_that_exist() -> None:
    assert Router(TABLE, CHANGES).unknown_in_changes == []
