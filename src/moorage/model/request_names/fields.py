"""Scheduler hints, fields of block devices, vNIC types of ports, and quotas."""

from moorage.model.request_groups import FUNCTION_VNIC_TYPES, UNCLAIMED_VNIC_TYPES
from moorage.model.request_names.handling import Fate, alike, each

HINTS = {
    **alike(Fate.SCHEDULER, "operations/boot/scheduler_hints.py", "group", "same_host", "different_host"),
    **alike(
        Fate.NO_EFFECT, "of filters that Nova does not enable by default, or has removed",
        "query", "target_cell", "different_cell", "build_near_host_ip", "cidr",
    ),
}  # fmt: skip

BLOCK_DEVICE = {
    **alike(
        Fate.API, "api/compute/server_bodies.py, operations/boot/boot_devices.py",
        "source_type", "uuid", "image_id", "destination_type", "boot_index", "delete_on_termination", "volume_size", "volume_id",
        "snapshot_id", "no_device", "tag", "volume_type",
    ),
    **alike(Fate.MADE, "drivers/libvirt/domain_xml.py", "disk_bus"),
    **alike(Fate.MADE, "model/local_disks.py, drivers/libvirt/disks.py", "guest_format"),
    **alike(Fate.NO_EFFECT, "the driver chooses the device's name, as Nova's libvirt driver does", "device_name", "virtual_name"),
    **each(Fate.MADE, Fate.DRIVER_REFUSES, "drivers/libvirt/machine_features.py: volumes are disks", "device_type"),
    **alike(Fate.NO_EFFECT, "Nova replaces it with the volume's own", "connection_info"),
}  # fmt: skip

VNIC_TYPES = {
    **alike(Fate.MADE, "drivers", "normal"),
    **each(
        Fate.MADE,
        Fate.NO_HOST,
        "request_groups.py: a virtual function, or a whole interface, is claimed",
        *FUNCTION_VNIC_TYPES,
    ),
    **alike(Fate.REFUSED, "clients/network/nic_validation.py", *UNCLAIMED_VNIC_TYPES),
}

QUOTAS = {
    **alike(
        Fate.API, "store/region/quotas.py",
        "instances", "cores", "ram", "metadata_items", "key_pairs", "server_groups", "server_group_members", "injected_files",
        "injected_file_content_bytes", "injected_file_path_bytes",
    ),
    **alike(
        Fate.NO_EFFECT, "the network service's; below 2.36 stored and shown, as by Nova",
        "floating_ips", "fixed_ips", "security_groups", "security_group_rules",
    ),
}  # fmt: skip
