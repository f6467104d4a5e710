"""2.79: A volume may be attached so that it goes with its server, and says whether it does."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 79),
    summary="A volume may be attached so that it goes with its server, and says whether it does.",
    refuses={"POST /servers/{id}/os-volume_attachments": {"volumeAttachment": ("delete_on_termination",)}},
    adds={
        "GET /servers/{id}/os-volume_attachments": {"volumeAttachments": ("delete_on_termination",)},
        "GET /servers/{id}/os-volume_attachments/{volume}": {"volumeAttachment": ("delete_on_termination",)},
        "POST /servers/{id}/os-volume_attachments": {"volumeAttachment": ("delete_on_termination",)},
    },
)
