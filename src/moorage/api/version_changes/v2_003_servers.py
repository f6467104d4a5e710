"""2.3: More extended attributes; attached volumes say whether they go with the server."""

from moorage.api.microversions import Json, VersionChange, rows_at


def ids_only(body: Json) -> Json:
    for row in (*rows_at(body, "servers"), *rows_at(body, "server")):
        for volume in row.get("os-extended-volumes:volumes_attached", ()):
            volume.pop("delete_on_termination", None)
    return body


CHANGE = VersionChange(
    at=(2, 3),
    summary="More extended attributes; attached volumes say whether they go with the server.",
    adds={
        "GET /servers/detail": {
            "servers": (
                "OS-EXT-SRV-ATTR:hostname",
                "OS-EXT-SRV-ATTR:kernel_id",
                "OS-EXT-SRV-ATTR:launch_index",
                "OS-EXT-SRV-ATTR:ramdisk_id",
                "OS-EXT-SRV-ATTR:reservation_id",
                "OS-EXT-SRV-ATTR:root_device_name",
                "OS-EXT-SRV-ATTR:user_data",
            )
        },
        "GET /servers/{id}": {
            "server": (
                "OS-EXT-SRV-ATTR:hostname",
                "OS-EXT-SRV-ATTR:kernel_id",
                "OS-EXT-SRV-ATTR:launch_index",
                "OS-EXT-SRV-ATTR:ramdisk_id",
                "OS-EXT-SRV-ATTR:reservation_id",
                "OS-EXT-SRV-ATTR:root_device_name",
                "OS-EXT-SRV-ATTR:user_data",
            )
        },
        "PUT /servers/{id}": {
            "server": (
                "OS-EXT-SRV-ATTR:hostname",
                "OS-EXT-SRV-ATTR:kernel_id",
                "OS-EXT-SRV-ATTR:launch_index",
                "OS-EXT-SRV-ATTR:ramdisk_id",
                "OS-EXT-SRV-ATTR:reservation_id",
                "OS-EXT-SRV-ATTR:root_device_name",
                "OS-EXT-SRV-ATTR:user_data",
            )
        },
    },
    response={"GET /servers/detail": ids_only, "GET /servers/{id}": ids_only},
)
