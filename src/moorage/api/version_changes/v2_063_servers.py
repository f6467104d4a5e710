"""2.63: A server may name the certificates its image must be signed with."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 63),
    summary="A server may name the certificates its image must be signed with.",
    adds={
        "GET /servers/detail": {"servers": ("trusted_image_certificates",)},
        "GET /servers/{id}": {"server": ("trusted_image_certificates",)},
        "PUT /servers/{id}": {"server": ("trusted_image_certificates",)},
        "POST /servers/{id}/action:rebuild": {"server": ("trusted_image_certificates",)},
    },
    refuses={
        "POST /servers": {"server": ("trusted_image_certificates",)},
        "POST /servers/{id}/action:rebuild": {"rebuild": ("trusted_image_certificates",)},
    },
)
