"""The volume service (Cinder v3): volumes, and attachments by the API of 3.44.

Credentials: the user's token while the user's request is answered (visibility and quota), our own afterwards.  Every
call also has our service token: only with it the service lets a caller delete attachments of servers (CVE-2023-2088).

Repeats: `DELETE` and the actions of this module may be repeated (404 of a delete is success).  `POST /attachments` has no
key: a caller that is unsure lists the server's attachments first.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

from moorage.clients.http import Json, ServiceClient
from moorage.clients.replies import ServiceResponse
from moorage.model.errors import (
    Conflict,
    Invalid,
    NotAcceptable,
    NotFound,
    OverQuota,
    Refusal,
    TooLarge,
    UnknownOutcome,
)
from moorage.model.volume import KEY, MADE_FOR_IMAGE, Attachment, NewVolume, Volume, VolumeSnapshot, VolumeUnreachable

_log = logging.getLogger(__name__)

ATTACHMENTS = "3.44"
SHARED_TARGETS = "3.48"
EXTEND_COMPLETION = "3.71"
REIMAGE = "3.68"
PAGE = 1000
PAGES_MAX = 1000
CONNECTIONS_KEPT_MAX = 1000
NO_SUCH_VERSION = "406 "
"""Start of a refusal's private text when the service does not know the version of its API that was asked for."""
BACK_END_FAILED = "500 "
"""Start of a problem's private text when the service itself failed; it is different when the service does not answer."""


class VolumeClient:
    def __init__(self, volume: ServiceClient) -> None:
        self._volume = volume
        self._connected: dict[str, Attachment] = {}
        """The newest exports, so that a connection that was just made need not be read again; in memory only."""

    # ---- as the user --------------------------------------------------------------------------------------------------

    async def show(self, volume: str, project: str = "", token: str | None = None) -> Volume:
        """Return the volume as the user of `token` sees it (None: our own account). Raises NotFound with Nova's sentence."""
        try:
            reply = await self._call("GET", f"volumes/{_id(volume)}", SHARED_TARGETS, project, token)
        except (NotFound, Invalid) as missing:
            raise NotFound(f"Volume {volume} could not be found.", code="volume_not_found") from missing
        return _volume(reply.body["volume"])

    async def zone(self, volume: str) -> str | None:
        """Return a volume's availability zone. Raises NotFound, and NotAcceptable when the service does not know attachments of 3.44 (D3)."""
        try:
            reply = await self._call("GET", f"volumes/{_id(volume)}", ATTACHMENTS)
        except Invalid as refused:
            too_old = refused.private.startswith(NO_SUCH_VERSION)
            raise (NotAcceptable(refused.public, private=refused.private) if too_old else refused) from refused
        return _volume(reply.body["volume"]).availability_zone

    async def snapshot(self, snapshot: str, project: str = "", token: str | None = None) -> VolumeSnapshot:
        """Return a snapshot as the user of `token` sees it (None: our own account). Raises NotFound."""
        try:
            reply = await self._call("GET", f"snapshots/{_id(snapshot)}", ATTACHMENTS, project, token)
        except (NotFound, Invalid) as missing:
            raise NotFound(f"Snapshot {snapshot} could not be found.", code="snapshot_not_found") from missing
        return _snapshot(reply.body["snapshot"])

    async def make_snapshot(self, volume: str, name: str, image: str, project: str, token: str) -> VolumeSnapshot:
        """Begin a snapshot of a volume that may be in use, for an image, within the user's quota. Raises OverQuota, Invalid."""
        fields: Json = {"volume_id": volume, "name": name, "force": True, "metadata": {MADE_FOR_IMAGE: image}}
        try:
            reply = await self._call("POST", "snapshots", ATTACHMENTS, project, token, {"snapshot": fields})
        except TooLarge as over:
            raise OverQuota(over.public, private=over.private, code="snapshot_quota") from over
        return _snapshot(reply.body["snapshot"])

    async def types(self, project: str, token: str) -> dict[str, str]:
        """Return the volume types that the user sees: each id, and each name → the name."""
        reply = await self._call("GET", "types", ATTACHMENTS, project, token)
        pairs = [(str(each["id"]), str(each["name"])) for each in reply.body.get("volume_types", ())]
        return {key: name for id, name in pairs for key in (id, name)}

    async def create(self, wanted: NewVolume, project: str, token: str) -> Volume:
        """Begin to make a volume in the user's project, within its quota. Raises OverQuota, Invalid, NotFound."""
        fields: Json = {"size": wanted.size_gib, "name": wanted.name, "metadata": dict(wanted.metadata)}
        for name, value in (
            ("imageRef", wanted.image),
            ("snapshot_id", wanted.snapshot),
            ("volume_type", wanted.volume_type),
            ("availability_zone", wanted.availability_zone),
        ):
            if value is not None:
                fields[name] = value
        try:
            reply = await self._call("POST", "volumes", ATTACHMENTS, project, token, {"volume": fields})
        except TooLarge as over:
            raise OverQuota(over.public, private=over.private, code="volume_quota") from over
        return _volume(reply.body["volume"])

    # ---- passed on, as the user ---------------------------------------------------------------------------------------

    async def list_as(self, token: str, project: str, things: str, *, limit: int, offset: int) -> list[Json]:
        """Return the service's own records that the user sees; `things` is the collection in the path, `volumes` or `snapshots`.

        At most `limit` records (and at most one page of the service), after the first `offset`.
        """
        params = {"limit": str(limit), **({"offset": str(offset)} if offset else {})}
        reply = await self._call("GET", f"{things}/detail", ATTACHMENTS, project, token, params=params)
        rows: list[Json] = reply.body[things]
        return rows

    async def show_as(self, token: str, project: str, things: str, thing: str) -> Json:
        """Return one record. Raises NotFound."""
        reply = await self._call("GET", f"{things}/{_id(thing)}", ATTACHMENTS, project, token)
        row: Json = reply.body[things.removesuffix("s")]
        return row

    async def make_as(self, token: str, project: str, things: str, fields: Json) -> Json:
        """Make one, within the user's quota. Raises OverQuota, Invalid, NotFound."""
        one = things.removesuffix("s")
        try:
            reply = await self._call("POST", things, ATTACHMENTS, project, token, {one: fields})
        except TooLarge as over:
            raise OverQuota(over.public, private=over.private, code=f"{one}_quota") from over
        made: Json = reply.body[one]
        return made

    async def remove_as(self, token: str, project: str, things: str, thing: str) -> None:
        """Begin to delete one. Raises NotFound, and Invalid while it is in use."""
        await self._call("DELETE", f"{things}/{_id(thing)}", ATTACHMENTS, project, token)

    # ---- snapshots, as ourselves --------------------------------------------------------------------------------------

    async def snapshots_for(self, image: str) -> tuple[VolumeSnapshot, ...]:
        """Return the snapshots of any project that were made for an image."""
        params = {"all_tenants": "1", "metadata": repr({MADE_FOR_IMAGE: image})}
        reply = await self._call("GET", "snapshots/detail", ATTACHMENTS, params=params)
        rows = reply.body.get("snapshots", ())
        return tuple(_snapshot(each) for each in rows if (each.get("metadata") or {}).get(MADE_FOR_IMAGE) == image)

    async def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot; a missing one is success. Raises Invalid while it is being made, or is in use."""
        try:
            await self._call("DELETE", f"snapshots/{_id(snapshot)}", ATTACHMENTS)
        except NotFound:
            return

    async def made_snapshots(self) -> dict[str, str]:
        """Return snapshot → its image, for all snapshots that we made for images."""
        snapshots: dict[str, str] = {}
        marker: dict[str, str] = {}
        for _ in range(PAGES_MAX):
            params = {"all_tenants": "1", "limit": str(PAGE), **marker}
            reply = await self._call("GET", "snapshots/detail", ATTACHMENTS, params=params)
            page = reply.body.get("snapshots", ())
            made = {each["id"]: (each.get("metadata") or {}).get(MADE_FOR_IMAGE) for each in page}
            snapshots |= {id: image for id, image in made.items() if image}
            if len(page) < PAGE:
                break
            marker = {"marker": page[-1]["id"]}
        return snapshots

    # ---- volumes, as ourselves ----------------------------------------------------------------------------------------

    async def created_for(self, server: str) -> tuple[Volume, ...]:
        """Return the volumes of any project whose metadata name this server as the one for which they were created."""
        wanted = {KEY: server}
        params = {"all_tenants": "1", "metadata": repr(wanted)}
        reply = await self._call("GET", "volumes/detail", SHARED_TARGETS, params=params)
        volumes = [_volume(each) for each in reply.body.get("volumes", ())]
        return tuple(each for each in volumes if each.metadata.get(KEY) == server)

    async def with_status(self, status: str) -> tuple[Volume, ...]:
        """Return the volumes of any project with this status."""
        pages = self._paged("volumes/detail", "volumes", SHARED_TARGETS, {"status": status})
        return tuple([_volume(each) async for each in pages])

    async def delete(self, volume: str) -> None:
        """Delete a volume; a missing one is success. Raises Invalid or Conflict while it is in use, or has snapshots."""
        try:
            await self._call("DELETE", f"volumes/{_id(volume)}", ATTACHMENTS)
        except NotFound:
            return

    async def begin_detaching(self, volume: str) -> None:
        """Change in-use → detaching, so that no other detach begins. Raises Invalid when the volume is not in use."""
        await self._act(volume, "os-begin_detaching", {})

    async def roll_detaching(self, volume: str) -> None:
        """Change detaching → in-use; a volume with another status is success."""
        try:
            await self._act(volume, "os-roll_detaching", {})
        except (NotFound, Invalid, Conflict):
            return

    async def complete_extend(self, volume: str, *, failed: bool) -> None:
        """Tell the volume service how the host's part of an extension ended; an answer that it does not wait for this is ignored."""
        try:
            await self._act(volume, "os-extend_volume_completion", {"error": failed}, EXTEND_COMPLETION)
        except Refusal:
            return

    async def snapshot_is(self, snapshot: str, status: str) -> None:
        """Tell the volume service how the host's part of a snapshot ended; an answer that it does not wait for this is only logged.

        The progress says that our part is over, as Nova does.
        """
        fields = {"status": status, "progress": "90%"}
        try:
            path = f"snapshots/{_id(snapshot)}/action"
            await self._call("POST", path, ATTACHMENTS, body={"os-update_snapshot_status": fields})
        except Refusal as refused:
            _log.warning(
                "the volume service did not accept that snapshot %s is %s: %s",
                snapshot,
                status,
                refused.private or refused,
            )

    async def complete_migration(self, old: str, new: str, *, failed: bool) -> str:
        """End a swap that the volume service asked for. Returns the id that the volume keeps."""
        body = {"new_volume": new, "error": failed}
        reply = await self._act(old, "os-migrate_volume_completion", body)
        return str(reply.body.get("save_volume_id") or new)

    async def reimage(self, volume: str, image: str) -> None:
        """Begin to write an image over a volume that is reserved; `volume-reimaged` says when that is done."""
        body = {"image_id": image, "reimage_reserved": True}
        await self._act(volume, "os-reimage", body, REIMAGE)

    # ---- attachments, as ourselves ------------------------------------------------------------------------------------

    async def export_again(self, volume: str, server: str, connector: Mapping[str, Any], host: str) -> Attachment:
        """Reserve and export in one call. This also works for a volume of one writer that is exported to the server's own host.

        The call has no key: a caller that is unsure reads the existing attachments first.
        Raises VolumeUnreachable when the back end cannot export the volume.
        """
        fields: Json = {"volume_uuid": volume, "instance_uuid": server, "connector": dict(connector)}
        try:
            reply = await self._call("POST", "attachments", ATTACHMENTS, body={"attachment": fields})
        except UnknownOutcome as lost:
            raise _unreachable(lost, volume, host) from lost
        return _attachment(reply.body["attachment"])

    async def reserve(self, volume: str, server: str) -> Attachment:
        """Reserve a volume for a server, so that no other server gets it, unless it is multiattach.

        Raises Invalid when it is taken, and NotFound when it does not exist.
        """
        fields: Json = {"volume_uuid": volume, "instance_uuid": server, "connector": None}
        try:
            reply = await self._call("POST", "attachments", ATTACHMENTS, body={"attachment": fields})
        except NotFound as missing:
            raise NotFound(f"Volume {volume} could not be found.", private=missing.public) from missing
        return _attachment(reply.body["attachment"])

    async def connect(self, attachment: str, volume: str, connector: Mapping[str, Any], host: str) -> Attachment:
        """Export a reserved volume to a host. Raises VolumeUnreachable when the back end cannot export it."""
        body = {"attachment": {"connector": dict(connector)}}
        try:
            reply = await self._call("PUT", f"attachments/{_id(attachment)}", ATTACHMENTS, body=body)
        except UnknownOutcome as lost:
            raise _unreachable(lost, volume, host) from lost
        connected = _attachment(reply.body["attachment"])
        while len(self._connected) >= CONNECTIONS_KEPT_MAX:
            self._connected.pop(next(iter(self._connected)))
        self._connected[attachment] = connected
        return connected

    async def connected(self, attachment: str) -> Attachment:
        """Return an attachment with its connection: from the answer that made it, or read again. Raises NotFound."""
        return self._connected.get(attachment) or await self.attachment(attachment)

    async def complete(self, attachment: str) -> None:
        """Mark the volume as in use; may be repeated."""
        await self._call("POST", f"attachments/{_id(attachment)}/action", ATTACHMENTS, body={"os-complete": None})

    async def attachment(self, attachment: str) -> Attachment:
        """Read an attachment with its connection. Raises NotFound."""
        reply = await self._call("GET", f"attachments/{_id(attachment)}", ATTACHMENTS)
        return _attachment(reply.body["attachment"])

    async def attachments_of(self, server: str, volume: str | None = None) -> tuple[Attachment, ...]:
        """Return all attachments of a server, of one volume or of all."""
        params = {"all_tenants": "1", "instance_id": server, **({} if volume is None else {"volume_id": volume})}
        reply = await self._call("GET", "attachments/detail", ATTACHMENTS, params=params)
        attachments = [_attachment(each) for each in reply.body.get("attachments", ())]
        return tuple(each for each in attachments if each.server == server and volume in (None, each.volume))

    async def all_attachments(self) -> AsyncIterator[Attachment]:
        """Return every attachment of every project, page by page."""
        async for each in self._paged("attachments", "attachments", ATTACHMENTS, {}):
            yield _attachment(each)

    async def _paged(self, path: str, things: str, version: str, query: Json) -> AsyncIterator[Json]:
        marker: Json = {}
        for _ in range(PAGES_MAX):
            params = {"all_tenants": "1", "limit": str(PAGE), **query, **marker}
            reply = await self._call("GET", path, version, params=params)
            page = reply.body.get(things, ())
            for each in page:
                yield each
            if len(page) < PAGE:
                return
            marker = {"marker": page[-1]["id"]}

    async def drop_attachment(self, attachment: str) -> None:
        """Remove the export and release the volume; a missing attachment is success."""
        self._connected.pop(attachment, None)
        try:
            await self._call("DELETE", f"attachments/{_id(attachment)}", ATTACHMENTS)
        except NotFound:
            return

    # ---- the calls ----------------------------------------------------------------------------------------------------

    async def _act(self, volume: str, action: str, body: Json, version: str = ATTACHMENTS) -> ServiceResponse:
        return await self._call("POST", f"volumes/{_id(volume)}/action", version, body={action: body})

    async def _call(
        self,
        method: str,
        path: str,
        version: str,
        project: str = "",
        token: str | None = None,
        body: Json | None = None,
        params: Mapping[str, str] | None = None,
    ) -> ServiceResponse:
        """Make one call, at the URL of the project whose token is used."""
        headers = {"OpenStack-API-Version": f"volume {version}"}
        tokens = self._volume.tokens
        if tokens is not None:
            headers["X-Service-Token"] = await tokens.get()
            project = project if token is not None else await tokens.project()
        address = f"/v3/{quote(project, safe='')}/{path}"
        return await self._volume.call(method, address, token=token, body=body, params=params, headers=headers)


def _id(given: str) -> str:
    return quote(given, safe="")


def _unreachable(lost: UnknownOutcome, volume: str, host: str) -> UnknownOutcome | VolumeUnreachable:
    """The error for a failed export: VolumeUnreachable if the back end failed, so that it is not tried again for this host; otherwise
    the error itself, which is retried.
    """
    if not lost.private.startswith(BACK_END_FAILED):
        return lost
    return VolumeUnreachable(f"Volume {volume} cannot be reached from the host.", private=f"{host}: {lost.private}")


def _volume(body: Json) -> Volume:
    attached = [each for each in body.get("attachments") or () if each.get("server_id")]
    return Volume(
        id=body["id"],
        name=body.get("name") or "",
        status=body.get("status", ""),
        size_gib=int(body.get("size") or 0),
        bootable=str(body.get("bootable", "")).lower() == "true",
        multiattach=bool(body.get("multiattach")),
        availability_zone=body.get("availability_zone"),
        volume_type=body.get("volume_type"),
        image_metadata={key: str(value) for key, value in (body.get("volume_image_metadata") or {}).items()},
        attachments=tuple((str(each.get("attachment_id") or ""), str(each["server_id"])) for each in attached),
        hosts={str(each["attachment_id"]): str(each["host_name"]) for each in attached if each.get("host_name")},
        migration_status=body.get("migration_status"),
        metadata={key: str(value) for key, value in (body.get("metadata") or {}).items()},
        project=str(body.get("os-vol-tenant-attr:tenant_id") or ""),
    )


def _snapshot(body: Json) -> VolumeSnapshot:
    return VolumeSnapshot(
        id=body["id"],
        volume=body.get("volume_id") or "",
        status=body.get("status", ""),
        size_gib=int(body.get("size") or 0),
    )


def _attachment(body: Json) -> Attachment:
    return Attachment(
        id=body["id"],
        volume=body.get("volume_id") or "",
        server=body.get("instance") or "",
        status=body.get("status") or "",
        mode=body.get("attach_mode") or "rw",
        connection=body.get("connection_info") or {},
    )
