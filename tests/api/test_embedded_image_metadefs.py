"""Metadata definitions of the embedded image service: the operator's files, as dashboards read them, read-only beside what is written."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.sql import open_database
from moorage_embedded.image.app import ImageSettings
from moorage_embedded.image.metadef_files import read_metadefs
from moorage_testing.image_app import make

VIRT: dict[str, Any] = {
    "namespace": "OS::Compute::VirtCPUTopology",
    "display_name": "Virtual CPU Topology",
    "description": "Sockets, cores and threads.",
    "visibility": "public",
    "protected": True,
    "resource_type_associations": [
        {"name": "OS::Glance::Image", "prefix": "hw_"},
        {"name": "OS::Nova::Flavor", "prefix": "hw:"},
    ],
    "properties": {
        "cpu_sockets": {"title": "vCPU Sockets", "description": "How many.", "type": "integer", "minimum": 1}
    },
    "objects": [],
}
SOFTWARE: dict[str, Any] = {
    "namespace": "OS::Software::WebServers",
    "display_name": "Web Servers",
    "visibility": "public",
    "resource_type_associations": [{"name": "OS::Nova::Server", "properties_target": "metadata"}],
    "objects": [
        {
            "name": "Apache HTTP Server",
            "description": "One.",
            "properties": {"port": {"title": "Port", "type": "integer"}},
        }
    ],
    "tags": [{"name": "web"}],
}
PRIVATE = {"namespace": "OURS", "visibility": "private", "owner": "red"}


@pytest.fixture
async def base(tmp_path: Path) -> AsyncIterator[Any]:
    files = tmp_path / "metadefs"
    files.mkdir()
    for number, each in enumerate((VIRT, SOFTWARE, PRIVATE)):
        (files / f"{number}.json").write_text(json.dumps(each))
    (files / "README").write_text("not one of them")
    (files / "broken.json").write_text("{")
    (files / "nameless.json").write_text('{"namespace": "x", "objects": [{}]}')
    database = await open_database(f"sqlite:///{tmp_path}/image.db", name="image", durability="process")
    url = "http://image"
    service = make(database, tmp_path / "files", ImageSettings(metadefs=files))
    await service.start()

    def open_as(token: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(service.app), base_url=url, headers={"X-Auth-Token": token}
        )

    yield open_as
    await database.close()


async def get(base: Any, path: str, by: str = "alice", status: int = 200) -> Any:
    async with base(by) as client:
        answer = await client.get(f"/v2{path}")
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer.text


async def test_namespaces(base: Any) -> None:
    by_name = "sort_key=namespace&sort_dir=asc"
    found = await get(base, f"/metadefs/namespaces?{by_name}")
    assert [each["namespace"] for each in found["namespaces"]] == [
        "OS::Compute::VirtCPUTopology",
        "OS::Software::WebServers",
        "OURS",
    ]
    assert found["schema"] == "/v2/schemas/metadefs/namespaces"
    first = found["namespaces"][0]
    assert first["self"] == "/v2/metadefs/namespaces/OS::Compute::VirtCPUTopology"
    assert (first["owner"], first["protected"], first["visibility"]) == ("admin", True, "public")
    assert [each["prefix"] for each in first["resource_type_associations"]] == ["hw_", "hw:"]
    assert "properties" not in first
    others = await get(base, "/metadefs/namespaces", by="bob")
    assert len(others["namespaces"]) == 2
    flavors = await get(base, "/metadefs/namespaces?resource_types=OS::Nova::Flavor,OS::Cinder::Volume")
    assert [each["namespace"] for each in flavors["namespaces"]] == ["OS::Compute::VirtCPUTopology"]
    page = await get(base, f"/metadefs/namespaces?limit=1&visibility=public&{by_name}")
    assert len(page["namespaces"]) == 1
    rest = await get(base, page["next"].removeprefix("/v2"))
    assert [each["namespace"] for each in rest["namespaces"]] == ["OS::Software::WebServers"]
    await get(base, "/metadefs/namespaces?marker=nobody", status=404)
    await get(base, "/metadefs/namespaces?visibility=odd", status=400)
    for wrong in ("limit=x", "limit=-1", "sort_key=odd", "sort_dir=up"):
        await get(base, f"/metadefs/namespaces?{wrong}", status=400)


async def test_a_namespace_with_all_its_resources(base: Any) -> None:
    path = "/metadefs/namespaces/OS::Compute::VirtCPUTopology"
    assert list((await get(base, path))["properties"]) == ["cpu_sockets"]
    assert list((await get(base, f"{path}?resource_type=OS::Nova::Flavor"))["properties"]) == ["hw:cpu_sockets"]
    assert list((await get(base, f"{path}?resource_type=OS::Cinder::Volume"))["properties"]) == ["cpu_sockets"]
    await get(base, f"{path}/properties/cpu_sockets?resource_type=OS::Cinder::Volume", status=404)
    await get(base, f"{path}/properties/cpu_sockets?resource_type=OS::Glance::Image", status=404)
    one = await get(base, f"{path}/properties/hw_cpu_sockets?resource_type=OS::Glance::Image")
    assert (one["name"], one["minimum"]) == ("cpu_sockets", 1)
    await get(base, f"{path}/properties/odd", status=404)
    assert list((await get(base, f"{path}/properties"))["properties"]) == ["cpu_sockets"]
    await get(base, "/metadefs/namespaces/nobody", status=404)
    await get(base, "/metadefs/namespaces/OURS", by="bob", status=404)


async def test_objects_tags_and_types(base: Any) -> None:
    path = "/metadefs/namespaces/OS::Software::WebServers"
    (one,) = (await get(base, f"{path}/objects"))["objects"]
    assert one["self"] == "/v2/metadefs/namespaces/OS::Software::WebServers/objects/Apache%20HTTP%20Server"
    assert (await get(base, f"{path}/objects/Apache HTTP Server"))["properties"]["port"]["type"] == "integer"
    assert (await get(base, f"{path}/tags"))["tags"] == [{"name": "web"}]
    assert (await get(base, f"{path}/tags/web"))["name"] == "web"
    await get(base, f"{path}/tags/odd", status=404)
    types = (await get(base, "/metadefs/resource_types"))["resource_types"]
    assert {"OS::Glance::Image", "OS::Nova::Flavor", "OS::Nova::Server"} <= {each["name"] for each in types}
    assert (await get(base, f"{path}/resource_types"))["resource_type_associations"][0]["name"] == "OS::Nova::Server"


@pytest.mark.parametrize("one", ["namespace", "object", "property", "tag", "resource_type"])
async def test_schemas(base: Any, one: str) -> None:
    many = "properties" if one == "property" else f"{one}s"
    assert "name" in await get(base, f"/schemas/metadefs/{one}")
    assert "properties" in await get(base, f"/schemas/metadefs/{many}")
    await get(base, "/schemas/metadefs/odd", status=404)


async def test_files_are_read_only(base: Any) -> None:
    """For administrators, too: a change is a change of the file."""
    path = "/v2/metadefs/namespaces/OURS"
    for by, words in (("alice", "not authorized"), ("admin", "file of the operator")):
        async with base(by) as client:
            answer = await client.put(path, json={"namespace": "OURS"})
            assert (answer.status_code, words in answer.text) == (403, True)
            for part in ("", "/objects", "/properties/x", "/tags/x", "/resource_types/x"):
                assert (await client.delete(path + part)).status_code == 403
            assert (await client.post(f"{path}/tags/new")).status_code == 403
            assert (await client.patch("/v2/metadefs/namespaces")).status_code == 405
    async with base("admin") as client:
        assert (await client.post("/v2/metadefs/namespaces", json={"namespace": "OURS"})).status_code == 409
        assert (await client.post("/v2/metadefs/namespaces", json={"namespace": "new"})).status_code == 201
        assert (await client.put("/v2/metadefs/namespaces/new", json={"namespace": "OURS"})).status_code == 409
    await get(base, "/metadefs/namespaces", by="nobody", status=403)
    await get(base, "/metadefs/namespaces/OURS", by="nobody", status=404)
    await get(base, "/metadefs/resource_types", by="nobody", status=403)


async def test_a_file_is_left_out_where_the_namespace_was_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As `glance-manage db_load_metadefs` leaves alone what is there already."""
    files = tmp_path / "metadefs"
    files.mkdir()
    database = await open_database(f"sqlite:///{tmp_path}/image.db", name="image", durability="process")

    async def started() -> httpx.AsyncClient:
        service = make(database, tmp_path / "files", ImageSettings(metadefs=files))
        await service.start()
        transport = httpx.ASGITransport(service.app)
        return httpx.AsyncClient(transport=transport, base_url="http://image", headers={"X-Auth-Token": "admin"})

    async with await started() as client:
        answer = await client.post("/v2/metadefs/namespaces", json={"namespace": "OURS", "display_name": "written"})
        assert answer.status_code == 201
    (files / "ours.json").write_text(json.dumps(PRIVATE))
    async with await started() as client:
        shown = (await client.get("/v2/metadefs/namespaces/OURS")).json()
        assert shown["display_name"] == "written"
        assert len((await client.get("/v2/metadefs/namespaces")).json()["namespaces"]) == 1
        assert "the metadata definitions OURS is left out" in caplog.text
        assert (await client.delete("/v2/metadefs/namespaces/OURS")).status_code == 204
    async with await started() as client:
        assert (await client.get("/v2/metadefs/namespaces/OURS")).json()["owner"] == "red"
    await database.close()


def test_no_directory_is_no_namespace(tmp_path: Path) -> None:
    assert read_metadefs(None) == {}
    assert read_metadefs(tmp_path / "absent") == {}
