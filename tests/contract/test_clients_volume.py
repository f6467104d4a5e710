"""The client of the volume service, with the embedded service and a real Cinder: what every step of the sagas of volumes needs."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.helpers.contract_volume_service import Person, VolumeGround, embedded_volume_ground, real_volume_ground

from moorage.clients import volume as volume_client
from moorage.clients.volume import VolumeClient
from moorage.model.errors import Conflict, Invalid, NotAcceptable, NotFound, OverQuota, Problem
from moorage.model.volume import KEY, NewVolume

CONNECTOR = {"host": "h1", "ip": "192.0.2.1", "mountpoint": "/dev/vdb"}


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass
class VolumeClients:
    ground: VolumeGround
    client: VolumeClient
    who: Person

    async def volume(self) -> str:
        return str((await self.ground.volume(self.who))["id"])

    async def exported(self, volume: str, server: str, host: str = "h1") -> str:
        """The id of an attachment that a host has."""
        made = await self.client.reserve(volume, server)
        await self.client.connect(made.id, volume, {**CONNECTOR, "host": host}, host)
        await self.client.complete(made.id)
        return made.id

    async def status(self, volume: str) -> str:
        return (await self.client.show(volume)).status

    async def quota(self, **limits: int) -> None:
        path = f"/os-quota-sets/{self.who.project}"
        answer = await self.ground.ask(self.ground.admin, "PUT", path, {"quota_set": limits})
        assert answer.status_code == 200, answer.text


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def context(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VolumeClients]:
    made = embedded_volume_ground(tmp_path)
    if request.param == "real":
        made = real_volume_ground(request.getfixturevalue("real_stack"))
    async with made as ground:
        yield VolumeClients(ground, VolumeClient(ground.neighbour), await ground.person())


async def test_volumes_are_made_with_the_users_token_and_found_by_their_server(context: VolumeClients) -> None:
    client, who, server = context.client, context.who, new_id()
    wanted = NewVolume(size_gib=1, name="made", metadata={KEY: server})
    made = await client.create(wanted, who.project, who.token)
    await context.ground.until(who, made.id, "available")
    (found,) = await client.created_for(server)
    assert (found.id, found.size_gib, found.project) == (made.id, 1, who.project)
    assert made.id in {each.id for each in await client.with_status("available")}
    assert (await client.show(made.id, who.project, who.token)).name == "made"
    stranger = await context.ground.person()
    for absent, project, token in (
        (made.id, stranger.project, stranger.token),
        (new_id(), "", None),
        ("odd", "", None),
    ):
        with pytest.raises(NotFound) as missing:
            await client.show(absent, project, token)
        assert missing.value.public == f"Volume {absent} could not be found."
    await context.quota(volumes=1)
    with pytest.raises(OverQuota):
        await client.create(wanted, who.project, who.token)
    await client.delete(made.id)
    await context.ground.gone(who, made.id)
    await client.delete(made.id)
    assert await client.created_for(server) == ()


async def test_where_a_volume_is_and_whether_the_service_is_new_enough(
    context: VolumeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = await context.volume()
    assert await context.client.zone(volume) == (await context.client.show(volume)).availability_zone
    with pytest.raises(NotFound):
        await context.client.zone(new_id())
    monkeypatch.setattr(volume_client, "ATTACHMENTS", "3.999")  # as an old service sees 3.44
    with pytest.raises(NotAcceptable):
        await context.client.zone(volume)


async def test_volume_types_are_known_by_name_and_id(context: VolumeClients) -> None:
    found = await context.client.types(context.who.project, context.who.token)
    (id,) = [key for key in found if found[key] == "__DEFAULT__" and key != "__DEFAULT__"]
    assert found == {**found, "__DEFAULT__": "__DEFAULT__", id: "__DEFAULT__"}


async def test_a_volume_is_reserved_exported_attached_and_released(context: VolumeClients) -> None:
    client, server, other = context.client, new_id(), new_id()
    volume = await context.volume()
    held = await client.reserve(volume, server)
    assert (held.volume, held.server, held.status, held.connection) == (volume, server, "reserved", {})
    with pytest.raises(Invalid):
        await client.reserve(volume, other)
    with pytest.raises(NotFound):
        await client.reserve(new_id(), server)
    exported = await client.connect(held.id, volume, CONNECTOR, "h1")
    assert exported.connection["driver_volume_type"] == "local"
    assert "device_path" not in repr(exported)
    assert (await context.status(volume), (await client.show(volume)).attachments) == ("attaching", ())
    for _ in range(2):
        await client.complete(held.id)
    assert (await client.connected(held.id)).connection == exported.connection
    again = await VolumeClient(context.ground.neighbour).connected(held.id)
    assert (again.status, again.connection["device_path"]) == ("attached", exported.connection["device_path"])
    shown = await client.show(volume)
    assert (shown.status, shown.attachments, shown.hosts) == ("in-use", ((held.id, server),), {held.id: "h1"})
    assert [each.id for each in await client.attachments_of(server)] == [held.id]
    assert await client.attachments_of(server, new_id()) == ()
    assert held.id in [each.id async for each in client.all_attachments()]
    with pytest.raises(Problem):
        await client.delete(volume)
    for _ in range(2):
        await client.drop_attachment(held.id)
    assert (await context.status(volume), await client.attachments_of(server)) == ("available", ())
    for asked in (client.attachment(held.id), client.complete(held.id)):
        with pytest.raises(NotFound):
            await asked


async def test_a_moving_server_keeps_its_volume(context: VolumeClients) -> None:
    """A fresh reservation beside the export, then the export goes: nobody else gets the volume meanwhile."""
    client, server = context.client, new_id()
    volume = await context.volume()
    first = await context.exported(volume, server)
    second = await client.reserve(volume, server)
    with pytest.raises(Invalid):
        await client.reserve(volume, new_id())
    with pytest.raises((Conflict, Invalid)):
        await client.connect(second.id, volume, {**CONNECTOR, "host": "h2"}, "h2")
    await client.drop_attachment(first)
    assert await context.status(volume) == "reserved"
    with pytest.raises(Invalid):
        await client.reserve(volume, new_id())
    await client.connect(second.id, volume, {**CONNECTOR, "host": "h2"}, "h2")
    await client.complete(second.id)
    assert (await client.show(volume)).hosts == {second.id: "h2"}
    await client.drop_attachment(second.id)


async def test_a_volume_marked_for_deletion_is_shown_as_such(context: VolumeClients) -> None:
    client, volume = context.client, await context.volume()
    with pytest.raises(Invalid):
        await client.begin_detaching(volume)
    attachment = await context.exported(volume, new_id())
    await client.begin_detaching(volume)
    assert await context.status(volume) == "detaching"
    assert volume in {each.id for each in await client.with_status("detaching")}
    with pytest.raises(Invalid):
        await client.begin_detaching(volume)
    for _ in range(2):
        await client.roll_detaching(volume)
        assert await context.status(volume) == "in-use"
    await client.begin_detaching(volume)
    await client.drop_attachment(attachment)
    assert await context.status(volume) == "available"
    await client.roll_detaching(volume)
    await client.roll_detaching(new_id())


async def test_snapshots_for_an_image(context: VolumeClients) -> None:
    client, who, image = context.client, context.who, new_id()
    volume = await context.volume()
    attachment = await context.exported(volume, new_id())
    made = await client.make_snapshot(volume, "for an image", image, who.project, who.token)
    await context.ground.until(who, made.id, "available", "snapshot")
    assert [(each.id, each.volume, each.size_gib) for each in await client.snapshots_for(image)] == [
        (made.id, volume, 1)
    ]
    assert await client.snapshots_for(new_id()) == ()
    assert (await client.snapshot(made.id, who.project, who.token)).status == "available"
    with pytest.raises(NotFound):
        await client.snapshot(new_id())
    await context.quota(snapshots=1)
    with pytest.raises(OverQuota):
        await client.make_snapshot(volume, "one more", image, who.project, who.token)
    await client.snapshot_is(made.id, "error")  # nobody waits for that
    assert (await client.snapshot(made.id)).status == "available"
    await client.drop_attachment(attachment)
    with pytest.raises(Problem):
        await client.delete(volume)
    await client.delete_snapshot(made.id)
    await context.ground.gone(who, made.id, "snapshot")
    await client.delete_snapshot(made.id)


async def test_an_image_is_written_over_a_held_volume(context: VolumeClients) -> None:
    client, volume, server = context.client, await context.volume(), new_id()
    image = await context.ground.image(context.who, b"anew", visibility="shared")
    attachment = await context.exported(volume, server)
    with pytest.raises(Invalid):
        await client.reimage(volume, image)
    held = await client.reserve(volume, server)
    await client.drop_attachment(attachment)
    await client.reimage(volume, image)
    await context.ground.until(context.who, volume, "reserved")
    assert (await client.show(volume)).image_metadata["image_id"] == image
    await client.drop_attachment(held.id)


async def test_completions_that_nothing_awaits_change_nothing(context: VolumeClients) -> None:
    client, volume, other = context.client, await context.volume(), await context.volume()
    for failed in (False, True):
        await client.complete_extend(volume, failed=failed)
        assert await context.status(volume) == "available"
    assert await client.complete_migration(volume, other, failed=False) == other
    with pytest.raises((Invalid, Conflict, NotFound)):
        await client.complete_migration(new_id(), other, failed=False)
