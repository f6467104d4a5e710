"""The volume service of the contract tests: the embedded service or a real Cinder, a compute service that is a dictionary, and users.

What is asked here goes over plain HTTP, so that both are held against the same words.
"""

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from typing_extensions import override

from moorage.clients.http import ServiceClient, embedded_transport
from moorage.clients.service_tokens import ServiceTokens
from moorage.main.volume_images import EmbeddedImages
from moorage.sql import open_database
from moorage_embedded.identity.app import Bootstrap, FirstUser, IdentitySettings, make_identity
from moorage_embedded.image.app import make_image
from moorage_embedded.volume.app import OtherServices, make_volume
from moorage_testing.real_services.stack import Stack, start_cinder

PASSWORD = "ground"
VERSION = "3.71"
PATIENCE_S = 120.0
LOOK_EVERY_S = 0.02


@dataclass
class Compute:
    """What compute says when it is asked, and what it was told."""

    holds: dict[tuple[str, str], str] = field(default_factory=dict)
    """(server, volume) → attachment."""
    events: list[tuple[str, str, str]] = field(default_factory=list)
    """(name, server, tag)."""

    def told(self, events: list[dict[str, Any]]) -> None:
        self.events += [(each["name"], each["server_uuid"], each["tag"]) for each in events]


@dataclass
class Person:
    project: str
    token: str


@dataclass
class VolumeGround:
    kind: str
    client: httpx.AsyncClient
    """Its base is the service's address, without `/v3`."""
    images: httpx.AsyncClient
    service: str
    """A service's own token, which is sent beside a user's."""
    admin: Person
    compute: Compute
    identity: ServiceClient
    neighbour: ServiceClient
    """The service, as clients of ours ask it: with our own token, or a user's and ours beside it."""

    async def person(self, role: str = "member") -> Person:
        """Somebody in a new project."""
        name = f"tenant-{uuid.uuid4().hex[:8]}"
        project = await self._made("project", {"name": name, "domain_id": "default"})
        user = await self._made("user", {"name": name, "domain_id": "default", "password": name})
        roles = (await self._identity("GET", "/roles"))["roles"]
        role_id = next(each["id"] for each in roles if each["name"] == role)
        await self._identity("PUT", f"/projects/{project}/users/{user}/roles/{role_id}")
        return Person(project, await ServiceTokens(self.identity, user=name, password=name, project=name).get())

    async def _made(self, kind: str, said: dict[str, Any]) -> str:
        return str((await self._identity("POST", f"/{kind}s", {kind: said}))[kind]["id"])

    async def _identity(self, method: str, path: str, body: Any = None) -> Any:
        return (await self.identity.call(method, path, token=self.admin.token, body=body)).body

    async def ask(
        self, who: Person, method: str, path: str, body: Any = None, *, version: str = VERSION, service: bool = False
    ) -> httpx.Response:
        """One call below the caller's project; `service`: with a service's token beside the caller's own."""
        headers = {"X-Auth-Token": who.token, "OpenStack-API-Version": f"volume {version}"}
        if service:
            headers["X-Service-Token"] = self.service
        return await self.client.request(method, f"/v3/{who.project}{path}", json=body, headers=headers)

    async def shown(self, who: Person, id: str, noun: str = "volume", **more: Any) -> dict[str, Any]:
        answer = await self.ask(who, "GET", f"/{noun}s/{id}", **more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()[noun]
        return found

    async def until(self, who: Person, id: str, status: str, noun: str = "volume") -> dict[str, Any]:
        """The record when it has this status; one in error is shown at once."""
        async with asyncio.timeout(PATIENCE_S):
            while (found := await self.shown(who, id, noun))["status"] != status:
                assert status.startswith("error") or not found["status"].startswith("error"), found
                await asyncio.sleep(LOOK_EVERY_S)
        return found

    async def gone(self, who: Person, id: str, noun: str = "volume") -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await self.ask(who, "GET", f"/{noun}s/{id}")).status_code != 404:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_EVERY_S)

    async def volume(self, who: Person, **said: Any) -> dict[str, Any]:
        """One that was made."""
        answer = await self.ask(who, "POST", "/volumes", {"volume": {"size": 1} | said})
        assert answer.status_code == 202, answer.text
        return await self.until(who, answer.json()["volume"]["id"], "available")

    async def snapshot(self, who: Person, volume: str) -> dict[str, Any]:
        answer = await self.ask(who, "POST", "/snapshots", {"snapshot": {"volume_id": volume}})
        assert answer.status_code == 202, answer.text
        return await self.until(who, answer.json()["snapshot"]["id"], "available", "snapshot")

    async def act(self, who: Person, id: str, action: str, said: Any = None, **more: Any) -> httpx.Response:
        return await self.ask(who, "POST", f"/volumes/{id}/action", {action: said}, **more)

    async def attached(self, who: Person, volume: str, server: str, host: str = "h1") -> str:
        """The id of an attachment that went all the way, and that compute knows of."""
        body = {"volume_uuid": volume, "instance_uuid": server}
        answer = await self.ask(who, "POST", "/attachments", {"attachment": body})
        assert answer.status_code == 200, answer.text
        id = str(answer.json()["attachment"]["id"])
        connector = {"host": host, "mountpoint": "/dev/vdb"}
        answer = await self.ask(who, "PUT", f"/attachments/{id}", {"attachment": {"connector": connector}})
        assert answer.status_code == 200, answer.text
        answer = await self.ask(who, "POST", f"/attachments/{id}/action", {"os-complete": None})
        assert answer.status_code == 204, answer.text
        self.compute.holds[server, volume] = id
        return id

    async def image(self, who: Person, data: bytes, **said: Any) -> str:
        """The id of an active raw image."""
        headers = {"X-Auth-Token": who.token}
        body = {"name": "an image", "disk_format": "raw", "container_format": "bare"} | said
        answer = await self.images.post("/v2/images", json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        id = str(answer.json()["id"])
        headers["Content-Type"] = "application/octet-stream"
        answer = await self.images.put(f"/v2/images/{id}/file", content=data, headers=headers)
        assert answer.status_code == 204, answer.text
        return id

    async def bytes_of(self, who: Person, volume: str, length: int) -> bytes:
        """The beginning of a volume, as a host would read it."""
        answer = await self.act(who, volume, "os-initialize_connection", {"connector": {"host": "reader"}})
        path = Path(answer.json()["connection_info"]["data"]["device_path"])

        def read() -> bytes:
            with path.open("rb") as file:
                return file.read(length)

        return await asyncio.to_thread(read)


@asynccontextmanager
async def embedded_volume_ground(data: Path) -> AsyncIterator[VolumeGround]:
    """Straight into the embedded services, each on a SQLite file of its own."""
    first = Bootstrap(
        users=(
            FirstUser("admin", PASSWORD, roles=(("admin", "admin"),)),
            FirstUser("moorage", PASSWORD, roles=(("service", "admin"), ("service", "service"))),
        )
    )
    databases = [
        await open_database(f"sqlite:///{data / name}.db", name=name, durability="process")
        for name in ("identity", "image", "volume")
    ]
    identity = make_identity(
        databases[0],
        public_url="http://identity",
        bootstrap=first,
        key=b"k" * 32,
        settings=IdentitySettings(password_rounds=4),
    )
    compute = Compute()
    image = make_image(databases[1], files=data / "images", public_url="http://image", validate_token=identity.validate)

    async def notify(events: list[dict[str, Any]]) -> None:
        compute.told(events)

    async def server_volumes(server: str, volume: str) -> str | None:
        return compute.holds.get((server, volume))

    volume = make_volume(
        databases[2],
        files=data / "volumes",
        public_url="http://volume",
        validate_token=identity.validate,
        others=OtherServices(EmbeddedImages(image), notify, server_volumes),
    )
    for service in (identity, image, volume):
        await service.start()
    asking = ServiceClient("identity", "http://identity/v3", transport=embedded_transport(identity.app))
    ours = ServiceTokens(asking, user="moorage", password=PASSWORD)
    asked = ServiceClient("volume", "http://volume", transport=embedded_transport(volume.app), tokens=ours)
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(volume.app), base_url="http://volume") as client,
        httpx.AsyncClient(transport=httpx.ASGITransport(image.app), base_url="http://image") as images,
    ):
        service_token = await ours.get()
        token = await ServiceTokens(asking, user="admin", password=PASSWORD, project="admin").get()
        admin = Person(await identity.project_id("admin"), token)
        yield VolumeGround("embedded", client, images, service_token, admin, compute, asking, asked)
    await volume.stop()
    await asked.close()
    await asking.close()
    identity.close()
    for database in databases:
        await database.close()


@asynccontextmanager
async def real_volume_ground(stack: Stack) -> AsyncIterator[VolumeGround]:
    """A real Cinder, beside a compute service that knows what the test says."""
    start_cinder(stack)
    asking = ServiceClient("identity", stack.identity_url)
    login, moorage = stack.logins["admin"], stack.logins["moorage"]
    ours = ServiceTokens(asking, user=moorage.user, password=moorage.password, project=moorage.project)
    asked = ServiceClient("volume", stack.volume_url, tokens=ours)
    compute = Compute()
    with compute_at(stack.site.our_compute_port, compute):
        async with (
            httpx.AsyncClient(base_url=stack.volume_url, timeout=60) as client,
            httpx.AsyncClient(base_url=stack.image_url, timeout=60) as images,
        ):
            admin = Person(login.project_id, stack.token("admin"))
            yield VolumeGround("real", client, images, await ours.get(), admin, compute, asking, asked)
    await asked.close()
    await asking.close()


@contextmanager
def compute_at(port: int, compute: Compute) -> Iterator[None]:
    """A compute service of two calls."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            *_, server, _, volume = ["", "", "", *self.path.partition("?")[0].split("/")]
            held = compute.holds.get((server, volume))
            if held is None:
                self._answer(404, {"itemNotFound": {"code": 404, "message": "there is none"}})
                return
            found = {"id": volume, "volumeId": volume, "serverId": server, "attachment_id": held, "device": "/dev/vdb"}
            self._answer(200, {"volumeAttachment": found})

        def do_POST(self) -> None:
            answer = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            compute.told(answer["events"])
            self._answer(200, {"events": [each | {"code": 200, "status": "completed"} for each in answer["events"]]})

        def _answer(self, status: int, body: Any) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is written down."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
