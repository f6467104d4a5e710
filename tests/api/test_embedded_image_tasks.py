"""Tasks of the embedded image service: imports from allowed addresses, and what imports of staged data leave."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.clients.download import download
from moorage.sql import open_database
from moorage_embedded.image import task_store, tasks
from moorage_embedded.image.task_imports import TaskImports
from moorage_testing.image_app import ImageApp, fill, image_service, made, make, qcow2

HOST = "images.example.org"
URL = f"http://{HOST}/small.qcow2"
PROPERTIES = {"name": "imported", "disk_format": "qcow2", "container_format": "bare", "visibility": "public"}
INPUT = {"import_from": URL, "import_from_format": "qcow2", "image_properties": PROPERTIES}
WAIT_S = 30.0


class Web:
    """What can be fetched."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {URL: qcow2()}
        self.held: asyncio.Event | None = None

    @asynccontextmanager
    async def fetch(self, url: str) -> AsyncIterator[AsyncIterator[bytes]]:
        if self.held is not None:
            await self.held.wait()
        if url not in self.files:
            raise OSError("the status of the answer is 404")

        async def pieces() -> AsyncIterator[bytes]:
            yield self.files[url]

        yield pieces()


@pytest.fixture
def web() -> Web:
    return Web()


@pytest.fixture
async def cloud(tmp_path: Path, web: Web) -> AsyncIterator[ImageApp]:
    async with image_service(tmp_path, imports=TaskImports((HOST,), web.fetch)) as app:
        yield app


async def begun(cloud: ImageApp, given: Any, kind: str = "import", status: int = 201) -> dict[str, Any]:
    answer = await cloud.open_as("admin").post("/v2/tasks", json={"type": kind, "input": given})
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def ended(cloud: ImageApp, id: str) -> dict[str, Any]:
    client, deadline = cloud.open_as("admin"), time.monotonic() + WAIT_S
    while True:
        task: dict[str, Any] = (await client.get(f"/v2/tasks/{id}")).json()
        if task["status"] in {"success", "failure"}:
            return task
        assert time.monotonic() < deadline, task
        await asyncio.sleep(0.005)


async def test_a_task_imports_an_image(cloud: ImageApp) -> None:
    task = await begun(cloud, INPUT)
    assert (task["status"], task["owner"], task["user_id"], task["message"]) == ("pending", "admin", "root", "")
    assert task["self"] == f"/v2/tasks/{task['id']}"
    done = await ended(cloud, task["id"])
    assert (done["status"], done["message"], done["input"]) == ("success", "", INPUT)
    assert done["expires_at"] > done["updated_at"]
    id = done["result"]["image_id"]
    image = (await cloud.open_as("bob").get(f"/v2/images/{id}")).json()
    assert (image["name"], image["status"], image["owner"], image["size"]) == (
        "imported",
        "active",
        "admin",
        len(qcow2()),
    )
    of_image = (await cloud.open_as("bob").get(f"/v2/images/{id}/tasks")).json()["tasks"]
    assert [(each["id"], each["status"], each["deleted"]) for each in of_image] == [(task["id"], "success", False)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"import_from": f"http://{HOST}/nothing"}, "404"),
        ({"image_properties": PROPERTIES | {"disk_format": "odd"}}, "schema 'image'"),
        ({"image_properties": PROPERTIES | {"disk_format": "vmdk"}}, "vmdk"),
    ],
)
async def test_a_failed_import_leaves_no_image(cloud: ImageApp, changes: Any, words: str) -> None:
    done = await ended(cloud, (await begun(cloud, INPUT | changes))["id"])
    assert (done["status"], done["result"]) == ("failure", None)
    assert words in done["message"]
    assert (await cloud.open_as("admin").get("/v2/images")).json()["images"] == []
    assert list(cloud.files.iterdir()) == []


async def test_an_import_lacks_input(cloud: ImageApp) -> None:
    done = await ended(cloud, (await begun(cloud, {"import_from": URL}))["id"])
    assert done["message"] == "Error: Input does not contain 'import_from_format' field"
    for kind, given in (("api_image_import", {"image_id": "x"}), ("location_import", {})):
        done = await ended(cloud, (await begun(cloud, given, kind))["id"])
        assert done["status"] == "failure"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (None, "Invalid location: None"),
        ("file:///etc/passwd", "File based imports are not allowed"),
        ("ftp://images.example.org/x", "not valid"),
        ("http://elsewhere.example.org/x", "does not pass filtering"),
        (f"http://{HOST}:8080/x", "does not pass filtering"),
        (f"http://user@{HOST}/x", "does not pass filtering"),
        (f"http://elsewhere.example.org#@{HOST}/x", "does not pass filtering"),
        ("http://127.0.0.1/x", "does not pass filtering"),
        (f"http://{HOST}:x/", "does not pass filtering"),
        ("http://", "does not pass filtering"),
    ],
)
async def test_an_address_that_is_not_allowed_is_refused(cloud: ImageApp, address: Any, words: str) -> None:
    said = await begun(cloud, INPUT | {"import_from": address}, status=400)
    assert words in said["message"]


async def test_without_allowed_hosts_nothing_is_imported(tmp_path: Path) -> None:
    async with image_service(tmp_path) as cloud:
        said = await begun(cloud, INPUT, status=400)
        assert "does not pass filtering" in said["message"]


async def test_hosts_may_have_a_port(tmp_path: Path, web: Web) -> None:
    web.files[f"http://{HOST}:8080/x"] = qcow2()
    async with image_service(tmp_path, imports=TaskImports((f"{HOST.upper()}:8080",), web.fetch)) as cloud:
        task = await begun(cloud, INPUT | {"import_from": f"http://{HOST}:8080/x"})
        assert (await ended(cloud, task["id"]))["status"] == "success"
        await begun(cloud, INPUT, status=400)


@pytest.mark.parametrize(
    "body",
    [[], {}, {"type": "import"}, {"input": {}}, {"type": "export", "input": {}}, {"type": "import", "input": []}],
)
async def test_what_is_no_task_is_refused(cloud: ImageApp, body: Any) -> None:
    assert (await cloud.open_as("admin").post("/v2/tasks", json=body)).status_code == 400


async def test_tasks_are_for_administrators(cloud: ImageApp) -> None:
    task = await begun(cloud, INPUT)
    await ended(cloud, task["id"])
    for by in ("alice", "reader", "nova"):
        client = cloud.open_as(by)
        answers = [
            await client.get("/v2/tasks"),
            await client.get(task["self"]),
            await client.delete(task["self"]),
            await client.post("/v2/tasks", json={"type": "import", "input": INPUT}),
        ]
        assert [each.status_code for each in answers] == [403] * 4
        assert answers[0].json()["message"] == "You are not authorized to complete tasks_api_access action."
    admin = cloud.open_as("admin")
    refused = await admin.delete(task["self"])
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
    assert (await admin.get("/v2/tasks/none")).json()["message"] == "No task found with ID none"


async def test_tasks_are_listed_in_pages(cloud: ImageApp) -> None:
    admin = cloud.open_as("admin")
    ids = []
    for given in (INPUT, {}, INPUT):
        ids.append((await begun(cloud, {**given, "import_from": URL}))["id"])
        await ended(cloud, ids[-1])

    async def listed(query: str) -> list[str]:
        answer = await admin.get(f"/v2/tasks?{query}")
        assert answer.status_code == 200, answer.text
        return [each["id"] for each in answer.json()["tasks"]]

    assert await listed("") == ids[::-1]
    assert await listed("sort_dir=asc") == ids
    assert await listed("sort_key=status&sort_dir=asc") == [ids[1], ids[0], ids[2]]
    assert await listed("status=failure") == [ids[1]]
    assert await listed("type=import&owner=admin&limit=5") == ids[::-1]
    assert await listed(f"marker={ids[1]}") == [ids[0]]
    first = (await admin.get("/v2/tasks?limit=2")).json()
    assert "input" not in first["tasks"][0]
    assert first["next"] == f"/v2/tasks?limit=2&marker={ids[1]}"
    for wrong in (
        "status=odd", "type=odd", "sort_dir=up", "sort_key=odd", "marker=x", "limit=-1",
        "marker=0f0e0d0c-0000-4000-8000-000000000001",
    ):  # fmt: skip
        assert (await admin.get(f"/v2/tasks?{wrong}")).status_code == 400


async def test_an_import_of_staged_data_leaves_a_task(cloud: ImageApp) -> None:
    alice = cloud.open_as("alice")
    image = await made(alice)
    headers = {"Content-Type": "application/octet-stream"}
    assert (await alice.put(f"/v2/images/{image['id']}/stage", content=b"data", headers=headers)).status_code == 204
    answer = await alice.post(f"/v2/images/{image['id']}/import", json={"method": {"name": "glance-direct"}})
    assert answer.status_code == 202
    (task,) = (await alice.get(f"/v2/images/{image['id']}/tasks")).json()["tasks"]
    assert (task["type"], task["status"], task["owner"]) == ("api_image_import", "success", "red")
    assert task["request_id"] == answer.headers["x-openstack-request-id"]
    wrong = await made(alice, disk_format="qcow2")
    await alice.put(f"/v2/images/{wrong['id']}/stage", content=b"no qcow2", headers=headers)
    answer = await alice.post(f"/v2/images/{wrong['id']}/import", json={"method": {"name": "glance-direct"}})
    assert answer.status_code == 415
    (task,) = (await alice.get(f"/v2/images/{wrong['id']}/tasks")).json()["tasks"]
    assert task["status"] == "failure"
    assert task["message"]
    await fill(alice, (await made(alice))["id"], b"data")
    assert (await cloud.open_as("bob").get(f"/v2/images/{image['id']}/tasks")).status_code == 404


async def test_waiting_tasks_and_kept_tasks_are_limited(
    cloud: ImageApp, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "WAITING_MAX", 1)
    web.held = asyncio.Event()
    first = await begun(cloud, INPUT)
    await begun(cloud, INPUT, status=413)
    web.held.set()
    await ended(cloud, first["id"])
    monkeypatch.setattr(task_store, "TASKS_MAX", 1)
    second = await begun(cloud, INPUT)
    await ended(cloud, second["id"])
    admin = cloud.open_as("admin")
    assert [each["id"] for each in (await admin.get("/v2/tasks")).json()["tasks"]] == [second["id"]]


async def test_tasks_are_forgotten_with_time(cloud: ImageApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "KEPT", -tasks.KEPT)
    admin = cloud.open_as("admin")
    task, deadline = await begun(cloud, INPUT), time.monotonic() + WAIT_S
    while (await admin.get(task["self"])).status_code == 200:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    assert (await admin.get("/v2/tasks")).json()["tasks"] == []


async def test_a_task_of_the_last_process_has_failed(tmp_path: Path, web: Web) -> None:
    """Nothing of it goes on, and its image is gone."""
    web.held = asyncio.Event()
    async with image_service(tmp_path, imports=TaskImports((HOST,), web.fetch)) as cloud:
        task, deadline = await begun(cloud, INPUT), time.monotonic() + WAIT_S
        while not (await cloud.open_as("admin").get("/v2/images")).json()["images"]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)
    database = await open_database(f"sqlite:///{tmp_path}/image.db", name="image", durability="process")
    service = make(database, tmp_path / "files")
    await service.start()
    transport = httpx.ASGITransport(service.app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://image", headers={"X-Auth-Token": "admin"}
    ) as http:
        shown = (await http.get(task["self"])).json()
        assert (shown["status"], shown["message"]) == ("failure", "Error: the service was started again.")
        assert (await http.get("/v2/images")).json()["images"] == []
    await database.close()


async def test_a_download_is_read_in_pieces_and_follows_no_redirect() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).split()[1]
        while (await reader.readline()).strip():
            pass
        if line == b"/file":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndata")
        else:
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /file\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with download(f"{url}/file") as pieces:
        assert b"".join([piece async for piece in pieces]) == b"data"
    with pytest.raises(OSError, match="302"):
        async with download(f"{url}/moved"):
            pytest.fail("a redirect was followed")
    server.close()
    await server.wait_closed()
    with pytest.raises(OSError, match="cannot be read"):
        async with download(f"{url}/file"):
            pytest.fail("there is nobody")
