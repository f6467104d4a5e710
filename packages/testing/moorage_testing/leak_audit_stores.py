"""What servers have at the volume and image services, counted there: a part of the leak audit.

Only for embedded services, or when a test has real ones (`Person.reaches_all`). A cloud without volumes costs one
request, and so do its images. Not found is a volume that should have been deleted with its server, because a user may
also keep such a volume.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import httpx
import msgspec
import sqlalchemy as sa

from moorage.main.config import Config
from moorage.model.volume import ATTACHED, IN_USE, KEY, RESERVED
from moorage.operations.steps.snapshot_image import MADE_FOR
from moorage.sql import Tx
from moorage.store.region import volume_intents
from moorage.store.region.servers import servers as known_servers
from moorage_testing.api_user import Person

OF_SERVER = "instance_uuid"
HALF_MADE = "is half made, and nobody is at it"
NOT_SHELVED = "which is not shelved"
MOVED = "whose move is over"
SHELVED = frozenset({"SHELVED", "SHELVED_OFFLOADED"})
MAY_BE_SHELVED = SHELVED | {"ERROR"}
"""An administrator may have set it; set to active, it is shown as shelved again."""
LIMIT = "1000"
"""Rows of one look, which is the most that a service shows at once."""


class HeldBy(msgspec.Struct, frozen=True):
    """A server, as far as this is about it."""

    status: str
    host: str | None
    volumes: tuple[str, ...] = ()


class Stores(msgspec.Struct, frozen=True):
    volumes: dict[str, dict[str, Any]] = {}
    attachments: tuple[dict[str, Any], ...] = ()
    images: tuple[dict[str, Any], ...] = ()
    """Those with our key."""
    known: frozenset[str] = frozenset()
    """Servers that volumes were made for and that the region knows, deleted ones too, or is about to."""


async def stores_of(config: Config, admin: Person) -> Stores:
    """What both services hold; `known` is yet to be asked for."""
    return await _images(config, admin, await _volumes(config, admin))


async def _volumes(config: Config, admin: Person) -> Stores:
    if config.volume.url and not admin.reaches_all:
        return Stores()
    try:
        reply = await admin.volume("GET", "/volumes/detail", all_tenants="1", limit=LIMIT)
    except httpx.ConnectError:  # a release that has no volume service
        return Stores()
    reply.raise_for_status()
    volumes = {each["id"]: each for each in reply.json()["volumes"]}
    if not volumes:
        return Stores()
    reply = await admin.volume("GET", "/attachments/detail", all_tenants="1", limit=LIMIT)
    reply.raise_for_status()
    return Stores(volumes, tuple(reply.json()["attachments"]))


async def _images(config: Config, admin: Person, seen: Stores) -> Stores:
    if config.image.url and not admin.reaches_all:
        return seen
    reply = await admin.http.get(f"{config.api.image.url}/v2/images", params={"limit": LIMIT})
    reply.raise_for_status()
    return msgspec.structs.replace(seen, images=tuple(each for each in reply.json()["images"] if MADE_FOR in each))


def servers_named(seen: Stores) -> list[str]:
    """Servers that volumes say they were made for."""
    return sorted({each["metadata"][KEY] for each in seen.volumes.values() if KEY in each.get("metadata", {})})


def known(tx: Tx, servers: Sequence[str]) -> frozenset[str]:
    """Of these, those that the region knows, or for which volumes are being made."""
    if not servers:
        return frozenset()
    intents = volume_intents.volume_intents
    rows = [
        *tx.rows(sa.select(known_servers.c.id).where(known_servers.c.id.in_(servers))),
        *tx.rows(sa.select(intents.c.server.label("id")).where(intents.c.server.in_(servers))),
    ]
    return frozenset(str(row.id) for row in rows)


def leaks_of(seen: Stores, servers: Mapping[str, HeldBy]) -> list[str]:
    """What is not as the servers say, in sentences."""
    return [*_wrong_attachments(seen, servers), *_wrong_volumes(seen, servers), *_wrong_images(seen.images, servers)]


def _wrong_attachments(seen: Stores, servers: Mapping[str, HeldBy]) -> list[str]:
    wrong: list[str] = []
    there: Counter[tuple[str, str]] = Counter()
    for each in seen.attachments:
        server, volume = each["instance"], each["volume_id"]
        there[server, volume] += 1
        if server is None:
            continue  # made by hand, for no server
        if server not in servers or volume not in servers[server].volumes:
            wrong.append(f"attachment {each['id']} of no server: volume {volume}, server {server}, {each['status']}")
        elif each["status"] not in {ATTACHED, RESERVED}:
            wrong.append(f"attachment {each['id']} of {server} is {each['status']}")
    for server, held in servers.items():
        wrong += [
            f"{server} has volume {volume}, with {there[server, volume]} attachments"
            for volume in held.volumes
            if volume in seen.volumes and there[server, volume] != 1
        ]
    return wrong


def _wrong_volumes(seen: Stores, servers: Mapping[str, HeldBy]) -> list[str]:
    wrong: list[str] = []
    used = {volume for held in servers.values() for volume in held.volumes}
    for id, volume in seen.volumes.items():
        made_for = volume.get("metadata", {}).get(KEY)
        if id in used:
            if volume["status"] not in {IN_USE, RESERVED}:
                wrong.append(f"volume {id}, which a server has, is {volume['status']}")
        elif made_for is not None and _nobodys(made_for, seen.known, servers):
            wrong.append(f"volume {id} ({volume['status']}) was made for {made_for}, which does not have it")
    return wrong


def _nobodys(made_for: str, known: Collection[str], servers: Mapping[str, HeldBy]) -> bool:
    """No record: it was never accepted. A server that is on no host, and is not shelved: its boot failed."""
    if made_for not in servers:
        return made_for not in known
    held = servers[made_for]
    return held.host is None and held.status not in SHELVED


def _wrong_images(images: Sequence[Mapping[str, Any]], servers: Mapping[str, HeldBy]) -> list[str]:
    wrong: list[str] = []
    for each in images:
        server, label = str(each.get(OF_SERVER)), f"image {each['id']} ({each[MADE_FOR]}, {each['status']})"
        if each["status"] in {"queued", "saving"}:
            wrong.append(f"{label} of {server} {HALF_MADE}")
        elif each[MADE_FOR] == "shelve" and (server not in servers or servers[server].status not in MAY_BE_SHELVED):
            wrong.append(f"{label} of {server}, {NOT_SHELVED}")
        elif each[MADE_FOR] == "resize":
            wrong.append(f"{label} of {server}, {MOVED}")
    return wrong
