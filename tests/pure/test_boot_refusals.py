"""What a boot and a rescue are refused for because of an image, a volume or a zone, with Nova's statuses."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.model.boot import BootRequest
from moorage.model.errors import Conflict, Invalid
from moorage.model.flavor import Flavor
from moorage.model.ids import FlavorId
from moorage.model.image import Image
from moorage.model.server import BlockDevice
from moorage.model.volume import Volume
from moorage.operations import boot_devices, rescue
from moorage.operations.boot_request import refuse_devices
from moorage.testing.frontdesk import MEMBER
from moorage.testing.servers import IMAGE, a_server

VOLUME = "0a1b2c3d-0000-4000-8000-000000000001"
FLAVOR = Flavor(number=1, id=FlavorId("1"), name="m1.tiny", vcpus=1, ram_mib=512, disk_gib=1)
ROOT = BlockDevice("volume", "volume", 0, VOLUME)


def rooms(status: str = "available", **properties: str) -> Any:
    async def volume(*_: str) -> Volume:
        return Volume(id=VOLUME, status=status, size_gib=1, bootable=True, availability_zone="west")

    async def image(*_: str) -> Image:
        return Image(id=IMAGE, properties=properties)

    return SimpleNamespace(
        images=SimpleNamespace(show=image),
        volumes=SimpleNamespace(show=volume),
        settings=SimpleNamespace(cross_az_attach=False, default_availability_zone="nova", rescue_image=""),
    )


async def understood(request: dict[str, Any], properties: dict[str, str]) -> boot_devices.BootDevices:
    asked = BootRequest("web", "1", **request)
    return await boot_devices.understood(rooms(**properties), MEMBER, "token", asked, FLAVOR, may_zero_disk=False)


async def test_what_is_taken() -> None:
    assert (await understood({"image_ref": IMAGE, "trusted_certs": ("c",)}, {"img_config_drive": "mandatory"})).image
    assert (await understood({"block_devices": (ROOT,)}, {})).zone == "west"
    assert (await understood({"block_devices": (ROOT,), "availability_zone": "west:host1"}, {})).zone == "west"


@pytest.mark.parametrize(
    ("request_says", "image_says", "said"),
    [
        ({"block_devices": (ROOT,), "availability_zone": "east"}, {}, "not in the same availability zone"),
        ({"block_devices": (ROOT,), "trusted_certs": ("c",)}, {}, "certificate validation is not supported"),
        ({"image_ref": IMAGE}, {"cinder_encryption_key_id": "k"}, "is unacceptable"),
        ({"image_ref": IMAGE}, {"img_config_drive": "perhaps"}, "config drive option 'perhaps' is invalid"),
    ],
    ids=["zone", "certificates", "encrypted", "config-drive"],
)
async def test_a_boot_is_a_bad_request(request_says: dict[str, Any], image_says: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        await understood(request_says, image_says)


@pytest.mark.parametrize("spec", ["pci_passthrough:alias", "accel:device_profile"])
def test_devices_that_nobody_gives(spec: str) -> None:
    refuse_devices(FLAVOR)
    with pytest.raises(Invalid, match="gpu"):
        refuse_devices(msgspec.structs.replace(FLAVOR, extra_specs={spec: "gpu:1"}))


async def test_a_rescue_waits_for_the_servers_volumes() -> None:
    disk = msgspec.structs.replace(ROOT, boot_index=1, volume=VOLUME)
    server = msgspec.structs.replace(a_server(), block_devices=(disk,))
    with pytest.raises(Conflict, match="must be 'in-use'"):
        await rescue.begin(rooms("detaching"), MEMBER, "token", server, None, check=lambda _: None)
