"""Keystone, Compute and Neutron as the web console uses them: answers that a test chooses, and a record of the requests."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from moorage.webconsole.app import App
from moorage.webconsole.settings import ConsoleAddresses, WebConsole

IDENTITY, COMPUTE, NETWORK = "http://keystone:5000/v3", "http://nova:8774/v2.1", "http://neutron:9696"
CONSOLE = "http://console"
HOSTS = {"nova:8774": "compute", "neutron:9696": "network", "keystone:5000": "identity", "glance:9292": "image"}
PASSWORD = "correct horse"


@dataclass
class Apis:
    """What the APIs answer; `down` names services that do not."""

    users: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"ada": ("admin", "member"), "bob": ("member",)})
    answers: dict[str, Any] = field(default_factory=dict)
    """Path without its query → the body, or (status, body)."""
    down: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    logins: dict[str, str] = field(default_factory=dict)
    """Token that was exchanged for another → the first one: who revokes that revokes all that came from it, as in Keystone."""
    token_life_s: float = 3600.0
    asked: Counter[str] = field(default_factory=Counter)
    requests: list[httpx.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def handle(self, request: httpx.Request) -> httpx.Response:
        service = HOSTS[request.url.netloc.decode()]
        path = request.url.path
        self.asked[f"{request.method} {path}"] += 1
        self.requests.append(request)
        if service in self.down:
            raise httpx.ConnectError("connection refused", request=request)
        if service == "identity":
            return self._identity(request, path)
        if request.headers["x-auth-token"] in self.revoked:
            return httpx.Response(401, json={"error": {"message": "The token is good no longer."}})
        answer = self.answers.get(path, self.answers.get(path.removeprefix("/v2.1").removeprefix("/v2.0"), {}))
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        return httpx.Response(status, json=body)

    def _identity(self, request: httpx.Request, path: str) -> httpx.Response:
        if path.endswith("/auth/projects"):
            return httpx.Response(200, json={"projects": [{"id": "p1", "name": "one"}, {"id": "p2", "name": "two"}]})
        if request.method == "DELETE":
            ended = request.headers["x-subject-token"]
            self.revoked |= {ended, *(each for each, login in self.logins.items() if login == ended)}
            return httpx.Response(204)
        auth = httpx.Response(200, content=request.content).json()["auth"]["identity"]
        if "password" in auth:
            user, good = auth["password"]["user"]["name"], auth["password"]["user"]["password"] == PASSWORD
        elif "application_credential" in auth:
            user, good = "bob", auth["application_credential"]["secret"] == PASSWORD
        else:
            user, good = auth["token"]["id"].split("-")[0], True
        if not good or user not in self.users:
            return httpx.Response(
                401, json={"error": {"message": "The request you have made requires authentication."}}
            )
        token = f"{user}-{self.asked['tokens']}"
        self.asked["tokens"] += 1
        if "token" in auth:
            self.logins[token] = self.logins.get(auth["token"]["id"], auth["token"]["id"])
        return httpx.Response(201, json=self._token(user), headers={"X-Subject-Token": token})

    def _token(self, user: str) -> dict[str, Any]:
        ends = datetime.fromtimestamp(time.time() + self.token_life_s, UTC).isoformat().replace("+00:00", "Z")
        urls = {"compute": COMPUTE, "network": NETWORK, "image": "http://glance:9292"}
        endpoint = {"interface": "public", "region_id": "RegionOne"}
        return {
            "token": {
                "expires_at": ends,
                "user": {"id": f"id-{user}", "name": user},
                "project": {"id": "p1", "name": "one"},
                "roles": [{"name": each} for each in self.users[user]],
                "catalog": [{"type": kind, "endpoints": [endpoint | {"url": url}]} for kind, url in urls.items()],
            }
        }


class Browser:
    """A client with cookies and the session's CSRF token, as the console's own script sends it."""

    def __init__(self, app: App) -> None:
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=CONSOLE)
        self.csrf = ""

    async def log_in(self, user: str = "ada", password: str = PASSWORD) -> httpx.Response:
        reply = await self.http.post("/api/login", json={"user": user, "password": password, "project": "one"})
        if reply.status_code == 200:
            self.csrf = reply.json()["csrf"]
        return reply

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(path, headers=headers)

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return await self.http.post(path, json=body, headers={"X-CSRF-Token": self.csrf} | headers)


@asynccontextmanager
async def console(apis: Apis, *, secure: bool = False, **settings: Any) -> Any:
    """The application over these APIs."""
    place = ConsoleAddresses(IDENTITY, "RegionOne", secure)
    app = App(place, WebConsole(**settings), httpx.MockTransport(apis.handle))
    try:
        yield app
    finally:
        await app.close()


class Follower:
    """Reads a stream of events as a browser does, below HTTP: one task, and what came."""

    def __init__(self, app: App, browser: Browser, topic: str) -> None:
        self.events: list[tuple[str, bytes]] = []
        self.status = 0
        self.arrived = asyncio.Event()
        self._gone = asyncio.Event()
        cookie = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": "/events",
            "raw_path": b"/events",
            "query_string": f"topic={topic}".encode(),
            "headers": [(b"cookie", cookie.encode()), (b"host", b"console")],
            "scheme": "http",
            "server": ("console", 80),
            "client": ("127.0.0.1", 1),
            "asgi": {"version": "3.0", "spec_version": "2.3"},
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif body := message.get("body"):
            name, _, data = body.partition(b"\n")
            self.events.append((name.decode().removeprefix("event: "), data.removeprefix(b"data: ").strip()))
        self.arrived.set()
        self.arrived = asyncio.Event()

    async def until(self, what: Callable[["Follower"], bool], patience_s: float = 60.0) -> None:
        async with asyncio.timeout(patience_s):
            while not what(self):
                await self.arrived.wait()

    async def leave(self) -> None:
        self._gone.set()
        await self.task
