"""The web console as an ASGI application.

Every request is checked in the same order: path and method, origin (`guard.py`), length of the body, session, and the CSRF token if
something changes; then Keystone or the API is called with the user's own token. Every error is a status and a sentence.
"""

import gzip
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from moorage.webconsole import changes, files, guard
from moorage.webconsole.feeds import Feeds, Full
from moorage.webconsole.login import Keystone, LoginForm, OtherProject
from moorage.webconsole.sessions import Identity, Session, Sessions
from moorage.webconsole.settings import ConsoleAddresses, WebConsole
from moorage.webconsole.topics import SessionOver, Unknown
from moorage.webconsole.upstream import Upstream, UpstreamError, UpstreamRefused

BODY_MAX_BYTES = 64 * 1024
GZIP_FROM_BYTES = 1024
PAGES = frozenset(
    {"", "servers", "server", "operations", "operation", "fit-map", "fleet", "moves", "what-if", "audits", "audit"}
)
"""First parts of the paths that browsers show; the page's own script tells them apart."""
LOGIN_PAGE, PAGE = "login.html", "index.html"
OVER = "You are not logged in, or the session is over. Log in again."
FULL = "As many pages as this console can follow are open. Try again later, or close some."

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class App:
    """Serves pages and data, and keeps the sessions."""

    def __init__(
        self,
        place: ConsoleAddresses,
        settings: WebConsole | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`transport`: the transport to the APIs, for tests. Raises OSError when the CA file cannot be read."""
        self.settings = settings or WebConsole()
        self._place = place
        self._upstream = Upstream(self.settings.call_s, place.ca_file, transport)
        self._keystone = Keystone(self._upstream, place, self.settings.interface)
        self.sessions = Sessions(
            self.settings.sessions_max, self.settings.session_idle_s, of_a_user_max=self.settings.sessions_of_a_user_max
        )
        self.feeds = Feeds(self._upstream, self.sessions, shared=self.settings.share_between_users)
        self._failed = guard.FailedLogins(self.settings.logins_per_minute)
        self._files = files.load()
        self._streams = 0
        self._cookie = "__Host-moorage" if place.secure else "moorage"
        self._routes: dict[str, dict[str, Handler]] = {
            "/api/login": {"POST": self._login},
            "/api/logout": {"POST": self._logout},
            "/api/project": {"POST": self._project},
            "/api/session": {"GET": self._session},
            "/api/projects": {"GET": self._projects},
            "/api/topic": {"GET": self._topic},
            "/api/change": {"POST": self._change},
            "/events": {"GET": self._events},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        response = await self._answer(request)
        for name, value in guard.HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Cache-Control", "no-store")
        await response(scope, receive, send)

    async def close(self) -> None:
        """End all streams first, so that the listener need not wait for them."""
        await self.feeds.close()
        await self._upstream.close()

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._handler(request)(request)
        except SessionOver:
            return _refusal(401, OVER)
        except UpstreamError as trouble:
            return _refusal(trouble.status, trouble.sentence)
        except Unknown:
            return _refusal(404, "There is no such topic.")
        except Full:
            return _refusal(503, FULL)
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            return _refusal(500, "The console could not do this; its log has the reason.")

    def _handler(self, request: Request) -> Handler:
        path = request.url.path
        methods = self._routes.get(path)
        if methods is None:
            methods = {"GET": self._file, "HEAD": self._file}
        handler = methods.get(request.method)
        if handler is None:
            raise UpstreamRefused(405, f"Only {', '.join(methods)} is supported here.")
        if path in self._routes:
            guard.check_origin(request.headers, self.settings.allowed_origins)
        if request.method == "POST":
            guard.check_json(request.headers)
        return handler

    # ------------------------------------------------------------------------------------------------ files

    async def _file(self, request: Request) -> Response:
        path = request.url.path.strip("/")
        if path == "login":
            file = self._files[LOGIN_PAGE]
        elif path.partition("/")[0] in PAGES and path.count("/") <= 1:
            if self._found(request) is None:
                return Response(status_code=303, headers={"Location": "/login"})
            file = self._files[PAGE]
        elif path.startswith("static/") and (known := self._files.get(path.removeprefix("static/"))):
            file = known
        else:
            return _refusal(404, "There is no such page.")
        headers = {"ETag": file.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        body = file.body
        if file.packed and "gzip" in request.headers.get("accept-encoding", ""):
            body, headers["Content-Encoding"] = file.packed, "gzip"
        return Response(body, media_type=file.type, headers=headers)

    # ------------------------------------------------------------------------------------------------ sessions

    async def _login(self, request: Request) -> Response:
        wanted = await _body(request, LoginForm)
        caller = request.client.host if request.client is not None else ""
        self._failed.check(caller)
        try:
            identity = await self._keystone.log_in(wanted, caller)
        except UpstreamRefused as refused:
            if refused.status == 401:
                self._failed.count(caller)
            raise
        return self._opened(identity, self._found(request))

    async def _project(self, request: Request) -> Response:
        session = self._changing(request)
        wanted = await _body(request, OtherProject)
        identity = await self._keystone.other_project(session.identity, wanted.project_id)
        response = self._opened(identity, session, session.login)
        if session.identity is not session.login:
            await self._end_token(session.identity)
        return response

    def _opened(self, identity: Identity, before: Session | None, login: Identity | None = None) -> Response:
        """Open a session with a new cookie, and end the earlier one of this browser."""
        session = self.sessions.open(identity, login)
        if session is None:
            raise UpstreamError(503, "As many users as this console can have are logged in. Try again later.")
        if before is not None:
            self.sessions.end(before)
        response = _json(200, self._shown(session))
        response.set_cookie(
            self._cookie, session.id, path="/", httponly=True, samesite="strict", secure=self._place.secure
        )
        return response

    async def _logout(self, request: Request) -> Response:
        session = self._changing(request)
        self.sessions.end(session)
        await self._end_token(session.identity)
        if session.login is not session.identity:
            await self._end_token(session.login)
        response = _json(200, {})
        response.delete_cookie(self._cookie, path="/", secure=self._place.secure, httponly=True, samesite="strict")
        return response

    async def _end_token(self, identity: Identity) -> None:
        try:
            await self._keystone.log_out(identity)
        except (UpstreamError, SessionOver) as trouble:
            log.warning("a token was not ended with its session and is good until it expires: %s", trouble)

    async def _session(self, request: Request) -> Response:
        return _json(200, self._shown(self._mine(request)))

    async def _projects(self, request: Request) -> Response:
        session = self._mine(request)
        try:
            projects = await self._keystone.projects(session.identity)
        except UpstreamError:
            projects = [
                {"id": session.identity.project_id, "name": session.identity.project}
            ]  # other projects cannot be chosen now
        return _json(200, {"projects": projects})

    def _shown(self, session: Session) -> dict[str, Any]:
        identity = session.identity
        return {
            "user": identity.user,
            "project": identity.project,
            "project_id": identity.project_id,
            "admin": identity.is_admin,
            "expires_at": identity.expires_at,
            "csrf": session.csrf,
        }

    def _found(self, request: Request) -> Session | None:
        return self.sessions.find(request.cookies.get(self._cookie, ""))

    def _mine(self, request: Request) -> Session:
        session = self._found(request)
        if session is None:
            raise SessionOver
        return session

    def _changing(self, request: Request) -> Session:
        session = self._mine(request)
        guard.check_csrf(request.headers, session.csrf)
        return session

    # ------------------------------------------------------------------------------------------------ data

    async def _topic(self, request: Request) -> Response:
        session = self._mine(request)
        body = await self.feeds.snapshot(session, _name(request))
        return _packed(request, body)

    async def _events(self, request: Request) -> Response:
        session = self._mine(request)
        if self._streams >= self.settings.streams_max or session.streams >= self.settings.streams_of_a_session_max:
            raise Full
        self._streams += 1  # from now on: many that come at once would all find room before the first event of one
        session.streams += 1

        def leave() -> None:
            self._streams -= 1
            session.streams -= 1

        try:
            events = await self.feeds.follow(session, _name(request))
        except BaseException:
            leave()
            raise
        return _EventStream(events, leave)

    async def _change(self, request: Request) -> Response:
        session = self._changing(request)
        try:
            change = changes.decode(await _read(request))
        except msgspec.ValidationError as wrong:
            raise UpstreamRefused(400, f"This cannot be asked so: {wrong}.") from wrong
        except msgspec.DecodeError as junk:
            raise UpstreamRefused(400, "The body is no JSON.") from junk
        try:
            answer = await changes.make(change, self._upstream, session.identity)
        except SessionOver:
            self.sessions.end(session)
            raise
        self.feeds.wake(session)
        return _json(200, answer)


class _EventStream(StreamingResponse):
    """Server-sent events; `leave` is called at their end, whether or not the browser has taken one."""

    def __init__(self, events: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._events, self._leave = events, leave

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()
            await self._events.aclose()  # type: ignore[attr-defined]  # it is a generator


def _name(request: Request) -> str:
    return request.query_params.get("topic", "")


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_MAX_BYTES:
            raise UpstreamRefused(413, f"The body has more than {BODY_MAX_BYTES // 1024} KiB.")
    return bytes(body)


async def _body(request: Request, kind: Any) -> Any:
    """Decode a request's body. Raises Refused when it is not valid."""
    try:
        return msgspec.json.decode(await _read(request), type=kind)
    except msgspec.ValidationError as wrong:
        raise UpstreamRefused(400, f"This cannot be asked so: {wrong}.") from wrong
    except msgspec.DecodeError as junk:
        raise UpstreamRefused(400, "The body is no JSON.") from junk


def _json(status: int, body: Any) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def _packed(request: Request, body: bytes) -> Response:
    headers = {"Vary": "Accept-Encoding"}
    if len(body) >= GZIP_FROM_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = gzip.compress(body, 4), "gzip"
    return Response(body, media_type="application/json", headers=headers)


def _refusal(status: int, sentence: str) -> Response:
    return _json(status, {"error": sentence})
