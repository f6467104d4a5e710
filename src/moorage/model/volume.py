"""What the volume service tells of volumes, snapshots and attachments, in our words (Cinder v3, docs.openstack.org/api-ref).

Sizes are GiB.  `Attachment.connection` is a secret (it may hold passwords of a storage back end): it is given to hosts, and
neither stored, shown nor logged by us; who needs it again asks the volume service.
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
"""What a volume is called that is still being made."""
KEY = "moorage_server"
"""In the metadata of volumes that we created: the server they were created for."""


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
    """Attachment → the host it is exported to, as far as we may see it."""
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
"""In the metadata of snapshots that we made: the image that they were made for."""
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
