"""2.67: A block device may say the type of volume."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 67),
    summary="A block device may say the type of volume.",
    refuses={"POST /servers": {"server.block_device_mapping_v2": ("volume_type",)}},
)
