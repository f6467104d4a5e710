"""A client's request id is sent to the services, during the request and later."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.cloud.conftest import Start

from moorage.clients.asgi_transport import Base, EmbeddedTransport

CALLERS = "req-11111111-2222-4333-8444-555555555555"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(what was asked of a service, the request id it was told)."""
    found: list[tuple[str, str]] = []
    plain = EmbeddedTransport.ask

    async def heard(
        self: EmbeddedTransport, base: Base, method: str, path: str, query: str, headers: Mapping[str, str], *rest: Any
    ) -> Any:
        found.append((f"{method} {path}", headers.get("X-OpenStack-Request-ID", "")))
        return await plain(self, base, method, path, query, headers, *rest)

    monkeypatch.setattr(EmbeddedTransport, "ask", heard)
    return found


def of(told: list[tuple[str, str]], method: str, part: str) -> set[str]:
    return {sent for what, sent in told if what.startswith(method) and part in what}


async def action_of(person: Any, server: str, name: str) -> dict[str, Any]:
    actions = (await person.compute("GET", f"/servers/{server}/os-instance-actions")).json()["instanceActions"]
    found: dict[str, Any] = next(each for each in actions if each["action"] == name)
    return found


async def test_a_clients_request_id_is_sent_to_the_services(start: Start, told: list[tuple[str, str]]) -> None:
    async with start() as running, running.person("demo", "demo") as demo:
        told.clear()
        demo.http.headers["X-OpenStack-Request-ID"] = CALLERS
        reply = await demo.ask_boot("told")
        ours = reply.headers["x-openstack-request-id"]
        assert ours.startswith("req-")
        assert ours != CALLERS
        server = str(reply.json()["server"]["id"])
        assert (await demo.settled(server))["status"] == "ACTIVE"
        assert of(told, "GET", "/images/") == {CALLERS}  # asked while the request is answered
        assert of(told, "POST", "/ports") == {CALLERS}  # asked later, by the conductor
        assert (await action_of(demo, server, "create"))["request_id"] == ours
        del demo.http.headers["X-OpenStack-Request-ID"]
        told.clear()
        reply = await demo.compute("DELETE", f"/servers/{server}")
        await demo.absent(server)
        assert of(told, "DELETE", "/ports") == {reply.headers["x-openstack-request-id"]}
        operations = (await demo.compute("GET", "/ext/operations", server=server)).json()["operations"]
        assert {each["request_id"] for each in operations} == {ours, reply.headers["x-openstack-request-id"]}
