"""A volume service in dicts, for proofs: what Cinder 29 does with volumes and attachments, as far as the sagas can see
it.

The rules: a volume is reserved by one server, and again by the same one only while it is in use or reserved; an export
changes its status to `attaching`; another export is refused while one exists (for volumes with one writer);
`os-complete` makes it `in-use`; removing the last attachment makes it available.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.guest import PowerState, VolumeDisk
from moorage.model.ids import ServerId
from moorage.model.volume import KEY, Attachment, NewVolume, Volume, VolumeSnapshot

MIGRATING = "migrating"
VOLUME = "volume-1"
OTHER_VOLUME = "volume-2"


@dataclass
class Disks:
    """What hosts do with volumes: `DictHosts` has the guests and the turns."""

    guests: dict[tuple[str, ServerId], PowerState] = field(default_factory=dict)
    disks: set[tuple[str, ServerId, str]] = field(default_factory=set)
    """(host, server, volume) of every volume that a guest has."""

    def _execute_once(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, do: Callable[[], PowerState]
    ) -> PowerState:
        raise NotImplementedError

    async def volume_connector(self, to: HostAddress, server: ServerId) -> dict[str, Any]:
        return {"host": to.host}

    async def attach_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, disk: VolumeDisk
    ) -> None:
        self._change(to, command_context, server, add=disk.volume)

    async def detach_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, volume: str
    ) -> None:
        self._change(to, command_context, server, drop=volume)

    async def swap_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, old: str, disk: VolumeDisk
    ) -> None:
        self._change(to, command_context, server, add=disk.volume, drop=old)

    async def extend_volume(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, volume: str, size_gib: int
    ) -> None:
        self._change(to, command_context, server)

    def _change(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, add: str = "", drop: str = ""
    ) -> None:
        def do() -> PowerState:
            self.disks.discard((to.host, server, drop))
            if add:
                self.disks.add((to.host, server, add))
            return self.guests[to.host, server]

        self._execute_once(to, command_context, server, do)


@dataclass
class DictVolumes:
    volumes: dict[str, Volume] = field(default_factory=dict)
    attachments: dict[str, Attachment] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    """Attachment → the host that it is exported to."""
    snapshots: dict[str, VolumeSnapshot] = field(default_factory=dict)
    made_for: dict[str, str] = field(default_factory=dict)
    """Snapshot → the image it was made for."""
    said: dict[str, str] = field(default_factory=dict)
    """The last reported status of each snapshot that the volume service requested."""
    _number: int = 0

    def _next(self) -> int:
        self._number += 1
        return self._number

    def __post_init__(self) -> None:
        for each in (VOLUME, OTHER_VOLUME):
            self.volumes[each] = Volume(id=each, status="available", size_gib=1, bootable=True)

    # ---- volumes

    def _volume(self, volume: str) -> Volume:
        if volume not in self.volumes:
            raise NotFound(f"Volume {volume} could not be found.")
        return self.volumes[volume]

    def _become(self, volume: str, status: str) -> None:
        self.volumes[volume] = msgspec.structs.replace(self._volume(volume), status=status)

    async def show(self, volume: str, project: str = "", token: str | None = None) -> Volume:
        if self._volume(volume).status == "creating":
            self._become(volume, "available")
        held = [each for each in self._of(volume) if each.status == "attached"]
        return msgspec.structs.replace(
            self._volume(volume),
            attachments=tuple((each.id, each.server) for each in held),
            hosts={each.id: self.hosts[each.id] for each in held if each.id in self.hosts},
        )

    async def zone(self, volume: str) -> str | None:
        return self._volume(volume).availability_zone

    async def with_status(self, status: str) -> tuple[Volume, ...]:
        return tuple([await self.show(each.id) for each in list(self.volumes.values()) if each.status == status])

    async def created_for(self, server: str) -> tuple[Volume, ...]:
        return tuple(each for each in self.volumes.values() if each.metadata.get(KEY) == server)

    async def create(self, wanted: NewVolume, project: str, token: str) -> Volume:
        made = Volume(id=f"made-{self._next()}", status="available", size_gib=wanted.size_gib, metadata=wanted.metadata)
        self.volumes[made.id] = made
        return made

    async def delete(self, volume: str) -> None:
        """Delete a volume. Raises Invalid in another status."""
        if volume not in self.volumes:
            return
        if self.volumes[volume].status not in {"available", "creating", "error"}:
            raise Invalid(f"Volume {volume} is {self.volumes[volume].status}")
        del self.volumes[volume]

    async def begin_detaching(self, volume: str) -> None:
        """Mark a volume as detaching. Raises Invalid in another status."""
        if self._volume(volume).migration_status == MIGRATING:
            return
        if self._volume(volume).status != "in-use":
            raise Invalid(f"Volume {volume} is {self.volumes[volume].status}")
        self._become(volume, "detaching")

    async def roll_detaching(self, volume: str) -> None:
        if volume in self.volumes and self.volumes[volume].status == "detaching":
            self._become(volume, "in-use")

    async def complete_extend(self, volume: str, *, failed: bool) -> None:
        if volume in self.volumes and self.volumes[volume].status == "extending":
            self._become(volume, "error_extending" if failed else "in-use")

    async def snapshot_is(self, snapshot: str, status: str) -> None:
        self.said[snapshot] = status

    async def complete_migration(self, old: str, new: str, *, failed: bool) -> str:
        """Complete a migration as Cinder does: the volume keeps its id and gets the new one's data and attachments; the
        new one is deleted.

        Raises Invalid when the volume is not migrating.
        """
        if self._volume(old).migration_status != MIGRATING:
            raise Invalid(f"Volume {old} is not migrating.")
        now = "error" if failed else "success"
        self.volumes[old] = msgspec.structs.replace(self._volume(old), migration_status=now)
        if not failed:
            for each in self._of(new):
                self.attachments[each.id] = msgspec.structs.replace(each, volume=old)
            del self.volumes[new]
            self._become(old, "in-use")
        return old

    async def reimage(self, volume: str, image: str) -> None:
        """Write an image over a volume. Raises Invalid in another status."""
        if self._volume(volume).status not in {"available", "error", "reserved"}:
            raise Invalid(f"Volume {volume} is {self.volumes[volume].status}")

    # ---- snapshots

    async def snapshot(self, snapshot: str, project: str = "", token: str | None = None) -> VolumeSnapshot:
        """A snapshot. Raises NotFound."""
        if snapshot not in self.snapshots:
            raise NotFound(f"Snapshot {snapshot} could not be found.")
        return self.snapshots[snapshot]

    async def snapshots_for(self, image: str) -> tuple[VolumeSnapshot, ...]:
        return tuple(each for each in self.snapshots.values() if self.made_for.get(each.id) == image)

    async def made_snapshots(self) -> dict[str, str]:
        return {each: image for each, image in self.made_for.items() if each in self.snapshots}

    async def delete_snapshot(self, snapshot: str) -> None:
        self.snapshots.pop(snapshot, None)

    # ---- attachments

    def _of(self, volume: str) -> list[Attachment]:
        return [each for each in self.attachments.values() if each.volume == volume]

    async def reserve(self, volume: str, server: str) -> Attachment:
        """Reserve a volume. Raises Invalid in another status."""
        found = self._volume(volume)
        ours = any(each.server == server for each in self._of(volume))
        if found.status != "available" and not (ours and found.status in {"in-use", "reserved"}):
            raise Invalid(f"Volume {volume} status must be available to reserve, but is {found.status}.")
        made = Attachment(id=f"attachment-{self._next()}", volume=volume, server=server, status="reserved")
        self.attachments[made.id] = made
        self._become(volume, "reserved")
        return made

    async def connect(self, attachment: str, volume: str, connector: Mapping[str, Any], host: str) -> Attachment:
        """Export an attachment. Raises Conflict when another one is exported."""
        self._attachment(attachment)
        if len(self._of(volume)) > 1 and any(each.id in self.hosts for each in self._of(volume)):
            raise Conflict(f"duplicate connectors detected on volume {volume}")
        return self._export(attachment, volume, connector)

    async def export_again(self, volume: str, server: str, connector: Mapping[str, Any], host: str) -> Attachment:
        made = await self.reserve(volume, server)
        return self._export(made.id, volume, connector)

    def _export(self, attachment: str, volume: str, connector: Mapping[str, Any]) -> Attachment:
        now = msgspec.structs.replace(
            self.attachments[attachment], status="attaching", connection={"secret": str(connector["host"])}
        )
        self.attachments[attachment], self.hosts[attachment] = now, str(connector["host"])
        self._become(volume, "attaching")
        return now

    async def complete(self, attachment: str) -> None:
        found = self._attachment(attachment)
        self.attachments[attachment] = msgspec.structs.replace(found, status="attached")
        self._become(found.volume, "in-use")

    def _attachment(self, attachment: str) -> Attachment:
        if attachment not in self.attachments:
            raise NotFound(f"Attachment {attachment} could not be found.")
        return self.attachments[attachment]

    async def attachment(self, attachment: str) -> Attachment:
        return self._attachment(attachment)

    connected = attachment

    async def attachments_of(self, server: str, volume: str | None = None) -> tuple[Attachment, ...]:
        return tuple(
            each for each in self.attachments.values() if each.server == server and volume in (None, each.volume)
        )

    async def all_attachments(self) -> AsyncIterator[Attachment]:
        for each in list(self.attachments.values()):
            yield each

    async def drop_attachment(self, attachment: str) -> None:
        gone = self.attachments.pop(attachment, None)
        self.hosts.pop(attachment, None)
        if gone is None or gone.volume not in self.volumes:
            return
        left = {each.status for each in self._of(gone.volume)}
        status = next((now for one, now in LEFT if one in left), "available")
        self._become(gone.volume, status)

    def held(self) -> dict[str, Any]:
        """Comparable: without the ids of attachments and of volumes that were made."""
        return {
            "volumes": sorted(
                (each.id, each.status.removeprefix("error_"))  # an extension that failed is as one that nobody told of
                for each in self.volumes.values()
                if each.status != "creating"
            ),
            "attachments": sorted(
                (each.volume, each.status, bool(self.hosts.get(each.id))) for each in self.attachments.values()
            ),
        }


LEFT = (("attached", "in-use"), ("attaching", "attaching"), ("reserved", "reserved"))
"""What a volume becomes when an attachment goes, by what is left of them."""
