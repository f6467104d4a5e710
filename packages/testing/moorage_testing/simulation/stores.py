"""Checks of disks, volumes and images at rest: those of `leak_audit_stores`, and what only a simulation knows."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.model.ids import ServerId
from moorage.model.volume import KEY, MADE_FOR_IMAGE
from moorage.operations.steps.snapshot_image import MADE_FOR
from moorage_testing.leak_audit import Census
from moorage_testing.leak_audit_stores import HALF_MADE, Stores, known, servers_named
from moorage_testing.simulation.client import SimulatedClient
from moorage_testing.simulation.roles import AgentRole

if TYPE_CHECKING:
    from moorage_testing.simulation.cloud import SimulatedCloud

LIMIT = "1000"
OF_USER = "of_user"
"""Snapshots with this in their metadata are their user's: no image names them."""
FREE = frozenset({"available", "error", "error_extending", "error_deleting"})
"""What a volume is that no server has."""


async def stores_of(cloud: "SimulatedCloud", admin: SimulatedClient) -> Stores | str:
    """What the volume service and the image service hold; a message when they cannot be read."""
    volumes = await admin.ask("volume", "GET", "/volumes/detail", all_tenants="1", limit=LIMIT)
    attachments = await admin.ask("volume", "GET", "/attachments/detail", all_tenants="1", limit=LIMIT)
    images = await admin.ask("image", "GET", "/v2/images", limit=LIMIT)
    for reply in (volumes, attachments, images):
        if reply.status != 200:
            return f"the stores cannot be looked at: {reply.status} {str(reply.body)[:200]}"
    stores = Stores(
        {each["id"]: each for each in volumes.body["volumes"]},
        tuple(attachments.body["attachments"]),
        tuple(each for each in images.body["images"] if MADE_FOR in each),
    )
    named = servers_named(stores)
    region = cloud.stores["region"]
    return msgspec.structs.replace(stores, known=region.inspect(lambda tx: known(tx, named)) if named else frozenset())


async def wrong_stores(cloud: "SimulatedCloud", seen: Census) -> list[str]:
    """Volumes and snapshots that nobody owns."""
    snapshots: list[dict[str, Any]] = []
    if seen.stores.volumes:
        reply = await cloud.watch.admin.ask("volume", "GET", "/snapshots/detail", all_tenants="1", limit=LIMIT)
        if reply.status != 200:
            return [f"snapshots cannot be looked at: {reply.status}"]
        snapshots = reply.body["snapshots"]
    copied = {each["volume_id"] for each in snapshots}
    return [
        *_missing_volumes(cloud, seen),
        *_free_volumes(seen),
        *_volumes_that_were_to_go(cloud, seen, copied),
        *_snapshots(seen, snapshots),
    ]


def _missing_volumes(cloud: "SimulatedCloud", seen: Census) -> list[str]:
    """Those that servers have, and that nobody deleted: checked in plans in which users act at the volume service itself."""
    if not cloud.watch.book.gone:
        return []
    return [
        f"{server.id} has volume {volume}, which is not there"
        for server in seen.servers.values()
        for volume in server.volumes
        if volume not in seen.stores.volumes and volume not in cloud.watch.book.gone
    ]


def _free_volumes(seen: Census) -> list[str]:
    used = {volume for server in seen.servers.values() for volume in server.volumes}
    by_volume: dict[str, list[str]] = {}
    for each in seen.stores.attachments:
        by_volume.setdefault(each["volume_id"], []).append(f"{each['id']} ({each['status']}) of {each['instance']}")
    return [
        f"volume {id}, which no server has, is {volume['status']}: {by_volume.get(id)}, made for {_maker(volume)}"
        for id, volume in seen.stores.volumes.items()
        if id not in used and (volume["status"] not in FREE or id in by_volume)
    ]


def _maker(volume: dict[str, Any]) -> str:
    return str(volume.get("metadata", {}).get(KEY))


def _volumes_that_were_to_go(cloud: "SimulatedCloud", seen: Census, copied: Collection[str]) -> list[str]:
    """Of servers that are gone; one with snapshots stays, as the volume service has it."""
    gone = {
        booked.id
        for booked in cloud.watch.book.servers.values()
        if booked.id and booked.deleted and booked.root_goes and booked.id not in seen.servers
    }
    return [
        f"volume {id} ({volume['status']}) was to go with {_maker(volume)}, which is deleted"
        for id, volume in seen.stores.volumes.items()
        if _maker(volume) in gone and id not in copied and id not in cloud.watch.book.gone
    ]


def _snapshots(seen: Census, snapshots: Iterable[dict[str, Any]]) -> list[str]:
    """Each is named by an image; those of one that is half made go with it."""
    named = " ".join(str(each.get("block_device_mapping", "")) for each in seen.stores.images)
    half_made = {each["id"] for each in seen.stores.images if each["status"] in {"queued", "saving"}}
    wrong: list[str] = []
    for each in snapshots:
        if OF_USER in each["metadata"]:
            continue
        said = f"snapshot {each['id']} ({each['status']}) of volume {each['volume_id']}"
        if each["metadata"].get(MADE_FOR_IMAGE) in half_made:
            wrong.append(f"{said} is of an image that {HALF_MADE}")
        elif each["id"] not in named:
            wrong.append(f"{said} is in no image: {each['metadata']}")
    return wrong


def wrong_disks(cloud: "SimulatedCloud", seen: Census) -> list[str]:
    """The guest has the image and the volumes that its server shows, and the ports that the network service has on its host for it, and is rescued when that says so; no copy of its disk is left."""
    wrong: list[str] = []
    between_cells = bool(cloud.config.api.policy_file)
    shelved = {
        booked.id
        for booked in cloud.watch.book.servers.values()
        if booked.leave_asked or (between_cells and booked.move_asked)
    }
    """Their disks may be of the image that shelving, or a move to another cell, made, which is gone since."""
    reset_ones = {booked.id for booked in cloud.watch.book.servers.values() if booked.reset}
    for server, shown in cloud.watch.shown.items():
        where = cloud.guests.get(ServerId(server), {})
        role = cloud.roles.get(shown["OS-EXT-SRV-ATTR:host"] or "")
        if not where or not isinstance(role, AgentRole) or role.driver is None:
            continue
        guest = role.driver.guest(ServerId(server))
        if guest is None:
            continue  # the host is not up; the look comes again
        said = f"{server} ({shown['status']} on {role.name})"
        image = shown["image"]["id"] if shown["image"] else None
        if shown["status"] != "ERROR" and server not in shelved and (guest.spec.image or None) != image:
            wrong.append(f"{said} has image {image}, and its disk is of {guest.spec.image}")
        reset = server in reset_ones
        if shown["status"] != "ERROR" and not reset and (guest.rescue is not None) != (shown["status"] == "RESCUE"):
            wrong.append(f"{said}: its guest runs {'' if guest.rescue else 'not '}from a rescue image")
        has = sorted(each.volume for each in guest.spec.volumes)
        wanted = sorted(each["id"] for each in shown["os-extended-volumes:volumes_attached"])
        if has != wanted:
            wrong.append(f"{said} shows volumes {wanted}, and its guest has {has}")
        plugged = sorted(str(each.port) for each in guest.spec.vifs)
        bound = sorted(port["id"] for port in seen.ports.get(server, ()) if port["binding:host_id"] == role.name)
        if shown["status"] != "ERROR" and plugged != bound:
            wrong.append(f"{said} has ports {bound} on that host, and its guest has {plugged}")
        if role.driver.keeps_copy(ServerId(server)):
            wrong.append(f"{said}: a copy of its disk was left")
    return wrong
