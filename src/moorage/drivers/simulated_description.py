"""What a simulated host says of itself, by its dials."""

from moorage.drivers.capacity import RESERVED_RAM_MIB, VCPU_RATIO, inventory
from moorage.drivers.fault_injection import FaultSettings
from moorage.drivers.simulated_live import cpu_info
from moorage.model.guest import HostDescription
from moorage.model.local_disks import DISKS_TRAIT, XFS_TRAIT

ADDRESS_BITS = 46
"""Of guests' memory, as of most servers."""
TRAITS = (
    "COMPUTE_ADDRESS_SPACE_EMULATED",
    "COMPUTE_ADDRESS_SPACE_PASSTHROUGH",
    "COMPUTE_ARCH_I686",
    "COMPUTE_ARCH_X86_64",
    "COMPUTE_DEVICE_TAGGING",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG",
    "COMPUTE_NET_VIRTIO_PACKED",
    "COMPUTE_NODE",
    "COMPUTE_RESCUE_BFV",
    "COMPUTE_SOUND_MODEL_AC97",
    "COMPUTE_SOUND_MODEL_ES1370",
    "COMPUTE_SOUND_MODEL_ICH6",
    "COMPUTE_SOUND_MODEL_ICH9",
    "COMPUTE_SOUND_MODEL_PCSPK",
    "COMPUTE_SOUND_MODEL_SB16",
    "COMPUTE_SOUND_MODEL_USB",
    "COMPUTE_SOUND_MODEL_VIRTIO",
    "COMPUTE_USB_MODEL_NEC_XHCI",
    "COMPUTE_USB_MODEL_QEMU_XHCI",
    "COMPUTE_VIOMMU_MODEL_AUTO",
    "COMPUTE_VIOMMU_MODEL_INTEL",
    "COMPUTE_VIOMMU_MODEL_VIRTIO",
    "COMPUTE_VOLUME_ATTACH_WITH_TAG",
    DISKS_TRAIT,
    XFS_TRAIT,
)


def described(dials: FaultSettings, hostname: str, set_aside: tuple[str, ...], up_since: int) -> HostDescription:
    """Return the description; `up_since`: µs since 1970, `set_aside`: guests whose records could not be read."""
    return HostDescription(
        inventory={
            "VCPU": inventory(dials.vcpus, dials.reserved_vcpus, dials.vcpu_ratio, usual=(0, VCPU_RATIO)),
            "MEMORY_MB": inventory(
                dials.ram_mib, dials.reserved_ram_mib, dials.ram_ratio, usual=(RESERVED_RAM_MIB, 1.0)
            ),
            "DISK_GB": inventory(dials.disk_gib, dials.reserved_disk_gib, dials.disk_ratio),
        },
        traits=tuple(sorted({*TRAITS, *dials.traits} - set(dials.without_traits))),
        physical_networks=dials.physical_networks,
        hypervisor_type="simulated",
        hypervisor_version=dials.hypervisor_version,
        hypervisor_hostname=hostname,
        cpu_info={**cpu_info(dials), "maxphysaddr": {"mode": "emulate", "bits": ADDRESS_BITS}},
        address="127.0.0.1",
        physical_functions=dials.physical_functions,
        set_aside=set_aside,
        up_since=up_since,
    )
