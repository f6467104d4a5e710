"""A notification about a server: one event, as it is stored until it is sent (S0.19).

It contains facts; the two formats are built when it is sent.  Rows are read by later releases: a field is only ever added, with a
default.
"""

import uuid
from typing import Literal, TypeAlias

import msgspec

from moorage.model.server import FlavorCopy, Server

Service: TypeAlias = Literal["compute", "conductor", "api"]
NotificationFormat: TypeAlias = Literal["unversioned", "versioned", "both"]
StateChanges: TypeAlias = Literal["", "vm_state", "vm_and_task_state"]

NAMESPACE = uuid.UUID("6f4d1c7e-5b0e-4a57-9a3b-0b1f3f0f2d11")
FAULT_CHARACTERS_MAX = 255


class Trouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, without anything that only operators may read."""

    kind: str
    message: str
    step: str = ""
    saga: str = ""


class StateUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The server's earlier states; its record has the present ones."""

    old_state: str | None = None
    old_task_state: str | None = None
    old_name: str | None = None


class Notification(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of one server."""

    id: str
    """The same if the event is sent again; the message id of each format is made from it."""
    event: str
    """Nova's word, as in its versioned types: `create.start`, `power_off.end`, `update`."""
    at: int
    server: Server
    service: Service = "compute"
    """The service of Nova that would send it."""
    host: str = ""
    told_by: str = ""
    """The conductor's own host name, if it sends the event in the name of the server's host."""
    request_id: str = ""
    global_request_id: str = ""
    user: str = ""
    """The user who made the request."""
    project: str = ""
    """The project of that request."""
    trouble: Trouble | None = None
    update: StateUpdate | None = None
    volume: str | None = None
    """In events about volumes: the volume."""
    new_volume: str | None = None
    """In a swap: the new volume."""
    period: tuple[int, int] | None = None
    """Start and end of its audit period."""
    new_flavor: FlavorCopy | None = None
    """In `resize_prep`: the new flavor."""
    snapshot_image: str = ""
    """In `snapshot`: the image."""

    def message_id(self, format: str) -> str:
        """Return the id of the message in one format. It follows from the event, so that receivers recognise a repeat."""
        return str(uuid.uuid5(NAMESPACE, f"{self.id}/{format}"))


def without_secrets(server: Server) -> Server:
    """Return the server without its user data, which notifications must not contain."""
    return msgspec.structs.replace(server, user_data=None, hints={}, operation=None)
