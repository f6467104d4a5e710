"""What the service is: its zones, pools, extensions and filters; and the lists of what it has none of."""

import os
import shutil
from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, json_response
from moorage_embedded.http_kit.values import bounded_number
from moorage_embedded.volume.faults import bad
from moorage_embedded.volume.files import GIB
from moorage_embedded.volume.records import volume_of
from moorage_embedded.volume.request import VolumeCall, VolumeContext, stamp
from moorage_embedded.volume.store import Doc
from moorage_embedded.volume.validation import flag

EXTENSIONS = {
    "os-admin-actions": "AdminActions",
    "os-availability-zone": "AvailabilityZones",
    "os-extended-services": "ExtendedServices",
    "os-extended-snapshot-attributes": "ExtendedSnapshotAttributes",
    "os-hosts": "Hosts",
    "os-quota-class-sets": "QuotaClasses",
    "os-quota-sets": "Quotas",
    "os-services": "Services",
    "os-snapshot-actions": "SnapshotActions",
    "os-types-extra-specs": "TypesExtraSpecs",
    "os-types-manage": "TypesManage",
    "os-used-limits": "UsedLimits",
    "os-vol-host-attr": "VolumeHostAttribute",
    "os-vol-image-meta": "VolumeImageMetadata",
    "os-vol-mig-status-attr": "VolumeMigStatusAttribute",
    "os-vol-tenant-attr": "VolumeTenantAttribute",
    "os-volume-actions": "VolumeActions",
    "os-volume-encryption-metadata": "VolumeEncryptionMetadata",
    "os-volume-transfer": "VolumeTransfer",
    "os-volume-type-access": "VolumeTypeAccess",
    "encryption": "VolumeTypeEncryption",
    "qos-specs": "Qos_specs_manage",
    "scheduler-stats": "Scheduler_stats",
    "OS-SCH-HNT": "SchedulerHints",
    "backups": "Backups",
    "capabilities": "Capabilities",
}
"""Alias → name."""
FILTERS: dict[str, list[str]] = {
    "volume": [
        "name", "status", "metadata", "bootable", "migration_status", "availability_zone", "group_id", "size",
        "created_at", "updated_at", "consumes_quota",
    ],
    "backup": ["name", "status", "volume_id"],
    "snapshot": ["name", "status", "volume_id", "metadata", "availability_zone", "consumes_quota"],
    "group": ["name"],
    "group_snapshot": ["name", "status", "group_id"],
    "attachment": ["volume_id", "status", "instance_id", "attach_status"],
    "message": ["resource_uuid", "resource_type", "event_id", "request_id", "message_level"],
    "pool": ["name", "volume_type"],
    "volume_type": ["is_public", "extra_specs"],
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- what there is


async def zones(call: VolumeCall) -> Response:
    info = {"zoneName": call.context.settings.availability_zone, "zoneState": {"available": True}}
    return json_response({"availabilityZoneInfo": [info]})


async def extensions(call: VolumeCall) -> Response:
    """The extensions, or one of them. Raises HttpFault (404)."""
    rows = [
        {"name": name, "alias": alias, "description": "", "updated": "2013-01-01T00:00:00+00:00", "links": []}
        for alias, name in EXTENSIONS.items()
    ]
    if len(call.parts) == 1:
        return json_response({"extensions": rows})
    for row in rows:
        if row["alias"] == call.path("alias"):
            return json_response({"extension": row})
    raise HttpFault(404, "The resource could not be found.")


async def pools(call: VolumeCall) -> Response:
    call.require(call.who.admin, "scheduler_extension:scheduler_stats:get_pools")
    settings = call.context.settings
    row: Doc = {"name": settings.host}
    if flag(dict(call.pairs).get("detail", False)):
        row["capabilities"] = await capabilities_of(call.context)
    return json_response({"pools": [row]})


async def capabilities_of(context: VolumeContext) -> Doc:
    """What pools, the list of capabilities and the check of volume types say of the back end."""
    directory = context.files.directory
    place = shutil.disk_usage(directory)
    docs = await context.read(lambda store: store.many("volume"))
    return {
        "volume_backend_name": "files",
        "driver_version": "1.0",
        "vendor_name": "Moorage",
        "storage_protocol": "local",
        "pool_name": context.settings.host.rpartition("#")[2],
        "total_capacity_gb": round(place.total / GIB, 2),
        "free_capacity_gb": round(place.free / GIB, 2),
        "allocated_capacity_gb": sum(doc["size"] for doc in docs),
        "provisioned_capacity_gb": sum(doc["size"] for doc in docs),
        "reserved_percentage": 0,
        "max_over_subscription_ratio": "20.0",
        "thin_provisioning_support": True,
        "thick_provisioning_support": False,
        "multiattach": True,
        "online_extend_support": True,
        "QoS_support": False,
        "location_info": str(os.fspath(directory)),
        "backend_state": "up",
        "timestamp": stamp(),
    }


async def capabilities(call: VolumeCall) -> Response:
    """The capabilities of the host. Raises HttpFault (404) for another host."""
    call.require(call.who.admin, "volume_extension:capabilities")
    host = call.context.settings.host.partition("#")[0]
    if call.path("host") not in {host, call.context.settings.host}:
        raise HttpFault(404, f"Can't find service: {call.path('host')}")
    found = await capabilities_of(call.context)
    return json_response(
        {
            "namespace": f"OS::Storage::Capabilities::{host}",
            "vendor_name": found["vendor_name"],
            "volume_backend_name": found["volume_backend_name"],
            "pool_name": found["pool_name"],
            "driver_version": found["driver_version"],
            "storage_protocol": found["storage_protocol"],
            "display_name": None,
            "description": None,
            "visibility": None,
            "replication_targets": [],
            "properties": {},
        }
    )


async def resource_filters(call: VolumeCall) -> Response:
    call.since(33)
    wanted = dict(call.pairs).get("resource")
    rows = [{"resource": name, "filters": filters} for name, filters in FILTERS.items() if wanted in (None, name)]
    return json_response({"resource_filters": rows})


async def encryption_metadata(call: VolumeCall) -> Response:
    """No volume here is encrypted."""
    await call.context.read_inline(lambda store: volume_of(call, store, call.path("id")))
    return json_response({"encryption_key_id": None})


# ---------------------------------------------------------------------------------------------------- what there is none of

EMPTY: dict[str, tuple[str, int]] = {
    "backups": ("backups", 0),
    "consistencygroups": ("consistencygroups", 0),
    "cgsnapshots": ("cgsnapshots", 0),
    "clusters": ("clusters", 7),
}
"""Path → what its list is called, and since which microversion."""
ADMINS = frozenset({"clusters"})
ONE = {
    "backups": "Backup",
    "consistencygroups": "ConsistencyGroup",
    "cgsnapshots": "CgSnapshot",
    "clusters": "Cluster",
}


def _check_empty(call: VolumeCall) -> None:
    name = call.parts[0]
    call.since(EMPTY[name][1])
    call.require(call.who.admin if name in ADMINS else call.who.reader, f"{name}:get_all")


async def none_of_them(call: VolumeCall) -> Response:
    """An empty list, with the checks that a full one would have."""
    _check_empty(call)
    most = call.context.settings.page_max
    said = dict(call.pairs)
    for name in ("limit", "offset"):
        if name in said:
            bounded_number(name, said[name], most)
    return json_response({EMPTY[call.parts[0]][0]: []})


async def manageable(call: VolumeCall) -> Response:
    """Nothing lies in the directory that is no volume's."""
    call.since(8)
    call.require(call.who.admin, "volume_extension:list_manageable")
    asked = dict(call.pairs)
    if ("host" in asked) == ("cluster" in asked):
        raise bad("Invalid input received: One and only one of cluster and host must be set.")
    return json_response({call.parts[0].replace("_", "-"): []})


async def no_such_one(call: VolumeCall) -> Response:
    """Raises HttpFault (404) with the name of the resource: there are none of this kind."""
    _check_empty(call)
    raise HttpFault(404, f"{ONE.get(call.parts[0], 'Resource')} {call.path('id')} could not be found.")


async def no_backup(call: VolumeCall) -> Response:
    """Raises HttpFault (503), as Cinder does without a backup service; 400 for a wrong body."""
    body = await call.body()
    said: Any = body.get("backup")
    if not isinstance(said, dict) or "volume_id" not in said:
        raise bad("Invalid input for field/attribute backup. It needs a volume_id.")
    await call.context.read_inline(lambda store: volume_of(call, store, str(said["volume_id"])))
    raise HttpFault(503, "Service cinder-backup could not be found.")


async def nothing_to_clean(call: VolumeCall) -> Response:
    call.since(24)
    call.require(call.who.admin, "workers:cleanup")
    return json_response({"cleaning": [], "unavailable": []}, 202)
