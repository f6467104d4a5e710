"""A server's ephemeral and swap disks, which are on its host beside the root: as its devices ask for them, or else one of each of its flavor.

As in Nova an ephemeral disk of a size of its own keeps it in moves and resizes; one without has what the flavor says. Several of them, or one
with a format, are made by hosts with the trait DISKS_TRAIT; an earlier release makes one disk of the whole size.
"""

from collections.abc import Sequence

from moorage.model.guest import EphemeralDisk
from moorage.model.server import BlockDevice, FlavorCopy

LOCAL_MAX = 3
"""How many devices may be on the host's own disk, the root among them (Nova's `max_local_block_devices`)."""
SWAP = "swap"
XFS = "xfs"
FORMATS = ("ext2", "ext3", "ext4", XFS)
"""What Nova's libvirt driver formats an ephemeral disk with, when a device asks for it."""
DISKS_TRAIT, XFS_TRAIT = "CUSTOM_EPHEMERAL_DISKS", "CUSTOM_EPHEMERAL_DISKS_XFS"
DRIVER_TRAITS = frozenset({DISKS_TRAIT, XFS_TRAIT})
"""Traits that only a host's own report gives and takes away, although they are no standard ones."""


def is_blank(device: BlockDevice) -> bool:
    """Whether it is an ephemeral or a swap disk."""
    return device.source == "blank" and device.destination == "local"


def is_ephemeral(device: BlockDevice) -> bool:
    return is_blank(device) and device.guest_format != SWAP


def is_swap(device: BlockDevice) -> bool:
    return is_blank(device) and device.guest_format == SWAP


def ephemerals_of(flavor: FlavorCopy, devices: Sequence[BlockDevice]) -> tuple[EphemeralDisk, ...]:
    """The ephemeral disks, in the order of the devices; one without a size has all that the flavor says."""
    listed = [each for each in devices if is_ephemeral(each)]
    sizes = [(each.size_gib or flavor.ephemeral_gib, each.guest_format or "") for each in listed]
    if not listed:
        sizes = [(flavor.ephemeral_gib, "")]
    return tuple(EphemeralDisk(size_gib, format) for size_gib, format in sizes if size_gib)


def ephemeral_gib_of(flavor: FlavorCopy, devices: Sequence[BlockDevice]) -> int:
    """What the ephemeral disks have together: a flavor with less is too small for the server."""
    return sum(each.size_gib for each in ephemerals_of(flavor, devices))


def swap_mib_of(flavor: FlavorCopy, devices: Sequence[BlockDevice]) -> int:
    """MiB of the swap disk, which is what a device asks for (its size is in MiB, as in Nova), and never more than the flavor has."""
    listed = next((each.size_gib for each in devices if is_swap(each)), None)
    return min(listed or flavor.swap_mib, flavor.swap_mib)


def unlisted(flavor: FlavorCopy, devices: Sequence[BlockDevice]) -> tuple[bool, bool]:
    """Whether the server has an ephemeral disk, and whether a swap disk, of its flavor, that none of its devices names."""
    return (
        flavor.ephemeral_gib > 0 and not any(map(is_ephemeral, devices)),
        flavor.swap_mib > 0 and not any(map(is_swap, devices)),
    )


def traits_of(devices: Sequence[BlockDevice]) -> tuple[str, ...]:
    """The traits of hosts that make these disks as they were asked for."""
    listed = [each for each in devices if is_ephemeral(each)]
    if len(listed) < 2 and not any(each.guest_format for each in listed):
        return ()
    return (DISKS_TRAIT, XFS_TRAIT) if any(each.guest_format == XFS for each in listed) else (DISKS_TRAIT,)
