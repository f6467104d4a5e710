"""What the Compute API passes on to the volume service below 2.36: the same answers over the embedded one and a real Cinder."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.contract_volume_service import Person, VolumeGround, embedded_volume_ground, real_volume_ground

from moorage.clients.volume import VolumeClient
from moorage.model.principal import Principal
from moorage_testing.compute_app import ApiClient, compute_api

AT = "2.35"


class OldVolumes:
    """One tenant at an API, with a token of the volume service's neighbours."""

    def __init__(self, ground: VolumeGround, client: ApiClient, who: Person) -> None:
        self.ground, self.client, self.who = ground, client, who

    async def ask(self, method: str, path: str, body: Any = None, at: str = AT) -> Any:
        return await self.client.ask(method, path, body, at=at, by=self.who.token)

    async def ok(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.ask(method, path, body)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        answer = await self.ask(method, path, body)
        (fault,) = answer.json().values()
        assert fault["code"] == answer.status_code >= 400, answer.text
        return answer.status_code, fault["message"]


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def context(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OldVolumes]:
    made = embedded_volume_ground(tmp_path)
    if request.param == "real":
        made = real_volume_ground(request.getfixturevalue("real_stack"))
    (tmp_path / "desk").mkdir()
    async with made as ground:
        who = await ground.person()
        roles = {who.token: ("member", "reader")}

        async def authenticate(sent: str, service: str | None) -> Principal:
            return Principal("1" * 32, project=who.project, roles=roles[sent])

        volume = VolumeClient(ground.neighbour)
        async with compute_api(tmp_path / "desk", authenticate=authenticate, volume=volume) as client:
            yield OldVolumes(ground, client, who)


async def test_volumes_are_shown_in_the_old_format(context: OldVolumes) -> None:
    body = {"size": "1", "display_name": "old", "display_description": "of old", "metadata": {"a": "b"}}
    answer = await context.ask("POST", "/os-volumes", {"volume": body})
    assert answer.status_code == 200, answer.text
    made = answer.json()["volume"]
    one = made["id"]
    assert answer.headers["location"].endswith(f"/os-volumes/{one}")
    assert made["status"] == "creating"
    await context.ground.until(context.who, one, "available")
    shown = (await context.ok("GET", f"/os-volumes/{one}"))["volume"]
    assert set(shown) == set(made)
    assert shown.pop("createdAt")
    assert isinstance(shown.pop("volumeType"), str)
    assert shown == {
        "id": one, "status": "available", "size": 1, "availabilityZone": "nova", "attachments": [{}],
        "displayName": "old", "displayDescription": "of old", "snapshotId": None, "metadata": {"a": "b"},
    }  # fmt: skip
    server = str(uuid.uuid4())
    await context.ground.attached(context.who, one, server)
    shown = (await context.ok("GET", f"/os-volumes/{one}"))["volume"]
    held = {"id": one, "volumeId": one, "serverId": server, "device": "/dev/vdb"}
    assert (shown["status"], shown["attachments"]) == ("in-use", [held])
    assert (await context.refused("DELETE", f"/os-volumes/{one}"))[0] == 400
    for path in ("/os-volumes", f"/os-volumes/{one}", "/os-snapshots", f"/os-snapshots/{one}"):
        assert (await context.ask("GET", path, at="2.36")).status_code == 404


async def test_lists_and_deletions_of_volumes(context: OldVolumes) -> None:
    made = [(await context.ground.volume(context.who, name=f"v{n}"))["id"] for n in range(3)]

    async def ids(query: str = "", path: str = "/os-volumes") -> list[str]:
        return [row["id"] for row in (await context.ok("GET", f"{path}{query}"))["volumes"]]

    assert set(await ids()) == set(made)
    whole = await context.ok("GET", "/os-volumes/detail")
    assert whole == await context.ok("GET", "/os-volumes")
    assert await ids("?limit=2", "/os-volumes/detail") + await ids("?offset=2") == await ids()
    assert await ids("?limit=0&bogus=1") == await ids()
    for query in ("?limit=-1", "?limit=x", "?offset=x"):
        assert (await context.ask("GET", f"/os-volumes{query}")).status_code == 400
    await context.ok("DELETE", f"/os-volumes/{made[0]}", status=202)
    await context.ground.gone(context.who, made[0])
    gone = (404, f"Volume {made[0]} could not be found.")
    assert await context.refused("GET", f"/os-volumes/{made[0]}") == gone
    assert await context.refused("DELETE", f"/os-volumes/{made[0]}") == gone
    assert (await context.ask("DELETE", "/os-volumes/an-odd-id")).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"display_name": "v"}, {"size": ""}, {"size": "#$%"}, {"size": "0"}, {"size": 0}, {"size": None}, {"size": 1.5},
        {"size": 1, "metadata": "x"}, {"size": 1, "metadata": {"a": 1}}, {"size": 1, "imageRef": "x"}, {"size": 10**30},
    ],
)  # fmt: skip
async def test_invalid_volumes_are_refused(context: OldVolumes, wrong: dict[str, Any]) -> None:
    assert (await context.refused("POST", "/os-volumes", {"volume": wrong}))[0] == 400


async def test_snapshots(context: OldVolumes) -> None:
    volume = (await context.ground.volume(context.who))["id"]
    body = {"volume_id": volume, "display_name": "s", "display_description": "d", "force": "true"}
    made = (await context.ok("POST", "/os-snapshots", {"snapshot": body}))["snapshot"]
    one = made["id"]
    await context.ground.until(context.who, one, "available", "snapshot")
    shown = (await context.ok("GET", f"/os-snapshots/{one}"))["snapshot"]
    assert set(shown) == set(made)
    assert shown.pop("createdAt")
    assert shown == {
        "id": one, "volumeId": volume, "status": "available", "size": 1, "displayName": "s", "displayDescription": "d",
    }  # fmt: skip
    for path in ("/os-snapshots", "/os-snapshots/detail"):
        assert [row["id"] for row in (await context.ok("GET", path))["snapshots"]] == [one]
    assert (await context.ok("GET", "/os-snapshots?offset=1"))["snapshots"] == []
    again = (await context.ok("POST", "/os-volumes", {"volume": {"size": 1, "snapshot_id": one}}))["volume"]
    assert again["snapshotId"] == one
    await context.ground.until(context.who, again["id"], "available")
    await context.ok("DELETE", f"/os-snapshots/{one}", status=202)
    await context.ground.gone(context.who, one, "snapshot")
    gone = (404, f"Snapshot {one} could not be found.")
    assert await context.refused("GET", f"/os-snapshots/{one}") == gone
    assert await context.refused("DELETE", f"/os-snapshots/{one}") == gone
    missing = str(uuid.uuid4())
    asked = {"snapshot": {"volume_id": missing}}
    assert await context.refused("POST", "/os-snapshots", asked) == (404, f"Volume {missing} could not be found.")
    for wrong in ({}, {"volume_id": 1}, {"volume_id": volume, "force": "perhaps"}, {"volume_id": volume, "name": "x"}):
        assert (await context.refused("POST", "/os-snapshots", {"snapshot": wrong}))[0] == 400


async def test_the_quota_of_the_volume_service_is_forbidden(context: OldVolumes) -> None:
    volume = (await context.ground.volume(context.who))["id"]
    quota = {"quota_set": {"volumes": 1, "snapshots": 0}}
    answer = await context.ground.ask(context.ground.admin, "PUT", f"/os-quota-sets/{context.who.project}", quota)
    assert answer.status_code == 200, answer.text
    assert (await context.refused("POST", "/os-volumes", {"volume": {"size": 1}}))[0] == 403
    assert (await context.refused("POST", "/os-snapshots", {"snapshot": {"volume_id": volume}}))[0] == 403
