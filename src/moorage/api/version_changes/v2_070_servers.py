"""2.70: Attached interfaces show their tag."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 70),
    summary="Attached interfaces show their tag.",
    adds={
        "GET /servers/{id}/os-interface": {"interfaceAttachments": ("tag",)},
        "GET /servers/{id}/os-interface/{port}": {"interfaceAttachment": ("tag",)},
        "POST /servers/{id}/os-interface": {"interfaceAttachment": ("tag",)},
    },
)
