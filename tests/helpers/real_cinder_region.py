"""The small region of the proofs, with a real Cinder in the place of the dictionary."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import httpx
from typing_extensions import override

from moorage.clients.http import ServiceClient
from moorage.clients.replies import ServiceResponse
from moorage.clients.service_tokens import ServiceTokens
from moorage.clients.volume import VolumeClient
from moorage.model.ids import OperationId
from moorage.model.server import Server
from moorage.model.volume import MADE_FOR_IMAGE
from moorage_testing.real_services.stack import Stack
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.region_statements import OPERATION
from moorage_testing.region_states import (
    IMAGE,
    MADE,
    SNAPSHOT_OF_VOLUME,
    booted_from_volume,
    with_volume,
    with_volumes_ready,
)
from moorage_testing.region_volumes import OTHER_VOLUME, VOLUME
from tests.helpers.contract_volume_service import Compute, compute_at
from tests.helpers.real_cinder_audit import Cinder

VOLUMES = (VOLUME, OTHER_VOLUME, MADE)
OTHER_IMAGE = "image-2"
PASSING = {"creating", "downloading", "deleting", "error_deleting"}
PATIENCE_S = 180.0
LOOK_EVERY_S = 0.1
UNUSED = {"status": "available", "attach_status": "detached", "migration_status": "none"}


class Named:
    """Cinder, for sagas that know things by names of their own: attachments by their volume and number, so that a world is as
    the one before it."""

    def __init__(self, neighbour: ServiceClient) -> None:
        self._neighbour = neighbour
        self.tokens = neighbour.tokens
        self.ids: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        self.changed = False
        """A saga has changed something."""

    def begin(self) -> None:
        """Another world."""
        self._numbers.clear()
        self.changed = False
        self.ids = {name: id for name, id in self.ids.items() if not name.startswith("attachment-")}

    def name_of(self, id: str) -> str:
        return next((name for name, one in self.ids.items() if one == id), id)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        **more: Any,
    ) -> ServiceResponse:
        self.changed = self.changed or method != "GET"
        asked = None if body is None else self._with_ids(dict(body))
        sought = None if params is None else self._with_ids(dict(params))
        reply = await self._neighbour.call(method, self._with_ids(path), body=asked, params=sought, **more)
        if method == "POST" and path.endswith("/attachments"):
            made = reply.body["attachment"]
            volume = self.name_of(made["volume_id"])
            self._numbers[volume] += 1
            self.ids[f"attachment-{self._numbers[volume]}-of-{volume}"] = made["id"]
        return ServiceResponse(reply.status, reply.headers, self._with_names(reply.body))

    def _with_ids(self, said: Any) -> Any:
        return _replaced(said, self.ids)

    def _with_names(self, said: Any) -> Any:
        return _replaced(said, {id: name for name, id in self.ids.items()})


def _replaced(said: Any, words: Mapping[str, str]) -> Any:
    if not words or not said:
        return said
    every = "|".join(re.escape(each) for each in sorted(words, key=len, reverse=True))
    text = re.sub(rf"(?<![\w-])({every})(?![\w-])", lambda found: words[found[1]], json.dumps(said))
    return json.loads(text)


class CinderRegion(SmallRegion):
    """Each world begins with the same volumes, available, and with nothing else at all."""

    cinder: Cinder
    named: Named
    made: str = ""
    """A volume that the request made: it counts when its boot has begun."""

    @override
    async def fresh(
        self, server: Server | None, operation: OperationId, seq: int = 1, *, guarantees: bool = False
    ) -> "CinderRegion":
        await super().fresh(server, operation, seq, guarantees=guarantees)
        self.named.begin()
        self.made = ""
        await self._all_available()
        self.context = replace(self.context, volumes=VolumeClient(cast("Any", self.named)))
        return self

    async def _all_available(self) -> None:
        cinder, ids = self.cinder, self.named.ids
        for each in await cinder.every("attachments"):
            await cinder.ok("DELETE", f"/attachments/{each['id']}")
        for each in await cinder.every("snapshots"):
            await cinder.ok("DELETE", f"/snapshots/{each['id']}")
        now = {each["id"]: each["status"] for each in await self._settled("volumes")}
        for name in VOLUMES:
            if ids.get(name) not in now:
                body = {"volume": {"size": 1, "name": name}}
                ids[name] = str((await cinder.ok("POST", "/volumes", body))["volume"]["id"])
            elif now[ids[name]] != "available":
                await cinder.ok("POST", f"/volumes/{ids[name]}/action", {"os-reset_status": UNUSED})
        await self._settled("snapshots")
        await self._settled("volumes")

    async def _settled(self, things: str) -> list[dict[str, Any]]:
        """When nothing is being made or deleted any more."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            seen = await self.cinder.every(things)
            if not any(each["status"] in PASSING for each in seen):
                return seen
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(LOOK_EVERY_S)

    async def snapshot(self) -> None:
        """Of the volume that the server boots from, for the image that waits for it."""
        body = {"volume_id": self.named.ids[VOLUME], "force": True, "metadata": {MADE_FOR_IMAGE: IMAGE}}
        made = await self.cinder.ok("POST", "/snapshots", {"snapshot": body})
        self.named.ids[SNAPSHOT_OF_VOLUME] = str(made["snapshot"]["id"])

    async def grow(self, volume: str, size_gib: int) -> None:
        """The volume has that size; one that an earlier world grew has it already."""
        path = f"/volumes/{self.named.ids[volume]}"
        if (await self.cinder.ok("GET", path))["volume"]["size"] < size_gib:
            await self.cinder.ok("POST", f"{path}/action", {"os-extend": {"new_size": size_gib}})
        deadline = time.monotonic() + PATIENCE_S
        while (seen := (await self.cinder.ok("GET", path))["volume"])["size"] < size_gib:
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(LOOK_EVERY_S)

    @override
    async def held(self) -> dict[str, Any]:
        held, name = await super().held(), self.named.name_of
        operation = await self.region.read(lambda tx: tx.scalar(OPERATION))
        volumes, snapshots = await self._settled("volumes"), await self._settled("snapshots")
        attachments = await self.cinder.every("attachments")
        exports = await asyncio.to_thread(self.cinder.exports)
        known = {f"volume-{id}": each for each, id in self.named.ids.items()}
        return {
            **held,
            "volumes": sorted(
                (name(each["id"]), each["status"], each["size"])
                for each in volumes
                if self.named.changed or name(each["id"]) != self.made
            ),
            "attachments": sorted((name(each["volume_id"]), each["status"]) for each in attachments),
            "exports": sorted(known.get(each.partition("@")[0], each) for each in exports),
            "snapshots": [] if operation else [each["status"] for each in snapshots],
        }


@asynccontextmanager
async def cinder_region(stack: Stack) -> AsyncIterator[CinderRegion]:
    small = await CinderRegion.open()
    assert isinstance(small, CinderRegion)
    small.cinder = Cinder(stack)
    await small.cinder.empty()
    login = stack.logins["moorage"]
    identity = ServiceClient("identity", stack.identity_url)
    tokens = ServiceTokens(identity, user=login.user, password=login.password, project=login.project)
    neighbour = ServiceClient("volume", stack.volume_url, tokens=tokens)
    small.named = Named(neighbour)
    small.named.ids[OTHER_IMAGE] = await _image(stack)
    with compute_at(stack.site.our_compute_port, Compute()):
        yield small
    await small.cinder.empty()
    for each in (small.cinder, neighbour, identity, small):
        await each.close()


async def _image(stack: Stack) -> str:
    """Some bytes that a volume may be written with."""
    async with httpx.AsyncClient(headers={"X-Auth-Token": stack.token("moorage")}, timeout=60) as http:
        body = {"name": OTHER_IMAGE, "disk_format": "raw", "container_format": "bare"}
        made = await http.post(f"{stack.image_url}/v2/images", json=body)
        made.raise_for_status()
        id = str(made.json()["id"])
        octets = {"Content-Type": "application/octet-stream"}
        (await http.put(f"{stack.image_url}/v2/images/{id}/file", content=b"anew", headers=octets)).raise_for_status()
    return id


async def with_real_volumes_ready(small: CinderRegion) -> CinderRegion:
    """The order of a boot, and the volume that was made for it."""
    await with_volumes_ready(small)
    small.made = MADE
    return small


async def with_real_grown_volume(small: CinderRegion) -> CinderRegion:
    """A server whose volume Cinder has extended, and whose guest is to hear so."""
    await with_volume(small)
    await small.grow(VOLUME, 2)
    return small


async def with_real_snapshots(small: CinderRegion) -> CinderRegion:
    """A server that boots from a volume, with a snapshot of that, and an image that waits for what names it."""
    await booted_from_volume(small)
    small.images.whole[IMAGE] = False
    await small.snapshot()
    return small
