"""Plants differences between the devices of a guest and its server's record."""

import msgspec

from moorage.model.server import BlockDevice
from moorage.model.volume import Attachment
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_volumes import OTHER_VOLUME, VOLUME
from tests.helpers.leak_planting import OTHER, a_port, change, plants, record

BDM = "0d0c0b0a-0000-4000-8000-00000000b0b0"


async def has(small: SmallRegion, *volumes: str) -> str:
    """The guest has these volumes; return its host."""
    host = str((await record(small)).host)
    small.hosts.tells_devices = True
    small.hosts.disks |= {(host, SERVER, each) for each in volumes}
    return host


def attach(small: SmallRegion, id: str, volume: str, host: str, server: str = SERVER) -> None:
    """The volume service has an attachment that is exported to this host."""
    small.volumes.attachments[id] = Attachment(id=id, volume=volume, server=server, status="attached")
    small.volumes.hosts[id] = host
    small.volumes.volumes[volume] = msgspec.structs.replace(small.volumes.volumes[volume], status="in-use")


async def lists(small: SmallRegion, volume: str, attachment: str) -> None:
    disk = BlockDevice(
        "volume", "volume", uuid=volume, volume=volume, attachment=attachment, bdm=BDM, device="/dev/vdb"
    )
    await change(small, block_devices=(disk,))


@plants("guest_volume_unrecorded")
async def _left_in_the_guest(small: SmallRegion) -> None:
    await has(small, VOLUME)


@plants("guest_volume_of_other")
async def _of_another_server(small: SmallRegion) -> None:
    await has(small, VOLUME)
    attach(small, "other", VOLUME, "host9", OTHER)


@plants("guest_volume_missing")
async def _taken_out(small: SmallRegion) -> None:
    host = await has(small)
    attach(small, "mine", VOLUME, host)
    await lists(small, VOLUME, "mine")


@plants("guest_volume_replaced")
async def _swapped(small: SmallRegion) -> None:
    host = await has(small, OTHER_VOLUME)
    small.hosts.bdms[OTHER_VOLUME] = BDM
    attach(small, "new", OTHER_VOLUME, host)
    await lists(small, VOLUME, "gone")


@plants("guest_interface_unrecorded")
async def _still_plugged(small: SmallRegion) -> None:
    host = await has(small)
    small.hosts.wired.add((host, SERVER, "00000000-0000-4000-8000-00000000f0f0"))


@plants("guest_interface_missing")
async def _unplugged(small: SmallRegion) -> None:
    host = await has(small)
    small.hosts.wired.discard((host, SERVER, a_port(small).id))


@plants("attachment_elsewhere")
async def _exported_elsewhere(small: SmallRegion) -> None:
    attach(small, "mine", VOLUME, "host9")
    await lists(small, VOLUME, "mine")
