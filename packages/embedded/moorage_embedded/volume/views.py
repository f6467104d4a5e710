"""Documents as each microversion shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage_embedded.volume.request import VolumeCall
from moorage_embedded.volume.store import Doc

SHOWN_ADMIN_METADATA = ("readonly", "attached_mode")


def links(call: VolumeCall, noun: str, id: str) -> list[dict[str, str]]:
    bare = f"{call.context.public_url}{call.prefix.removeprefix('/v3')}"
    return [
        {"rel": "self", "href": f"{call.url}/{noun}/{id}"},
        {"rel": "bookmark", "href": f"{bare}/{noun}/{id}"},
    ]


def volume_summary(call: VolumeCall, doc: Doc) -> Doc:
    return {"id": doc["id"], "name": doc["name"], "links": links(call, "volumes", doc["id"])}


def volume_detail(
    call: VolumeCall, doc: Doc, attachments: Sequence[Doc], types: Mapping[str, str], *, made: bool = False
) -> Doc:
    """`types` are names by id; `made`: the answer to its creation, where some members are not shown yet."""
    who, version = call.who, call.version
    metadata = dict(doc["metadata"])
    metadata |= {key: doc["admin_metadata"][key] for key in SHOWN_ADMIN_METADATA if key in doc["admin_metadata"]}
    shown: Doc = {
        "id": doc["id"],
        "status": doc["status"],
        "size": doc["size"],
        "availability_zone": doc["availability_zone"],
        "created_at": doc["created_at"],
        "updated_at": doc["updated_at"],
        "name": doc["name"],
        "description": doc["description"],
        "volume_type": types.get(doc["volume_type_id"]),
        "snapshot_id": doc["snapshot_id"],
        "source_volid": doc["source_volid"],
        "metadata": metadata,
        "links": links(call, "volumes", doc["id"]),
        "user_id": doc["user_id"],
        "bootable": "true" if doc["bootable"] else "false",
        "encrypted": False,
        "replication_status": None,
        "consistencygroup_id": None,
        "multiattach": doc["multiattach"],
        "attachments": [_used_by(call, each) for each in attachments if each["status"] == "attached"],
    }
    if who.admin:
        shown["migration_status"] = doc["migration_status"]
    if version >= 13:
        shown["group_id"] = doc.get("group_id")
    if version >= 21 and who.admin:
        shown["provider_id"] = None
    if version >= 48:
        shown["shared_targets"] = False
        shown["service_uuid"] = doc["service_uuid"]
    if version >= 61 and who.admin:
        shown["cluster_name"] = None
    if version >= 63:
        shown["volume_type_id"] = doc["volume_type_id"]
    if version >= 65:
        shown["consumes_quota"] = True
    if not made:
        shown["os-vol-tenant-attr:tenant_id"] = doc["project_id"]
        if doc["image_metadata"]:
            shown["volume_image_metadata"] = doc["image_metadata"]
        if who.admin:
            shown["os-vol-host-attr:host"] = doc["host"]
            shown["os-vol-mig-status-attr:migstat"] = doc["migration_status"]
            shown["os-vol-mig-status-attr:name_id"] = None
    return shown


def _used_by(call: VolumeCall, attachment: Doc) -> Doc:
    return {
        "id": attachment["volume_id"],
        "attachment_id": attachment["id"],
        "volume_id": attachment["volume_id"],
        "server_id": attachment["instance"],
        "host_name": attachment["host"] if call.who.sees_hosts else None,
        "device": attachment["mountpoint"],
        "attached_at": attachment["attached_at"],
    }


def attachment_summary(doc: Doc) -> Doc:
    return {
        "id": doc["id"], "status": doc["status"], "instance": doc["instance"], "volume_id": doc["volume_id"]
    }  # fmt: skip


def attachment_detail(doc: Doc) -> Doc:
    return attachment_summary(doc) | {
        "attached_at": doc["attached_at"] or "",
        "detached_at": doc["detached_at"] or "",
        "attach_mode": doc["attach_mode"],
        "connection_info": doc["connection_info"],
    }


def snapshot_summary(doc: Doc) -> Doc:
    return {
        "id": doc["id"],
        "name": doc["name"],
        "description": doc["description"],
        "created_at": doc["created_at"],
        "updated_at": doc["updated_at"],
        "status": doc["status"],
        "volume_id": doc["volume_id"],
        "size": doc["size"],
        "metadata": doc["metadata"],
    }


def snapshot_detail(call: VolumeCall, doc: Doc, *, made: bool = False) -> Doc:
    """`made`: the answer to its creation or change, where some members are not shown."""
    shown = snapshot_summary(doc)
    if call.version >= 14:
        shown["group_snapshot_id"] = doc.get("group_snapshot_id")
    if call.version >= 41:
        shown["user_id"] = doc["user_id"]
    if call.version >= 65:
        shown["consumes_quota"] = True
    if not made:
        shown["os-extended-snapshot-attributes:project_id"] = doc["project_id"]
        shown["os-extended-snapshot-attributes:progress"] = doc["progress"]
    return shown


VISIBLE_SPECS = ("RESKEY:availability_zones", "multiattach", "replication_enabled")
"""What others than administrators see of a type's extra specs."""


def visible_specs(call: VolumeCall, specs: dict[str, Any]) -> dict[str, Any]:
    return specs if call.who.admin else {name: specs[name] for name in VISIBLE_SPECS if name in specs}


def type_view(call: VolumeCall, doc: Doc, *, qos: bool = True, access: bool = True) -> Doc:
    """Additional fields for administrators; the answers to creation and change do not have all of them."""
    shown: Doc = {
        "id": doc["id"],
        "name": doc["name"],
        "is_public": doc["is_public"],
        "description": doc["description"],
        "extra_specs": visible_specs(call, doc["extra_specs"]),
    }
    if call.who.admin and qos:
        shown["qos_specs_id"] = doc["qos_specs_id"]
    if call.who.admin and access:
        shown["os-volume-type-access:is_public"] = doc["is_public"]
    return shown


def group_summary(doc: Doc) -> Doc:
    return {"id": doc["id"], "name": doc["name"]}


def group_detail(call: VolumeCall, doc: Doc, volumes: Sequence[Doc] | None = None) -> Doc:
    """`volumes` are its members, where they are asked for."""
    shown: Doc = {
        "id": doc["id"],
        "status": doc["status"],
        "availability_zone": doc["availability_zone"],
        "created_at": doc["created_at"],
        "name": doc["name"],
        "description": doc["description"],
        "group_type": doc["group_type_id"],
        "volume_types": doc["volume_types"],
    }
    if call.version >= 14:
        shown["group_snapshot_id"] = doc["group_snapshot_id"]
        shown["source_group_id"] = doc["source_group_id"]
    if call.version >= 25 and volumes is not None:
        shown["volumes"] = [each["id"] for each in volumes]
    if call.version >= 38:
        shown["replication_status"] = doc["replication_status"]
    if call.version >= 58 and call.who.admin:
        shown["project_id"] = doc["project_id"]
    return shown


def group_snapshot_summary(doc: Doc) -> Doc:
    return {"id": doc["id"], "name": doc["name"]}


def group_snapshot_detail(call: VolumeCall, doc: Doc) -> Doc:
    names = ("id", "group_id", "group_type_id", "status", "created_at", "name", "description")
    shown = {name: doc[name] for name in names}
    if call.version >= 58 and call.who.admin:
        shown["project_id"] = doc["project_id"]
    return shown


def group_type_view(call: VolumeCall, doc: Doc) -> Doc:
    """The specs are for administrators."""
    shown = {name: doc[name] for name in ("id", "name", "description", "is_public")}
    return shown | {"group_specs": doc["group_specs"]} if call.who.admin else shown
