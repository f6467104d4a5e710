"""What a boot and a rescue are refused for because of an image, a volume or a zone, with Nova's statuses."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.model.boot_request import BootRequest, NicWish
from moorage.model.errors import Conflict, Forbidden, HostFailed, Invalid
from moorage.model.flavor import Flavor
from moorage.model.guest import EphemeralDisk, GuestSpec
from moorage.model.ids import FlavorId, ServerId
from moorage.model.image import Image
from moorage.model.server import BlockDevice
from moorage.model.volume import Volume
from moorage.operations.boot import boot_devices
from moorage.operations.boot.accept_boot import begin
from moorage.operations.boot.boot_checks import BootRights
from moorage.operations.boot.boot_devices import check_form
from moorage.operations.boot.boot_input import Boot
from moorage.operations.boot.boot_servers import refuse_devices
from moorage.operations.boot.boot_volumes import given
from moorage.operations.guest import rescue
from moorage.operations.guest.rescue import RescueRequest
from moorage.operations.image_mappings import merged
from moorage.operations.resize.prepare_resize import refuse_shrinking
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.volumes import next_device
from moorage_testing.compute_app import MEMBER
from moorage_testing.fake_server_service import IMAGE, a_server

VOLUME = "0a1b2c3d-0000-4000-8000-000000000001"
FLAVOR = Flavor(number=1, id=FlavorId("1"), name="m1.tiny", vcpus=1, ram_mib=512, disk_gib=1)
ROOT = BlockDevice("volume", "volume", 0, VOLUME)


def context(status: str = "available", **properties: str) -> Any:
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
    return await boot_devices.understood(context(**properties), MEMBER, "token", asked, FLAVOR, may_zero_disk=False)


async def test_valid_boot_requests_are_accepted() -> None:
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
        ({"image_ref": IMAGE}, {"hw_firmware_type": "efi"}, "Field value efi is invalid"),
        ({"image_ref": IMAGE, "block_devices": (ROOT,)}, {"hw_cpu_max_cores": "x"}, "Invalid image metadata"),
    ],
    ids=["zone", "certificates", "encrypted", "config-drive", "firmware", "processors"],
)
async def test_invalid_boots_are_bad_requests(
    request_says: dict[str, Any], image_says: dict[str, str], said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        await understood(request_says, image_says)


def named(device: BlockDevice, name: str) -> BlockDevice:
    return msgspec.structs.replace(device, device=name)


LOCAL_ROOT = BlockDevice("image", "local", 0, IMAGE)
EMPTY, SWAP = BlockDevice("blank", "local"), BlockDevice("blank", "local", guest_format="swap")
LARGER = msgspec.structs.replace(FLAVOR, ephemeral_gib=10, swap_mib=512)


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ((BlockDevice("image", "local", 0, VOLUME),), "this device names another image"),
        ((msgspec.structs.replace(LOCAL_ROOT, disk_bus="ide"),), "are its image's properties"),
        ((msgspec.structs.replace(LOCAL_ROOT, device_type="cdrom"),), "are its image's properties"),
        ((LOCAL_ROOT, msgspec.structs.replace(EMPTY, guest_format="vfat")), "vfat format is not supported"),
        (
            (LOCAL_ROOT, EMPTY, EMPTY),
            "If no size is given in one block device mapping, flavor ephemeral size will be used",
        ),
        ((LOCAL_ROOT, msgspec.structs.replace(EMPTY, size_gib=2_000_000_000)), "larger than the instance type allows"),
        ((LOCAL_ROOT, *[msgspec.structs.replace(EMPTY, size_gib=6)] * 2), "larger than the instance type allows"),
        ((LOCAL_ROOT, *[msgspec.structs.replace(EMPTY, size_gib=1)] * 3), "more local devices than the limit allows"),
        ((LOCAL_ROOT, SWAP, SWAP), "More than one swap drive"),
        ((LOCAL_ROOT, msgspec.structs.replace(SWAP, size_gib=513)), "Swap drive requested is larger"),
    ],
)
def test_unsupported_devices_are_refused(devices: tuple[BlockDevice, ...], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        check_form(BootRequest("web", "1", image_ref=IMAGE, block_devices=devices), LARGER)


NEW_ROOT = BlockDevice("image", "volume", 0, IMAGE, size_gib=1)
DATA = BlockDevice("blank", "volume", size_gib=1)


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ((NEW_ROOT, named(DATA, "/dev/vda")), "same device name as the root device vda"),
        ((NEW_ROOT, named(DATA, "vda")), "same device name as the root device vda"),
        ((LOCAL_ROOT, named(DATA, "/dev/vda")), "same device name as the root device vda"),
        ((named(NEW_ROOT, "/dev/sda"), named(DATA, "sda")), "a device name is given twice"),
        ((NEW_ROOT, named(DATA, "/dev/vdb"), named(DATA, "vdb")), "a device name is given twice"),
    ],
)
def test_two_disks_of_one_name_are_refused(devices: tuple[BlockDevice, ...], said: str) -> None:
    image = IMAGE if devices[0].destination == "local" else None
    with pytest.raises(Invalid, match=said):
        check_form(BootRequest("web", "1", image_ref=image, block_devices=devices), LARGER)


def test_a_name_that_the_root_does_not_have_is_free() -> None:
    check_form(BootRequest("web", "1", block_devices=(named(NEW_ROOT, "/dev/sda"), named(DATA, "/dev/vda"))), LARGER)


def test_an_ephemeral_disk_needs_a_flavor_with_one() -> None:
    with pytest.raises(Invalid, match="larger than the instance type allows"):
        check_form(BootRequest("web", "1", image_ref=IMAGE, block_devices=(LOCAL_ROOT, EMPTY)), FLAVOR)


def test_too_many_devices_are_refused_before_parsing() -> None:
    with pytest.raises(Forbidden, match="disk devices"):
        check_form(BootRequest("web", "1", image_ref=IMAGE, block_devices=(EMPTY,) * 65), LARGER)


@pytest.mark.parametrize(
    ("devices", "ephemeral_gib", "swap_mib"),
    [
        ((), 10, 512),
        ((LOCAL_ROOT, EMPTY, SWAP), 10, 512),
        ((LOCAL_ROOT, msgspec.structs.replace(EMPTY, size_gib=4)), 4, 512),
        ((LOCAL_ROOT, msgspec.structs.replace(SWAP, size_gib=64)), 10, 64),
        ((LOCAL_ROOT, *[msgspec.structs.replace(EMPTY, size_gib=4)] * 2), 8, 512),
    ],
)
def test_a_guest_gets_the_requested_disks(devices: tuple[BlockDevice, ...], ephemeral_gib: int, swap_mib: int) -> None:
    check_form(BootRequest("web", "1", image_ref=IMAGE, block_devices=devices or (LOCAL_ROOT,)), LARGER)
    guest = guest_of(a_server(flavor=LARGER.copy(), block_devices=devices), {}, (), "nova")
    assert (guest.ephemeral_gib, guest.swap_mib) == (ephemeral_gib, swap_mib)


def test_sizes_of_disks_and_what_a_resize_may_take() -> None:
    """Sizes that were asked for stay; a swap disk is never larger than its flavor's; what is refused is a smaller sum, not a smaller flavor."""
    sized = (msgspec.structs.replace(EMPTY, size_gib=4, guest_format="xfs"), msgspec.structs.replace(EMPTY, size_gib=2))
    swap = msgspec.structs.replace(SWAP, size_gib=256)
    server = a_server(flavor=LARGER.copy(), block_devices=(LOCAL_ROOT, *sized, swap))
    disks = (EphemeralDisk(4, "xfs"), EphemeralDisk(2))
    for ephemeral_gib, swap_mib in ((20, 512), (6, 0)):
        new = msgspec.structs.replace(server.flavor, ephemeral_gib=ephemeral_gib, swap_mib=swap_mib)
        refuse_shrinking(server, new)
        guest = guest_of(msgspec.structs.replace(server, flavor=new), {}, (), "nova")
        assert (guest.ephemeral_disks, guest.swap_mib) == (disks, min(256, swap_mib))
    with pytest.raises(HostFailed, match="Unable to resize disk down"):
        refuse_shrinking(server, msgspec.structs.replace(server.flavor, ephemeral_gib=5))
    plain = a_server(flavor=LARGER.copy())
    with pytest.raises(HostFailed, match="Unable to resize disk down"):
        refuse_shrinking(plain, msgspec.structs.replace(plain.flavor, ephemeral_gib=9))


def test_a_host_sees_the_disk_that_would_shrink() -> None:
    old = GuestSpec(ServerId("s"), "s", 1, 64, 1, 6, ephemerals=(EphemeralDisk(4), EphemeralDisk(2)))
    swapped = msgspec.structs.replace(old, ephemerals=(EphemeralDisk(2), EphemeralDisk(4)))
    assert (old.shrinks(old), old.shrinks(swapped)) == ("", "ephemeral0: 4 to 2 GiB")
    assert old.shrinks(msgspec.structs.replace(old, ephemerals=())) == "ephemeral1: 2 to 0 GiB"
    assert old.shrinks(msgspec.structs.replace(old, root_gib=0)) == "root: 1 to 0 GiB"


def test_device_names_come_in_the_order_of_the_guests_disks() -> None:
    """Ephemeral disks, then swap, then volumes; the flavor's swap disk, which no device names, has its name, too."""
    named = msgspec.structs.replace(EMPTY, size_gib=1, device="/dev/vdz")
    disks = (
        LOCAL_ROOT,
        msgspec.structs.replace(ROOT, boot_index=None),
        named,
        msgspec.structs.replace(EMPTY, size_gib=1),
    )
    server = a_server(flavor=LARGER.copy())
    made = given(Boot(server=server), boot_devices.BootDevices(disks)).server
    assert [each.device for each in made.block_devices] == ["/dev/vda", "/dev/vdd", "/dev/vdz", "/dev/vdb"]
    assert next_device(made) == "/dev/vde"
    without = (LOCAL_ROOT, msgspec.structs.replace(ROOT, boot_index=None))
    made = given(Boot(server=server), boot_devices.BootDevices(without)).server
    assert [each.device for each in made.block_devices] == ["/dev/vda", "/dev/vdd"]


def test_a_removed_device_of_the_image_is_left_out() -> None:
    rows = [{"source_type": "blank", "device_name": f"/dev/vd{letter}", "volume_size": 1} for letter in "bc"]
    image = Image(id=IMAGE, properties={"bdm_v2": "true", "block_device_mapping": msgspec.json.encode(rows).decode()})
    assert [each.device for each in merged(image, (LOCAL_ROOT,), ("vdb",))] == [None, "/dev/vdc"]


ASKS = [
    ({"nics": (NicWish(network="n"),) * 65}, "64 network interfaces, and 65"),
    ({"security_groups": ("g",) * 101}, "100 security groups, and 101"),
]


@pytest.mark.parametrize(("asks", "said"), ASKS)
async def test_lists_that_are_too_long_are_refused_before_any_call(asks: dict[str, Any], said: str) -> None:
    nobody: Any = SimpleNamespace()
    with pytest.raises(Invalid, match=said):
        await begin(nobody, MEMBER, "token", BootRequest("web", "1", **asks), BootRights())


@pytest.mark.parametrize("spec", ["pci_passthrough:alias", "accel:device_profile"])
def test_aliases_and_accelerators_are_refused(spec: str) -> None:
    refuse_devices(FLAVOR)
    with pytest.raises(Invalid, match="gpu"):
        refuse_devices(msgspec.structs.replace(FLAVOR, extra_specs={spec: "gpu:1"}))


async def test_a_rescue_waits_for_the_servers_volumes() -> None:
    disk = msgspec.structs.replace(ROOT, boot_index=1, volume=VOLUME)
    server = msgspec.structs.replace(a_server(), block_devices=(disk,))
    with pytest.raises(Conflict, match="must be 'in-use'"):
        await rescue.begin(context("detaching"), MEMBER, "token", server, RescueRequest(), check=lambda _: None)
