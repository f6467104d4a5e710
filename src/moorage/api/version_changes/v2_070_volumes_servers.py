"""2.70: Attached volumes show their tag."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 70),
    summary="Attached volumes show their tag.",
    adds={
        "GET /servers/{id}/os-volume_attachments": {"volumeAttachments": ("tag",)},
        "GET /servers/{id}/os-volume_attachments/{volume}": {"volumeAttachment": ("tag",)},
        "POST /servers/{id}/os-volume_attachments": {"volumeAttachment": ("tag",)},
    },
)
