"""Volumes, snapshots and attachments of the volume service (Cinder v3, docs.openstack.org/api-ref).

Sizes are in GiB.  `Attachment.connection` is a secret (it may contain passwords of a storage back end): it is sent to hosts, and
neither stored, shown nor logged; when it is needed again, it is read from the volume service.
"""

from typing import Any

import msgspec
from typing_extensions import override

from moorage.model.errors import HostFailed

UNREACHABLE = "volume_unreachable"
"""The code of a volume that could not be connected to a host."""
AVAILABLE = "available"
IN_USE = "in-use"
RESERVED = "reserved"
ATTACHED = "attached"
CREATING = frozenset({"creating", "downloading"})
"""Statuses of a volume that is still being made."""
KEY = "moorage_server"
"""Key in the metadata of volumes that we created: the server for which they were created."""


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    status: str = ""
    size_gib: int = 0
    bootable: bool = False
    multiattach: bool = False
    availability_zone: str | None = None
    volume_type: str | None = None
    image_metadata: dict[str, str] = {}
    attachments: tuple[tuple[str, str], ...] = ()
    """(attachment, server) of each that is complete."""
    hosts: dict[str, str] = {}
    """Attachment → the host to which it is exported, as far as we may see it."""
    migration_status: str | None = None
    metadata: dict[str, str] = {}
    project: str = ""

    @property
    def may_be_attached(self) -> bool:
        """Whether one more attachment may be reserved now."""
        return self.status == AVAILABLE or (self.multiattach and self.status == IN_USE)


class VolumeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    volume: str = ""
    status: str = ""
    size_gib: int = 0


MADE_FOR_IMAGE = "moorage_image"
"""Key in the metadata of snapshots that we made: the image for which they were made."""
SNAPSHOT_SETTLED = frozenset({"available", "error", "deleting", "error_deleting", "deleted"})


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    volume: str
    server: str
    status: str = ""
    mode: str = "rw"
    """`rw`, or `ro` for a server that only reads."""
    connection: dict[str, Any] = {}

    @override
    def __repr__(self) -> str:
        return f"Attachment({self.id}, volume {self.volume}, server {self.server}, {self.status})"


class NewVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that is to be made for a server."""

    size_gib: int
    name: str = ""
    image: str | None = None
    snapshot: str | None = None
    volume_type: str | None = None
    availability_zone: str | None = None
    metadata: dict[str, str] = {}


class VolumeUnreachable(HostFailed):
    """A volume cannot be connected to one host; another host may reach it."""

    code = UNREACHABLE
