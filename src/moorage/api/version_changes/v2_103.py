"""2.103: `/os-volumes_boot` is gone; it was another name of `/servers`."""

from moorage.api.microversions import VersionChange

PATHS = (
    "GET /os-volumes_boot",
    "POST /os-volumes_boot",
    "GET /os-volumes_boot/detail",
    "GET /os-volumes_boot/{id}",
    "PUT /os-volumes_boot/{id}",
    "DELETE /os-volumes_boot/{id}",
    "POST /os-volumes_boot/{id}/action",
)

CHANGE = VersionChange(at=(2, 103), summary="`/os-volumes_boot` is gone.", ends=PATHS)
