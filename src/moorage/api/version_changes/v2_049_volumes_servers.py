"""2.49: A volume may be attached with a tag."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 49),
    summary="A volume may be attached with a tag.",
    refuses={"POST /servers/{id}/os-volume_attachments": {"volumeAttachment": ("tag",)}},
)
