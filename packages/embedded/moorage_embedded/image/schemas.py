"""JSON schemas: clients read them to learn which attributes are base ones and which a user's own."""

from typing import Any

CONTAINER_FORMATS = ("ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed")
DISK_FORMATS = ("ami", "ari", "aki", "vhd", "vhdx", "vmdk", "raw", "qcow2", "vdi", "iso", "ploop")
STATUSES = (
    "queued", "saving", "active", "killed", "deleted", "uploading", "importing", "pending_delete", "deactivated",
)  # fmt: skip
VISIBILITIES = ("community", "public", "private", "shared")
WORD_MAX_CHARS = 255
_UUID = "^([0-9a-fA-F]){8}-([0-9a-fA-F]){4}-([0-9a-fA-F]){4}-([0-9a-fA-F]){4}-([0-9a-fA-F]){12}$"
_LINKS = [
    {"rel": "self", "href": "{self}"},
    {"rel": "enclosure", "href": "{file}"},
    {"rel": "describedby", "href": "{schema}"},
]


def _text(about: str, *, null: bool = False, ours: bool = False, **more: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"type": ["null", "string"] if null else "string", "description": about}
    return said | ({"readOnly": True} if ours else {}) | more


def _number(about: str, *, null: bool = False, ours: bool = False) -> dict[str, Any]:
    said: dict[str, Any] = {"type": ["null", "integer"] if null else "integer", "description": about}
    return said | ({"readOnly": True} if ours else {})


IMAGE: dict[str, Any] = {
    "name": "image",
    "properties": {
        "id": _text("The image's identifier", pattern=_UUID),
        "name": _text("What people call it", null=True, maxLength=WORD_MAX_CHARS),
        "status": _text("Where in its life it is", ours=True, enum=list(STATUSES)),
        "visibility": _text("Who may see it", enum=list(VISIBILITIES)),
        "protected": {"type": "boolean", "description": "Whether it refuses to be deleted"},
        "os_hidden": {"type": "boolean", "description": "Whether plain lists leave it out"},
        "checksum": _text("MD5 of the data", null=True, ours=True, maxLength=32),
        "os_hash_algo": _text("Which digest os_hash_value is", null=True, ours=True, maxLength=64),
        "os_hash_value": _text("Digest of the data, in hexadecimal", null=True, ours=True, maxLength=128),
        "owner": _text("The project it belongs to", null=True, maxLength=WORD_MAX_CHARS),
        "size": _number("Bytes of data", null=True, ours=True),
        "virtual_size": _number("Bytes of the disk the data unfolds to", null=True, ours=True),
        "container_format": _text("What the data is wrapped in", null=True, enum=[None, *CONTAINER_FORMATS]),
        "disk_format": _text("What kind of disk the data is", null=True, enum=[None, *DISK_FORMATS]),
        "created_at": _text("When it was registered", ours=True),
        "updated_at": _text("When it last changed", ours=True),
        "tags": {
            "type": "array",
            "description": "Words attached to it",
            "items": {"type": "string", "maxLength": WORD_MAX_CHARS},
        },
        "min_ram": _number("MiB of memory a server needs to boot from it"),
        "min_disk": _number("GiB of disk a server needs to boot from it"),
        "self": _text("Its own address", ours=True),
        "file": _text("The address of its data", ours=True),
        "stores": _text("Where its data is", ours=True),
        "schema": _text("The address of this schema", ours=True),
        "direct_url": _text("Where an outside store keeps its data", ours=True),
    },
    "additionalProperties": {"type": "string"},
    "links": _LINKS,
}

MEMBER: dict[str, Any] = {
    "name": "member",
    "properties": {
        "image_id": _text("The image that is shared", pattern=_UUID),
        "member_id": _text("The project it is shared with"),
        "status": _text("What the project said to it", enum=["pending", "accepted", "rejected"]),
        "created_at": _text("When it was shared"),
        "updated_at": _text("When that last changed"),
        "schema": _text("The address of this schema", ours=True),
    },
}

TASK: dict[str, Any] = {
    "name": "task",
    "properties": {
        "id": _text("The task's identifier", pattern=_UUID),
        "type": _text("What it does", enum=["import", "api_image_import", "location_import"]),
        "status": _text("How far it is", enum=["pending", "processing", "success", "failure"]),
        "input": {"type": ["null", "object"], "description": "What it was given"},
        "result": {"type": ["null", "object"], "description": "What came of it"},
        "owner": _text("The project it belongs to"),
        "message": _text("Why it failed"),
        "image_id": _text("The image it is about"),
        "request_id": _text("The request that began it"),
        "user_id": _text("Who began it"),
        "expires_at": _text("When it is forgotten", null=True),
        "created_at": _text("When it was begun"),
        "updated_at": _text("When it last changed"),
        "self": {"readOnly": True, "type": "string"},
        "schema": {"readOnly": True, "type": "string"},
    },
    "additionalProperties": False,
}
_TASK_IN_LISTS = TASK | {
    "properties": {
        name: TASK["properties"][name] for name in TASK["properties"] if name not in {"input", "result", "message"}
    }
}


def _many(name: str, item: dict[str, Any], *, paged: bool) -> dict[str, Any]:
    links = [{"rel": "describedby", "href": "{schema}"}]
    properties: dict[str, Any] = {name: {"type": "array", "items": item}, "schema": {"type": "string"}}
    if paged:
        properties |= {"first": {"type": "string"}, "next": {"type": "string"}}
        links = [{"rel": "first", "href": "{first}"}, {"rel": "next", "href": "{next}"}, *links]
    return {"name": name, "properties": properties, "links": links}


SCHEMAS: dict[str, dict[str, Any]] = {
    "image": IMAGE,
    "images": _many("images", IMAGE, paged=True),
    "member": MEMBER,
    "members": _many("members", MEMBER, paged=False),
    "task": TASK,
    "tasks": _many("tasks", _TASK_IN_LISTS, paged=True),
}
