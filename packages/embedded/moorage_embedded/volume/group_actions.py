"""`POST /groups/{id}/action` and `POST /groups/action`: groups deleted, reset, made of others; and replication, which there is none of.

Source: Cinder's API v3, generic volume groups (3.13), from a source (3.14), `reset_status` (3.20), replication (3.38).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault, empty_response, json_response
from moorage_embedded.volume import quotas, sources, views
from moorage_embedded.volume.faults import bad, invalid_group, invalid_group_type, invalid_volume, over_limit
from moorage_embedded.volume.group_snapshots import STATUSES
from moorage_embedded.volume.groups import check_not_reserved, new_group
from moorage_embedded.volume.records import (
    being_deleted,
    group_of,
    group_snapshot_of,
    has_source_in_use,
    held_members,
    my_group,
)
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.services import check_not_frozen
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import FLAG, ID, TEXT, TEXT_OR_NULL, Check, Schema, flag, obj, stripped, under

Verb: TypeAlias = Callable[[VolumeCall, Doc], Awaitable[Response]]
DELETABLE = ("available", "error")


@dataclass(frozen=True)
class GroupAction:
    verb: Verb
    check: Check
    since: int


async def act(call: VolumeCall) -> Response:
    return await _act(call, ACTIONS)


async def act_without_group(call: VolumeCall) -> Response:
    """The only action that is not on a group: it makes one."""
    return await _act(call, WITHOUT_GROUP)


async def _act(call: VolumeCall, here: dict[str, GroupAction]) -> Response:
    body = await call.body()
    name = next(iter(body), "")
    known = ACTIONS.get(name) or WITHOUT_GROUP.get(name)
    if known is None:
        raise bad(f"There is no such action: {name[:100]}")
    call.since(known.since)
    if name not in here:
        raise bad("The server could not comply with the request since it is either malformed or otherwise incorrect.")
    return await known.verb(call, known.check(body)[name])


# ---------------------------------------------------------------------------------------------------- deletion


async def delete(call: VolumeCall, said: Doc) -> Response:
    """Delete a group, and its volumes if that is said. Raises HttpFault (400) while something depends on them."""
    id, with_volumes = call.path("id"), flag(said.get("delete-volumes", False))

    def work(store: VolumeStore) -> list[str] | None:
        check_not_reserved(store, group_of(call, store, id)["group_type_id"])
        group = my_group(call, store, id, "group:delete")
        volumes = held_members(store, "volume", id)
        if group["host"] is None and not volumes:  # it never got as far as the back end
            store.remove("group", id)
            return None
        check_not_frozen(store)
        _check_deletable(store, group, volumes, with_volumes=with_volumes)
        for volume in volumes:
            volume |= {"status": "deleting", "terminated_at": stamp(), "work": _removal()}
            store.put("volume", touched(volume))
        group |= {"status": "deleting", "work": _removal()}
        store.put("group", touched(group))
        return [volume["id"] for volume in volumes]

    volumes = await call.context.write(work)
    if volumes is not None:
        for volume in volumes:
            call.context.jobs.begin("volume", volume)
        call.context.jobs.begin("group", id)
    return empty_response(202)


def _removal() -> Doc:
    return {"kind": "delete", "turn": new_uuid()}


def _check_deletable(store: VolumeStore, group: Doc, volumes: list[Doc], *, with_volumes: bool) -> None:
    id = group["id"]
    if not with_volumes and group["status"] not in DELETABLE:
        raise invalid_group(f"Group status must be available or error, but current status is: {group['status']}")
    if store.children("group_snapshot", id):
        raise invalid_group("Group has existing snapshots.")
    if volumes and not with_volumes:
        raise invalid_group(f"Group {id} still contains volumes. The delete-volumes flag is required to delete it.")
    for volume in volumes:
        if volume["attach_status"] == "attached":
            raise invalid_group(f"Volume in group {id} is attached. Need to detach first.")
        if store.children("snapshot", volume["id"]):
            raise invalid_group("Volume in group still has dependent snapshots.")
    if has_source_in_use(store, "source_group_id", id):
        what = (
            "Group status must be available or error and must not have dependent group snapshots"
            if with_volumes
            else "Group must not have attached volumes, volumes with snapshots, or dependent group snapshots"
        )
        raise invalid_group(
            f"Cannot delete group {id}. {what}, and it cannot be the source for an ongoing group or group snapshot"
            " creation."
        )


async def reset_status(call: VolumeCall, said: Doc) -> Response:
    """As for volumes: whatever was being done is not gone on with, but for a removal."""
    status = said["status"].lower()
    if status not in STATUSES:
        raise bad(f"Invalid Group Status: Group status: {said['status']} is invalid, valid status are: {STATUSES}.")

    def work(store: VolumeStore) -> None:
        group = group_of(call, store, call.path("id"), hold=True)
        call.require(call.who.admin, "group:reset_status")
        group |= {"status": status, "work": group["work"] if being_deleted(group) else None}
        store.put("group", touched(group))

    await call.context.write(work)
    return empty_response(202)


# ---------------------------------------------------------------------------------------------------- from a source


async def create_from_source(call: VolumeCall, said: Doc) -> Response:
    """Raises HttpFault: 404 for an unknown source, and 400 for all else that is wrong, also for what is over quota."""
    stripped(said, "name", "description")

    def work(store: VolumeStore) -> tuple[Doc, list[Doc]]:
        source = _source(call, store, said)
        try:
            return _copied(call, store, said, source)
        except HttpFault as fault:
            raise bad(fault.message) from None

    group, volumes = await call.context.write(work)
    for volume in volumes:
        call.context.jobs.begin("volume", volume["id"])
    call.context.jobs.begin("group", group["id"])
    return json_response({"group": views.group_summary(group)}, 202)


@dataclass(frozen=True)
class GroupSource:
    """A group, or a group snapshot and the group that it was made of."""

    group: Doc
    snapshot: Doc | None


def _source(call: VolumeCall, store: VolumeStore, said: Doc) -> GroupSource:
    """What is copied, held. Raises 404, and 400 for the reserved type."""
    snapshot = None
    if said.get("group_snapshot_id"):
        snapshot = group_snapshot_of(call, store, said["group_snapshot_id"], hold=True)
    group = group_of(call, store, snapshot["group_id"] if snapshot else said["source_group_id"], hold=True)
    check_not_reserved(store, group["group_type_id"])
    return GroupSource(group, snapshot)


def _copied(call: VolumeCall, store: VolumeStore, said: Doc, source: GroupSource) -> tuple[Doc, list[Doc]]:
    """The new group and its volumes, each with the work that makes it. Raises HttpFault."""
    call.require(call.who.writes(call.who.project), "group:create")
    quotas.charge_group(call, store, call.who.project)
    of, from_snapshot = source.group, source.snapshot
    copied = {name: of[name] for name in ("group_type_id", "volume_types", "availability_zone", "host")}
    ids = {name: said.get(name) for name in ("name", "description", "group_snapshot_id", "source_group_id")}
    group = new_group(call, copied | ids)
    if of["host"] is None:
        raise invalid_group(f"No valid host to create group {group['id']}.")
    check_not_frozen(store)
    if from_snapshot is not None:
        origins = store.members("snapshot", from_snapshot["id"])
        if not origins:
            raise invalid_group("Group snapshot is empty. No group will be created.")
    else:
        origins = store.members("volume", of["id"])
        if not origins:
            raise invalid_group("Source Group is empty. No group will be created.")
    if store.count("volume") + len(origins) > call.context.settings.volumes_max:
        raise over_limit(f"The service holds {call.context.settings.volumes_max} volumes, which is its limit.")
    volumes = [_copy(call, store, group, origin, clone=from_snapshot is None) for origin in origins]
    if any(
        origin["status"] != "available" for origin in origins
    ):  # a volume in use, which Cinder finds out after its answer
        group |= {"status": "error", "work": None}
        for volume in volumes:
            volume |= {"status": "error", "work": None}
            store.put("volume", volume)
    store.add("group", group)
    return group, volumes


def _copy(call: VolumeCall, store: VolumeStore, group: Doc, origin: Doc, *, clone: bool) -> Doc:
    """The record of one volume of the new group."""
    source = sources.Source(volume=origin["id"]) if clone else sources.Source(snapshot=origin["id"])
    doc = sources.new_volume(call, store, {}, source) | {"group_id": group["id"]}
    quotas.charge(call, store, doc["project_id"], "volume", doc["volume_type_id"], doc["size"])
    store.add("volume", doc)
    return doc


# ---------------------------------------------------------------------------------------------------- replication

REPLICATION: Schema = obj({})
REPLICATES = ("group_replication_enabled", "consistent_group_replication_enabled")
"""Specs of a group type, one of which says that its groups are replicated."""
TRUE = "<is> True"


@dataclass(frozen=True)
class Replicating:
    """One action of replication: what it is called, and the states of the group, its replication and its volumes in which it begins."""

    name: str
    rule: str
    groups: list[str]
    replications: list[str]
    volumes: list[str] | None
    """None: any."""

    async def __call__(self, call: VolumeCall, said: Doc) -> Response:
        """No back end of this service replicates, so replication ends in error. Raises HttpFault (400) where it cannot begin."""

        def work(store: VolumeStore) -> None:
            group = _replicated(call, store, self.rule)
            self._check(f"Group {group['id']} status", self.groups, group["status"], invalid_group)
            state = group["replication_status"]
            self._check(f"Group {group['id']} replication status", self.replications, state, invalid_group)
            for volume in held_members(store, "volume", group["id"]):
                what = f"Volume {volume['id']}"
                if self.volumes is not None:
                    self._check(f"{what} status", self.volumes, volume["status"], invalid_volume)
                self._check(f"{what} replication status", self.replications, None, invalid_volume)
            group["replication_status"] = "error"
            store.put("group", touched(group))

        await call.context.write(work)
        return empty_response(202)

    def _check(self, what: str, valid: list[str], held: str | None, refuse: Callable[[str], HttpFault]) -> None:
        if held not in valid:
            raise refuse(f"{what} must be {valid}, but current status is: {held}. Cannot {self.name} replication.")


def _replicated(call: VolumeCall, store: VolumeStore, rule: str) -> Doc:
    """The group, held. Raises 400 when its type, or one of its volumes' types, does not ask for replication."""
    group = my_group(call, store, call.path("id"), rule)
    type = store.get("group_type", group["group_type_id"]) or {"group_specs": {}}
    if not any(type["group_specs"].get(name) == TRUE for name in REPLICATES):
        raise invalid_group_type(f"Group {group['id']} is not a replication group type.")
    for each in store.many("type", where={"id": group["volume_types"]}):
        if each["extra_specs"].get("replication_enabled") != TRUE:
            raise bad(
                f"Invalid volume type: Volume type {each['id']} does not have 'replication_enabled' spec key set to"
                f" '{TRUE}'."
            )
    return group


async def list_targets(call: VolumeCall, said: Doc) -> Response:
    await call.context.write(lambda store: _replicated(call, store, "group:list_replication_targets"))
    return json_response({"replication_targets": []})


_FAILOVER = obj({"allow_attached_volume": FLAG, "secondary_backend_id": TEXT_OR_NULL})
_ANY_OBJECT: Schema = {"type": "object"}
_USED = ["available", "in-use"]


def _action(name: str, verb: Verb, inner: Schema, since: int) -> dict[str, GroupAction]:
    return {name: GroupAction(verb, Check(under(name, inner)), since)}


ACTIONS: dict[str, GroupAction] = {
    **_action("delete", delete, obj({"delete-volumes": FLAG}), 13),
    **_action("reset_status", reset_status, obj({"status": TEXT}, "status"), 20),
    **_action(
        "enable_replication",
        Replicating("enable", "group:enable_replication", ["available"], ["disabled", "enabled"], _USED),
        _ANY_OBJECT,
        38,
    ),
    **_action(
        "disable_replication",
        Replicating("disable", "group:disable_replication", ["available", "error"], ["enabled", "error"], None),
        _ANY_OBJECT,
        38,
    ),
    **_action(
        "failover_replication",
        Replicating("failover", "group:failover_replication", ["available"], ["enabled", "failed-over"], _USED),
        _FAILOVER,
        38,
    ),
    **_action("list_replication_targets", list_targets, _ANY_OBJECT, 38),
}
_ONE_SOURCE = [{"required": ["group_snapshot_id"]}, {"required": ["source_group_id"]}]
WITHOUT_GROUP: dict[str, GroupAction] = _action(
    "create-from-src",
    create_from_source,
    obj(
        {"name": TEXT_OR_NULL, "description": TEXT_OR_NULL, "source_group_id": ID, "group_snapshot_id": ID},
        oneOf=_ONE_SOURCE,
    ),
    14,
)
