"""2.32: A network card, and for this version alone a block device, may be given a tag."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 32),
    summary="A network card, and for this version alone a block device, may be given a tag.",
    refuses={"POST /servers": {"server.networks": ("tag",), "server.block_device_mapping_v2": ("tag",)}},
)
