"""At a service's door: hears a request and its answer, and has it written before the client reads the answer."""

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

from moorage.api.audit_log.request_facts import READS, Facts, action_in, holder_in, login_in
from moorage.model.retry import SeldomLog
from moorage.model.task_context import RequestCaller, caller

log = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

REFUSALS = frozenset({401, 403, 429})
LOGINS = frozenset({"/v3/auth/tokens", "/v3/ec2tokens", "/v3/s3tokens"})
BODY_KEPT_BYTES = 16 * 1024
"""Limit of a body that is examined for the name of an action, or for the user who asks for a token."""
ANSWER_KEPT_BYTES = 256 * 1024
"""Of the answer to a login: whose token it is stands in it, beside the catalog."""
QUIET = frozenset({"/", "/healthcheck"})
HTTP_REQUEST, HTTP_RESPONSE, AUTHENTICATE = "audit.http.request", "audit.http.response", "identity.authenticate"


class AuditSink(Protocol):
    """Where events are written."""

    def write(self, kind: str, facts: Facts) -> None: ...


class AuditedApp:
    """An ASGI application around a service's."""

    def __init__(self, app: App, service: str, book: AuditSink, *, reads: bool, requests: bool) -> None:
        self._app = app
        self._service = service
        self._book = book
        self._reads = reads
        self._requests = requests
        self._seldom = SeldomLog(log, time.monotonic)
        self.unwritten = 0
        """Events that are missing since the start."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in QUIET:
            await self._app(scope, receive, send)
            return
        audited = _AuditedRequest(self, _request_facts(self._service, scope), receive, send)
        token = caller.set(audited.identity)
        try:
            if self._requests and self._wants(audited.facts):
                self._write(HTTP_REQUEST, audited.facts)
            await self._app(scope, audited.receive, audited.send)
        except Exception:
            audited.fell()
            raise
        finally:
            caller.reset(token)

    def is_login(self, facts: Facts) -> bool:
        return self._service == "identity" and facts.method == "POST" and facts.path.rstrip("/") in LOGINS

    def _wants(self, facts: Facts) -> bool:
        return self._reads or facts.method not in READS or facts.status in REFUSALS

    def answered(self, facts: Facts) -> None:
        """A change, a refusal, a login; and all the rest where reads are wanted."""
        if self.is_login(facts):
            self._write(AUTHENTICATE, facts)
        elif self._wants(facts):
            self._write(HTTP_RESPONSE, facts)

    def _write(self, kind: str, facts: Facts) -> None:
        try:
            self._book.write(kind, facts)
        except Exception as failure:  # noqa: BLE001 - a boundary: who asks is answered all the same
            self.unwritten += 1
            self._seldom.warning("unwritten", "%s of %s is not in the audit log: %r", kind, facts.request_id, failure)


class _AuditedRequest:
    """One request."""

    def __init__(self, listener: AuditedApp, facts: Facts, receive: Receive, send: Send) -> None:
        self._listener = listener
        self.facts = facts
        self._receive = receive
        self._send = send
        self._recorded = False
        self._login = listener.is_login(facts)
        self._looks = self._login or (facts.method == "POST" and facts.path.endswith("/action"))
        self._body = b""
        self._answer = b""
        self._held: list[Message] = []
        self.identity = RequestCaller()

    async def receive(self) -> Message:
        message = await self._receive()
        if self._looks and message["type"] == "http.request" and len(self._body) < BODY_KEPT_BYTES:
            self._body += message.get("body", b"")[: BODY_KEPT_BYTES - len(self._body)]
        return message

    async def send(self, message: Message) -> None:
        """The event is written before the answer goes out; of a login the whole answer is read first: it says whose token it is."""
        if message["type"] == "http.response.start":
            self._started(message)
            if not (self._login and message["status"] < 300):
                self._record()
        if self._login and not self._recorded:
            self._held.append(message)
            self._answer += message.get("body", b"")[: ANSWER_KEPT_BYTES - len(self._answer)]
            if message["type"] != "http.response.body" or message.get("more_body", False):
                return
            self.identity.principal = holder_in(self._answer)
            self._record()
            held, self._held = self._held, []
            for each in held:
                await self._send(each)
            return
        await self._send(message)

    def _started(self, message: Message) -> None:
        self.facts.status = message["status"]
        for name, value in message.get("headers", ()):
            lower = bytes(name).lower()
            if lower == b"x-openstack-request-id" and not self.facts.request_id:
                self.facts.request_id = bytes(value).decode("latin-1")
            elif lower == b"location" and message["status"] in {201, 202}:
                self.facts.made = bytes(value).decode("latin-1").rstrip("/").rpartition("/")[2][:64]

    def _record(self) -> None:
        self._recorded = True
        self.facts.principal = self.identity.principal
        if self._login:
            self.facts.login = login_in(self._body)
        elif self._looks:
            self.facts.action = action_in(self._body)
        self._listener.answered(self.facts)

    def fell(self) -> None:
        """The service broke without an answer."""
        if not self._recorded:
            self.facts.status = 500
            self._record()


def _request_facts(service: str, scope: Scope) -> Facts:
    agent = global_id = ""
    for name, value in scope["headers"]:
        if name == b"user-agent":
            agent = value.decode("latin-1")
        elif name == b"x-openstack-request-id":
            global_id = value.decode("latin-1")[:64]
    client = scope.get("client")
    return Facts(
        service,
        scope["method"],
        scope["path"],
        scope.get("query_string", b"").decode("latin-1"),
        address=client[0] if client else "",
        agent=agent,
        global_request_id=global_id,
    )
