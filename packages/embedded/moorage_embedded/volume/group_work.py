"""What goes on after the answer for groups and group snapshots: they follow their volumes and snapshots, which are worked on one by one."""

import logging

from moorage_embedded.volume.jobs import Later
from moorage_embedded.volume.matching import unmet
from moorage_embedded.volume.request import VolumeContext
from moorage_embedded.volume.service_info import capabilities_of
from moorage_embedded.volume.store import Doc, VolumeStore

PROMISES = ("consistent_group_snapshot_enabled", "group_replication_enabled", "consistent_group_replication_enabled")
"""Specs of group types that Cinder's documentation gives a meaning."""

log = logging.getLogger(__name__)


async def create_group(context: VolumeContext, doc: Doc) -> Doc:
    """A group made of another waits for its volumes; any other is in error when the back end has not what its types ask for.

    Cinder does not compare the specs of group types, and makes snapshots one by one where a driver does no better.  Here a group
    that is promised more than that is in error; specs without a meaning are ignored.
    """
    if doc["host"] is not None:
        return {"status": await _outcome(context, "volume", doc["id"])}
    asked = await context.read(lambda store: _specs(store, doc))
    capabilities = await capabilities_of(context)
    missing = [each for specs in asked if (each := unmet(specs, capabilities)) is not None]
    if missing:
        log.warning("group %s: the back end has not what its types ask for: %s", doc["id"], missing[0])
        return {"status": "error"}
    return {"status": "available", "host": context.settings.host}


def _specs(store: VolumeStore, doc: Doc) -> list[dict[str, str | None]]:
    of_group = store.get("group_type", doc["group_type_id"]) or {"group_specs": {}}
    of_volumes = store.many("type", where={"id": doc["volume_types"]})
    promised = {name: of_group["group_specs"].get(name) for name in PROMISES}
    return [
        {name: said for name, said in promised.items() if said is not None},
        *(each["extra_specs"] for each in of_volumes),
    ]


async def create_group_snapshot(context: VolumeContext, doc: Doc) -> Doc:
    return {"status": await _outcome(context, "snapshot", doc["id"])}


async def _outcome(context: VolumeContext, noun: str, group: str) -> str:
    """The status that follows from its members. Raises Later while they are worked on."""
    members = await context.read(lambda store: store.members(noun, group))
    if any(each["work"] for each in members):
        raise Later
    return "error" if any(each["status"].startswith("error") for each in members) else "available"


async def delete_group(context: VolumeContext, doc: Doc) -> Doc | None:
    return await _removed(context, "volume", doc["id"])


async def delete_group_snapshot(context: VolumeContext, doc: Doc) -> Doc | None:
    return await _removed(context, "snapshot", doc["id"])


async def _removed(context: VolumeContext, noun: str, group: str) -> Doc | None:
    """It goes after its last member; where one could not be removed it stays, in error. Raises Later while they are removed."""
    members = await context.read(lambda store: store.members(noun, group))
    if any(each["work"] for each in members):
        raise Later
    return {"status": "error"} if members else None
