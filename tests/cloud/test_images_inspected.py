"""A host inspects an image before it makes a guest of it, whatever the image service accepted."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared

from moorage.model.image_inspection import GPT, Inspected
from moorage_embedded.image import data
from moorage_testing import images

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def uploaded(running: Running, name: str, disk_format: str, content: bytes) -> str:
    """Past the image service's own look at it."""
    http, url = running.admin.http, f"{running.config.api.image.url}/v2/images"
    made = await http.post(url, json={"name": name, "disk_format": disk_format, "container_format": "bare"})
    assert made.status_code == 201, made.text
    id = str(made.json()["id"])
    filled = await http.put(f"{url}/{id}/file", content=content, headers={"Content-Type": "application/octet-stream"})
    assert filled.status_code == 204, filled.text
    return id


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image service that takes everything."""

    def takes(path: Path, disk_format: str, container_format: str) -> Inspected:
        return Inspected(GPT, path.stat().st_size)

    monkeypatch.setattr(data, "check_upload", takes)


async def fault(running: Running, server: str) -> str:
    found = await running.admin.settled(server)
    assert found["status"] == "ERROR", found["status"]
    return str(found["fault"]["message"])


async def test_images_that_reference_other_files_are_refused(running: Running, blind: None) -> None:
    backed = await uploaded(running, "backed", "qcow2", images.qcow2(backing=images.SECRET))
    server = await running.admin.boot("a", imageRef=backed)
    assert "cannot be used: Image does not pass safety check: backing_file" in await fault(running, server)
    await running.admin.gone(server)
    linked = await uploaded(running, "linked", "vmdk", images.WICKED["a parent by its name"][1])
    server = await running.admin.boot("b", imageRef=linked)
    assert "safety check: parent" in await fault(running, server)
    await running.admin.gone(server)


async def test_a_rebuild_inspects_the_image_too(running: Running, blind: None) -> None:
    server: dict[str, Any] = await running.admin.active("a")
    other = await uploaded(running, "other", "raw", images.qcow2())
    asked = await running.admin.compute("POST", f"/servers/{server['id']}/action", {"rebuild": {"imageRef": other}})
    assert asked.status_code == 202, asked.text
    assert "Image content does not match disk_format" in await fault(running, server["id"])
    await running.admin.gone(server["id"])


async def test_an_image_that_unfolds_beyond_the_flavors_disk_is_refused(running: Running) -> None:
    large = await uploaded(running, "large", "qcow2", images.qcow2(size=1 << 60))
    server = await running.admin.boot("a", imageRef=large, flavor="m1.tiny")
    assert "Flavor's disk is too small for requested image" in await fault(running, server)
    await running.admin.gone(server)
    small = await uploaded(running, "small", "qcow2", images.qcow2())
    fits = await running.admin.active("b", imageRef=small, flavor="m1.tiny")
    await running.admin.gone(fits["id"])


async def test_a_projects_limit_of_the_identity_service_counts(running: Running) -> None:
    """Glance's `image_size_total`, in MiB."""
    http, identity = running.admin.http, f"{running.config.api.identity.url}/v3"
    service = (await http.get(f"{identity}/services", params={"type": "image"})).json()["services"][0]["id"]
    project = (await http.get(f"{identity}/projects", params={"name": "admin"})).json()["projects"][0]["id"]
    usual = {"service_id": service, "resource_name": "image_size_total", "default_limit": 1000}
    registered = await http.post(f"{identity}/registered_limits", json={"registered_limits": [usual]})
    assert registered.status_code == 201, registered.text
    own = {"service_id": service, "resource_name": "image_size_total", "resource_limit": 1, "project_id": project}
    limited = await http.post(f"{identity}/limits", json={"limits": [own]})
    assert limited.status_code == 201, limited.text
    await uploaded(running, "half", "raw", bytes(512 * 1024))
    with pytest.raises(AssertionError, match="Image exceeds the storage quota"):
        await uploaded(running, "more", "raw", bytes(513 * 1024))
    for each in (
        f"limits/{limited.json()['limits'][0]['id']}",
        f"registered_limits/{registered.json()['registered_limits'][0]['id']}",
    ):
        assert (await http.delete(f"{identity}/{each}")).status_code == 204
    await uploaded(running, "more", "raw", bytes(513 * 1024))
