"""2.75: An updated or rebuilt server is shown whole."""

from moorage.api.microversions import Json, VersionChange, rows_at


def bare_addresses(body: Json) -> Json:
    for row in rows_at(body, "server"):
        for addresses in row.get("addresses", {}).values():
            for address in addresses:
                address.pop("OS-EXT-IPS:type", None)
                address.pop("OS-EXT-IPS-MAC:mac_addr", None)
    return body


WHOLE = (
    "OS-EXT-AZ:availability_zone",
    "config_drive",
    "OS-SRV-USG:launched_at",
    "OS-SRV-USG:terminated_at",
    "OS-EXT-STS:task_state",
    "OS-EXT-STS:vm_state",
    "OS-EXT-STS:power_state",
    "os-extended-volumes:volumes_attached",
    "security_groups",
    "host_status",
    "OS-EXT-SRV-ATTR:host",
    "OS-EXT-SRV-ATTR:instance_name",
    "OS-EXT-SRV-ATTR:hypervisor_hostname",
    "OS-EXT-SRV-ATTR:hostname",
    "OS-EXT-SRV-ATTR:kernel_id",
    "OS-EXT-SRV-ATTR:launch_index",
    "OS-EXT-SRV-ATTR:ramdisk_id",
    "OS-EXT-SRV-ATTR:reservation_id",
    "OS-EXT-SRV-ATTR:root_device_name",
    "OS-EXT-SRV-ATTR:user_data",
)

CHANGE = VersionChange(
    at=(2, 75),
    summary="An updated or rebuilt server is shown whole.",
    adds={
        "PUT /servers/{id}": {"server": ("key_name", *WHOLE)},
        "POST /servers/{id}/action:rebuild": {"server": WHOLE},
    },
    response={"PUT /servers/{id}": bare_addresses, "POST /servers/{id}/action:rebuild": bare_addresses},
)
