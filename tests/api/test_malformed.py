"""The Compute API refuses malformed requests, never with a 500 and never by closing the connection."""

from typing import Any

from moorage_testing.compute_app import ADMIN, token
from moorage_testing.fake_server_service import a_server

DEEP = 2_000


async def test_json_too_deep_for_python(servers: Any) -> None:
    fields = {"X-Auth-Token": token(ADMIN), "Content-Type": "application/json"}
    for body in (b'{"server":' * DEEP + b"1" + b"}" * DEEP, b"[" * DEEP):
        answer = await servers.http.post("/v2.1/servers", content=body, headers=fields)
        assert (answer.status_code, answer.json()["badRequest"]["message"]) == (400, "Malformed request body")


async def test_a_tag_with_control_characters_has_a_location(servers: Any) -> None:
    await servers.keep(a_server(1))
    answer = await servers.ask("PUT", f"/servers/{a_server(1).id}/tags/a%0Ab", at="latest")
    assert answer.status_code == 201
    assert answer.headers["location"].endswith("/tags/a%0Ab")


async def test_numbers_in_queries(servers: Any) -> None:
    for path in ("/os-server-groups?offset=%0A", "/os-server-groups?limit=%0A", f"/servers?limit={'9' * 5000}"):
        assert (await servers.get(path)).status_code == 400, path
    assert (await servers.get(f"/os-server-groups?offset={'9' * 30}")).json() == {"server_groups": []}


async def test_a_refusal_does_not_repeat_a_megabyte(servers: Any) -> None:
    body = {"server": {"name": "a", "flavorRef": "1", "networks": "none", "config_drive": "\U000e0001" * 20_000}}
    answer = await servers.ask("POST", "/servers", body, at="2.79")
    assert answer.status_code == 400
    assert len(answer.text) < 40_000
    action = await servers.ask("POST", f"/servers/{a_server(1).id}/action", {"a" * 100_000: 1}, at="2.79")
    assert len(action.text) < 10_000


async def test_hints_that_are_deep(servers: Any) -> None:
    fields = {"X-Auth-Token": token(ADMIN), "Content-Type": "application/json"}
    for deep in (300, 900, 990, 1_020):
        hints = b'{"a":' + b"[" * deep + b"]" * deep + b"}"
        body = b'{"server":{"name":"x","imageRef":"x","flavorRef":"1"},"os:scheduler_hints":' + hints + b"}"
        answer = await servers.http.post("/v2.1/servers", content=body, headers=fields)
        assert answer.status_code in {202, 400}, answer.text
