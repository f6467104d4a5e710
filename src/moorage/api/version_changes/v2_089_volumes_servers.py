"""2.89: Attached volumes show the ids of attachment and mapping, and no `id` of their own any more."""

from moorage.api.microversions import VersionChange

LIST, ONE = "GET /servers/{id}/os-volume_attachments", "GET /servers/{id}/os-volume_attachments/{volume}"
IDS = (2, 89)

CHANGE = VersionChange(
    at=(2, 89),
    summary="Attached volumes show the ids of attachment and mapping, and no `id` of their own any more.",
    adds={
        LIST: {"volumeAttachments": ("attachment_id", "bdm_uuid")},
        ONE: {"volumeAttachment": ("attachment_id", "bdm_uuid")},
    },
    retires={LIST: {"volumeAttachments": ("id",)}, ONE: {"volumeAttachment": ("id",)}},
    behaviour=("IDS: a device that the volume service does not know yet is not shown",),
)
