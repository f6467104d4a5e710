"""`os-quota-sets`, `os-quota-class-sets` and `limits`."""

from starlette.responses import Response

from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.volume import quotas
from moorage_embedded.volume.faults import bad
from moorage_embedded.volume.request import VolumeCall
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import Check, Schema, flag, under

CAP_MAX = 2**31 - 1
_CAP: Schema = {"type": ["integer", "string"], "pattern": r"^-?[0-9]{1,10}$", "minimum": -1, "maximum": CAP_MAX}
_SET: Schema = {
    "type": "object",
    "patternProperties": {r"^(?!tenant_id$).{1,300}$": _CAP},
    "properties": {"tenant_id": {"type": "string", "maxLength": 255}},
    "additionalProperties": False,
    "maxProperties": 1_000,
}
UPDATE = Check(under("quota_set", _SET))
UPDATE_CLASS = Check(under("quota_class_set", _SET))
NAME_MAX_CHARS = 255
PLURAL_LIMITS = {
    "maxTotalVolumeGigabytes": "gigabytes",
    "maxTotalBackupGigabytes": "backup_gigabytes",
    "maxTotalVolumes": "volumes",
    "maxTotalSnapshots": "snapshots",
    "maxTotalBackups": "backups",
}
USED = {
    "totalVolumesUsed": "volumes",
    "totalGigabytesUsed": "gigabytes",
    "totalSnapshotsUsed": "snapshots",
    "totalBackupsUsed": "backups",
    "totalBackupGigabytesUsed": "backup_gigabytes",
}


def _caps(call: VolumeCall, said: Doc, store: VolumeStore) -> dict[str, int]:
    """The limits in the body, as numbers. Raises Fault (400) for an unknown resource."""
    known = set(call.context.settings.quotas) | set(quotas.type_resources(store))
    caps = {name: int(cap) for name, cap in said.items() if name != "tenant_id"}
    if strange := sorted(set(caps) - known):
        raise bad(f"Invalid input received: Bad key(s) in quota set: {', '.join(strange)}.")
    for name, cap in caps.items():
        if not -1 <= cap <= CAP_MAX:
            raise bad(f"Invalid input received: {name} must be -1, or up to {CAP_MAX}.")
    return caps


def _target(call: VolumeCall) -> str:
    id = call.path("id")
    if len(id) > NAME_MAX_CHARS:
        raise bad(f"Invalid input received: quota_set_name has {len(id)} characters, more than {NAME_MAX_CHARS}.")
    return id


def _names(store: VolumeStore) -> dict[str, str]:
    return {doc["id"]: doc["name"] for doc in store.many("type")}


async def show(call: VolumeCall) -> Response:
    project = _target(call)
    call.require(call.who.reads(project), "volume_extension:quotas:show")
    usage = flag(dict(call.pairs).get("usage", False))

    def work(store: VolumeStore) -> Doc:
        allowed = quotas.limits(call, store, project)
        if not usage:
            return allowed
        now = quotas.used(store, project, _names(store))
        return {name: {"limit": cap, "in_use": now.get(name, 0), "reserved": 0} for name, cap in allowed.items()}

    return json_response({"quota_set": await call.context.read(work) | {"id": project}})


async def defaults(call: VolumeCall) -> Response:
    project = _target(call)
    call.require(call.who.reads(project), "volume_extension:quotas:show")
    found = await call.context.read(lambda store: quotas.limits(call, store, ""))
    return json_response({"quota_set": found | {"id": project}})


async def update(call: VolumeCall) -> Response:
    project = _target(call)
    call.require(call.who.admin, "volume_extension:quotas:update")
    said = UPDATE(await call.body())["quota_set"]

    def work(store: VolumeStore) -> Doc:
        store.alone(project)
        caps, own = _caps(call, said, store), store.caps(project)
        now = quotas.used(store, project, _names(store))
        for (
            name,
            cap,
        ) in caps.items():  # as Cinder: only limits that the project had of its own are held against its use
            if name in own and name != "per_volume_gigabytes" and 0 <= cap < now.get(name, 0):
                raise bad(
                    f"Quota {name} limit must be equal or greater than existing resources. Current usage is {now[name]}"
                    f" and the requested limit is {cap}."
                )
        store.set_caps(project, caps)
        return dict(quotas.limits(call, store, project))

    return json_response({"quota_set": await call.context.write(work)})


async def delete(call: VolumeCall) -> Response:
    project = _target(call)
    call.require(call.who.admin, "volume_extension:quotas:delete")
    await call.context.write(lambda store: store.drop_caps(project))
    return empty_response(200)


# ---------------------------------------------------------------------------------------------------- classes


def _class_limits(call: VolumeCall, store: VolumeStore, name: str) -> dict[str, int]:
    """The limits of a class; those of `default` apply to all projects."""
    found = dict(call.context.settings.quotas) | dict.fromkeys(quotas.type_resources(store), -1)
    return found | {each: cap for each, cap in store.caps(f"class:{name}").items() if each in found}


async def show_class(call: VolumeCall) -> Response:
    name = _target(call)
    call.require(call.who.admin, "volume_extension:quota_classes:get")
    found = await call.context.read(lambda store: _class_limits(call, store, name))
    return json_response({"quota_class_set": found | {"id": name}})


async def update_class(call: VolumeCall) -> Response:
    name = _target(call)
    call.require(call.who.admin, "volume_extension:quota_classes:update")
    said = UPDATE_CLASS(await call.body())["quota_class_set"]

    def work(store: VolumeStore) -> dict[str, int]:
        store.set_caps(f"class:{name}", _caps(call, said, store))
        return _class_limits(call, store, name)

    return json_response({"quota_class_set": await call.context.write(work)})


# ---------------------------------------------------------------------------------------------------- limits


async def limits(call: VolumeCall) -> Response:
    asked = dict(call.pairs)
    project = call.who.project
    if call.who.admin and call.version >= 39:
        project = asked.get("project_id", asked.get("tenant_id", project))

    def work(store: VolumeStore) -> Doc:
        allowed = quotas.limits(call, store, project, {})
        now = quotas.used(store, project, {})
        found: Doc = {name: allowed[resource] for name, resource in PLURAL_LIMITS.items()}
        if call.who.reader:
            found |= {name: now[resource] for name, resource in USED.items()}
        return found

    return json_response({"limits": {"rate": [], "absolute": await call.context.read(work)}})
