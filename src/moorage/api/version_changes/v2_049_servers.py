"""2.49: An interface may be attached with a tag."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 49),
    summary="An interface may be attached with a tag.",
    refuses={"POST /servers/{id}/os-interface": {"interfaceAttachment": ("tag",)}},
)
