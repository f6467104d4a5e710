"""What the Compute API passes on to the image service below 2.36 and 2.39: the same answers over the embedded one and a real one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.contract_services import Ground, server_id
from tests.helpers.proxy_compute_app import OldNet, old_net


@pytest.fixture
async def context(ground: Ground, tmp_path: Path) -> AsyncIterator[OldNet]:
    (tmp_path / "desk").mkdir()
    async with old_net(ground, tmp_path / "desk") as made:
        yield made


async def image(context: OldNet, **fields: Any) -> str:
    """A new image of the tenant's."""
    body = {"name": "old", "disk_format": "raw", "container_format": "bare", **fields}
    made = await context.ground.raw_image.call("POST", "/v2/images", token=context.tenant.token, body=body)
    return str(made.body["id"])


async def test_images_are_shown_in_the_old_format(context: OldNet) -> None:
    server = server_id()
    one = await image(context, min_ram=64, min_disk=1, instance_uuid=server, auto_disk_config="True", colour="blue")
    shown = (await context.ok("GET", f"/images/{one}"))["image"]
    written = {shown.pop("created"), shown.pop("updated")}
    assert all(moment.endswith("Z") for moment in written)
    links = [
        {"rel": "self", "href": f"http://cloud/v2.1/images/{one}"},
        {"rel": "bookmark", "href": f"http://cloud/images/{one}"},
        {"rel": "alternate", "type": "application/vnd.openstack.image", "href": f"http://image/images/{one}"},
    ]
    assert shown == {
        "id": one, "name": "old", "minRam": 64, "minDisk": 1, "status": "SAVING", "progress": 25, "links": links,
        "OS-EXT-IMG-SIZE:size": 0, "OS-DCF:diskConfig": "AUTO",
        "metadata": {"instance_uuid": server, "auto_disk_config": "True", "colour": "blue"},
        "server": {"id": server, "links": [
            {"rel": "self", "href": f"http://cloud/v2.1/servers/{server}"},
            {"rel": "bookmark", "href": f"http://cloud/servers/{server}"},
        ]},
    }  # fmt: skip
    assert await context.refused("GET", f"/images/{server}") == (404, "Image not found.")
    assert (await context.ask("GET", f"/images/{one}", at="2.36")).status_code == 404


async def test_lists_of_images(context: OldNet) -> None:
    server = server_id()
    made = [await image(context, name=f"i{n}", min_ram=n, instance_uuid=server, colour="blue") for n in range(3)]
    other = await image(context, name="other")

    async def ids(query: str, path: str = "/images") -> list[str]:
        return [row["id"] for row in (await context.ok("GET", f"{path}?{query}"))["images"]]

    assert set(await ids("")) >= {*made, other}
    assert await ids("name=i1") == [made[1]]
    assert set(await ids(f"server=http://cloud/v2.1/servers/{server}")) == set(made)
    assert set(await ids("property-colour=blue")) == set(made)
    assert await ids("minRam=2", "/images/detail") == [made[2]]
    assert set(await ids("status=SAVING")) == set()
    assert set(await ids("status=QUEUED")) >= set(made)
    assert set(await ids("changes-since=2020-01-01T00:00:00Z")) >= set(made)
    assert await ids("changes-since=2999-01-01T00:00:00Z") == []
    first = await context.ok("GET", f"/images?limit=2&server={server}")
    (link,) = first["images_links"]
    assert link["rel"] == "next"
    rest = await ids(link["href"].split("?")[1])
    assert {row["id"] for row in first["images"]} | set(rest) == set(made)
    assert set((await context.ok("GET", "/images?limit=1"))["images"][0]) == {"id", "name", "links"}
    for query in ("limit=-1", "limit=x"):
        assert (await context.ask("GET", f"/images?{query}")).status_code == 400


async def test_metadata_of_images(context: OldNet) -> None:
    one = await image(context, colour="blue", kept="yes")
    path = f"/images/{one}/metadata"
    assert (await context.ok("GET", path, at="2.38"))["metadata"] == {"colour": "blue", "kept": "yes"}
    assert (await context.ok("GET", f"{path}/colour"))["meta"] == {"colour": "blue"}
    added = (await context.ok("POST", path, {"metadata": {"colour": "red", "cut": "XL"}}))["metadata"]
    assert added == {"colour": "red", "kept": "yes", "cut": "XL"}
    assert (await context.ok("PUT", f"{path}/cut", {"meta": {"cut": "S"}}))["meta"] == {"cut": "S"}
    assert (await context.ok("PUT", path, {"metadata": {"only": "this"}}))["metadata"] == {"only": "this"}
    assert (await context.ok("GET", path))["metadata"] == {"only": "this"}
    await context.ok("DELETE", f"{path}/only", status=204)
    assert (await context.ok("GET", path))["metadata"] == {}
    assert await context.refused("DELETE", f"{path}/only") == (404, "Invalid metadata key")
    assert (await context.refused("GET", f"{path}/only"))[0] == 404
    mismatch = await context.refused("PUT", f"{path}/a", {"meta": {"b": "c"}})
    assert mismatch == (400, "Request body and URI mismatch")
    for body in ({"meta": {}}, {"meta": {"a": "1", "b": "2"}}, {"meta": {"a": 1}}):
        assert (await context.refused("PUT", f"{path}/a", body))[0] == 400
    too_much = {"metadata": {f"k{n}": "v" for n in range(129)}}
    assert await context.refused("POST", path, too_much) == (403, "Image metadata limit exceeded")
    assert (await context.ask("GET", path, at="2.39")).status_code == 404
    assert await context.refused("GET", f"/images/{server_id()}/metadata") == (404, "Image not found.")


async def test_images_are_deleted_by_their_owners(context: OldNet) -> None:
    one, kept = await image(context), await image(context, protected=True)
    refused = await context.refused("DELETE", f"/images/{kept}")
    assert refused == (403, "You are not allowed to delete the image.")
    await context.ok("DELETE", f"/images/{one}", status=204)
    assert await context.refused("DELETE", f"/images/{one}") == (404, "Image not found.")
    stranger = await context.ground.tenant()
    assert (await context.ask("GET", f"/images/{kept}", by=stranger.token)).status_code == 404
    assert (await context.ask("DELETE", f"/images/{kept}/metadata/x", by=stranger.token)).status_code == 404
