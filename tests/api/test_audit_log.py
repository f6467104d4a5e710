"""The audit log: what is written about requests, who made them, and what is never written."""

import contextlib
import json
import logging
import os
import re
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers.access_matrix import PERSONAS
from typing_extensions import override

from moorage.api.audit_log import cadf
from moorage.api.audit_log.middleware import AuditedApp
from moorage.api.audit_log.request_facts import Facts, action_of, login_in, path_of, target_of
from moorage.api.audit_log.writer import AuditBook, FileSink, LogSink, OutboxSink
from moorage.conductor.reconcilers.notifications import NotificationRelay
from moorage.model.audit_event import Audited
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable
from moorage.model.task_context import record_caller
from moorage.operations.notifications.messages import Wording
from moorage.store.region.notifications import OUTBOX
from moorage_testing.compute_app import MEMBER, token
from moorage_testing.fake_server_service import a_server

ID = str(a_server().id)
EVENT_TYPE_URI = "http://schemas.dmtf.org/cloud/audit/1.0/event"


class Kept:
    """A sink that keeps."""

    def __init__(self) -> None:
        self.events: list[Audited] = []

    def take(self, event: Audited) -> None:
        self.events.append(event)

    def payloads(self) -> list[Any]:
        return [json.loads(bytes(each.cadf)) for each in self.events]

    async def close(self) -> None:
        """There is nothing open."""


@asynccontextmanager
async def listening(
    app: Any, service: str = "compute", **wanted: bool
) -> AsyncIterator[tuple[httpx.AsyncClient, Kept]]:
    kept = Kept()
    listener = AuditedApp(
        app, service, AuditBook([kept], lambda: 1_767_225_600_000_000),
        reads=wanted.get("reads", False), requests=wanted.get("requests", False),
    )  # fmt: skip
    transport = httpx.ASGITransport(app=listener, client=("192.0.2.7", 4711), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://cloud") as http:
        yield http, kept


@pytest.fixture
def context(servers: Any) -> Any:
    """The API of a cloud with a server, whose validation of tokens tells who was heard."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        sent = dict(scope["headers"]).get(b"x-auth-token", b"").decode()
        for principal in PERSONAS.values():
            if principal is not None and sent == token(principal):
                record_caller(principal)
        await servers.http._transport.app(scope, receive, send)

    return app


async def test_a_change_is_written_in_the_form_of_cadf(servers: Any, context: Any) -> None:
    await servers.keep(a_server())
    headers = {
        "X-Auth-Token": token(MEMBER_PERSONA),
        "User-Agent": "a test",
        "X-Openstack-Request-Id": "req-11111111-0000-4000-8000-000000000000",
    }
    async with listening(context) as (http, kept):
        answer = await http.post(f"/v2.1/servers/{ID}/action", json={"lock": None}, headers=headers)
        assert answer.status_code == 202, answer.text
    (event,), (payload,) = kept.events, kept.payloads()
    assert (event.event_type, event.user, event.project) == ("audit.http.response", MEMBER_PERSONA.user, MEMBER.project)
    assert payload["typeURI"] == EVENT_TYPE_URI
    assert (payload["eventType"], payload["action"], payload["outcome"]) == ("activity", "update/lock", "success")
    assert payload["reason"] == {"reasonType": "HTTP", "reasonCode": "202"}
    assert payload["target"] == {"id": ID, "typeURI": "service/compute/servers/server/action", "name": "compute"}
    assert payload["requestPath"] == f"/v2.1/servers/{ID}/action"
    who = payload["initiator"]
    assert (who["id"], who["project_id"], who["scope"]) == (MEMBER_PERSONA.user, MEMBER.project, "project")
    assert who["host"] == {"address": "192.0.2.7", "agent": "a test"}
    assert who["typeURI"] == "service/security/account/user"
    assert who["request_id"] == answer.headers["x-openstack-request-id"] == event.request_id
    assert who["global_request_id"] == "req-11111111-0000-4000-8000-000000000000"
    assert payload["tags"] == [f"correlation_id?value={event.request_id}"]
    assert token(MEMBER_PERSONA) not in str(payload)


MEMBER_PERSONA = PERSONAS["member"] or MEMBER


async def test_refusals_are_logged_and_reads_when_configured(servers: Any, context: Any) -> None:
    await servers.keep(a_server())
    asks = [
        ("GET", "/v2.1/servers", MEMBER_PERSONA),
        ("GET", "/v2.1/os-services", MEMBER_PERSONA),
        ("GET", "/v2.1/servers", None),
    ]
    for reads, wanted in (
        (False, [("read/list", "failure", "403"), ("read/list", "failure", "401")]),
        (True, [("read/list", "success", "200"), ("read/list", "failure", "403"), ("read/list", "failure", "401")]),
    ):
        async with listening(context, reads=reads) as (http, kept):
            for method, path, by in asks:
                await http.request(method, path, headers={} if by is None else {"X-Auth-Token": token(by)})
            await http.get("/healthcheck")
            listed = [(each["action"], each["outcome"], each["reason"]["reasonCode"]) for each in kept.payloads()]
            assert listed == wanted
            assert kept.payloads()[-1]["initiator"]["identity_status"] == "Invalid"


async def test_a_request_can_be_logged_before_its_answer(context: Any) -> None:
    async with listening(context, requests=True) as (http, kept):
        await http.delete(f"/v2.1/servers/{ID}", headers={"X-Auth-Token": token(MEMBER_PERSONA)})
    assert [each.event_type for each in kept.events] == ["audit.http.request", "audit.http.response"]
    first, last = kept.payloads()
    assert (first["outcome"], "reason" in first) == ("pending", False)
    assert (last["outcome"], last["reason"]["reasonCode"]) == ("failure", "404")


async def test_failing_requests_are_logged() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("as it happens")

    async with listening(broken) as (http, kept):
        assert (await http.put("/v2.1/x")).status_code == 500
    assert kept.payloads()[0]["reason"]["reasonCode"] == "500"


async def test_initiator_and_action_are_logged() -> None:
    async def made(scope: Any, receive: Any, send: Any) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 202,
                "headers": [(b"location", f"http://c/servers/{ID}".encode())],
            }
        )
        await send({"type": "http.response.body", "body": b"{}"})

    async with listening(made) as (http, kept):
        await http.post("/v2.1/servers", json={"server": {"adminPass": "canary"}})
    (payload,) = kept.payloads()
    assert (payload["action"], payload["target"]["id"], payload["target"]["typeURI"]) == (
        "create",
        ID,
        "service/compute/servers",
    )
    assert "canary" not in str(payload)


@pytest.mark.parametrize(
    ("service", "method", "path", "action", "target"),
    [
        ("compute", "DELETE", f"/v2.1/{'a' * 32}/servers/{ID}", "delete", ("service/compute/servers/server", ID)),
        ("compute", "PUT", "/v2.1/os-services/disable", "update", ("service/compute/os-services/disable", "compute")),
        ("compute", "GET", f"/v2.1/servers/{ID}", "read", ("service/compute/servers/server", ID)),
        ("placement", "PUT", f"/placement/allocations/{ID}", "update",
         ("service/compute/placement/allocations/allocation", ID)),
        ("network", "POST", "/v2.0/ports", "create", ("service/network/ports", "network")),
        ("volume", "POST", f"/v3/{'b' * 32}/volumes/{ID}/action", "update",
         ("service/storage/block/volumes/volume/action", ID)),
        ("image", "PATCH", f"/v2/images/{ID}", "update", ("service/storage/image/images/image", ID)),
        ("identity", "DELETE", f"/v3/users/{'c' * 32}", "delete", ("service/security/users/user", "c" * 32)),
    ],
)  # fmt: skip
def test_action_and_target(service: str, method: str, path: str, action: str, target: tuple[str, str]) -> None:
    facts = Facts(service, method, path, status=200, request_id="req-1")
    assert (action_of(facts), target_of(facts)) == (action, target)
    with warnings.catch_warnings(action="ignore"):
        assert all(made.is_valid() for made in (cadf.of_request(facts), cadf.of_login(facts)))


def test_the_target_of_an_action_is_not_the_created_resource() -> None:
    facts = Facts("compute", "POST", f"/v2.1/servers/{ID}/action", status=202, action="createImage", made="an-image")
    assert target_of(facts)[1] == ID


def test_secret_values_are_not_logged() -> None:
    facts = Facts("compute", "GET", "/v2.1/os-console-auth-tokens/canary", "token=canary&a=b&x-password=canary&limit=1")
    told = json.dumps(cadf.as_dict(cadf.of_request(facts)))
    assert "canary" not in told
    assert path_of(facts) == "/v2.1/os-console-auth-tokens/***?token=***&a=b&x-password=***&limit=1"
    assert len(path_of(Facts("compute", "GET", "/" + "x" * 5000))) == 2000


def test_the_log_of_a_login_contains_no_secret() -> None:
    user = {"name": "ann", "domain": {"id": "default"}, "password": "canary"}
    said = login_in(json.dumps({"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}}).encode())
    assert said == {"name": "ann", "domain": "default", "methods": "password"}
    credential = {"id": "c1", "secret": "canary"}
    said = login_in(
        json.dumps(
            {"auth": {"identity": {"methods": ["application_credential"], "application_credential": credential}}}
        ).encode()
    )
    assert said == {"application_credential": "c1", "methods": "application_credential"}
    for odd in (b"", b"[]", b"{", b'{"auth": 1}', b"\xff", b'{"auth": {"identity": {"methods": 7}}}'):
        assert login_in(odd) == {}


# --------------------------------------------------------------------------------------------------------- sinks


def an_event(number: int = 1) -> Audited:
    kept = Kept()
    AuditBook([kept], lambda: number).write(
        "audit.http.response", Facts("compute", "PUT", "/v2.1/x\n\x1b[0m", status=200)
    )
    return kept.events[0]


async def test_lines_are_written_to_the_configured_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    sink = FileSink(path)
    sink.take(an_event())
    assert os.stat(path).st_mode & 0o777 == 0o600
    path.rename(tmp_path / "audit.log.1")
    sink.take(an_event(2))
    await sink.close()
    (first,), (second,) = ((tmp_path / name).read_text().splitlines() for name in ("audit.log.1", "audit.log"))
    assert (json.loads(first)["timestamp"], json.loads(second)["timestamp"]) == (1, 2)
    assert set(json.loads(first)) == {"message_id", "timestamp", "event_type", "publisher_id", "payload"}


async def test_lines_are_written_to_the_process_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "moorage.audit_log"):
        LogSink().take(an_event())
    (line,) = [each.getMessage() for each in caplog.records if each.name == "moorage.audit_log"]
    assert json.loads(line)["event_type"] == "audit.http.response"
    assert not re.search(r"[\x00-\x1f]", line), "nothing of a caller's is unescaped"


def test_a_full_disk_is_an_error() -> None:
    sink = FileSink(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left"):
        sink.take(an_event())
    with contextlib.suppress(OSError):
        assert sink._handler.stream is not None
        sink._handler.stream.close()


async def test_an_unwritable_line_delays_no_request(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    class Full(Kept):
        @override
        def take(self, event: Audited) -> None:
            raise OSError(28, "No space left on device")

    listener = AuditedApp(app, "compute", AuditBook([Full()], lambda: 1), reads=False, requests=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=listener), base_url="http://c") as http:
        assert (await http.delete("/v2.1/x")).status_code == 204
    assert listener.unwritten == 1
    assert "is not in the audit log" in caplog.text


class Sent:
    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def send(self, messages: Any) -> None:
        self.messages += messages

    async def close(self) -> None:
        """There is nothing open."""


async def test_the_outbox_stores_many_lines_in_one_commit_and_they_are_sent(servers: Any, monkeypatch: Any) -> None:
    region, clock = servers.context.region, SystemClock()
    sink = OutboxSink(region, clock)
    for number in range(700):
        sink.take(an_event(number + 1))
    real: Callable[..., Any] = region.write
    commits = []

    async def counted(work: Any) -> Any:
        commits.append(1)
        if len(commits) == 2:
            raise Unavailable("the region database is busy")
        return await real(work)

    monkeypatch.setattr(region, "write", counted)
    await sink.flush()
    await sink.flush()
    monkeypatch.undo()
    assert len(commits) == 3, "one that failed among them"
    await sink.close()
    assert await region.read(OUTBOX.count) == 700
    sender = Sent()
    await NotificationRelay(region, (), sender, Wording(topics=("notifications",)), clock).run()
    assert [each.body["timestamp"] for each in sender.messages] == sorted(
        each.body["timestamp"] for each in sender.messages
    )
    assert len({each.body["message_id"] for each in sender.messages}) == 700
    message = sender.messages[0]
    assert (message.topic, message.priority, message.body["event_type"]) == (
        "notifications",
        "info",
        "audit.http.response",
    )
    assert message.body["payload"]["typeURI"] == EVENT_TYPE_URI
    assert await region.read(OUTBOX.count) == 0
