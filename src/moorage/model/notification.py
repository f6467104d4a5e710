"""What is said to others about a server: one event, as it is kept until it was sent (S0.19).

It holds facts, in our words; the two formats are put together when it is sent.  Rows outlive releases: a field is only
ever added, with a default.
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
    """What went wrong, without anything that only operators may read."""

    kind: str
    message: str
    step: str = ""
    saga: str = ""


class StateUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server was before; what it is now stands in its record."""

    old_state: str | None = None
    old_task_state: str | None = None
    old_name: str | None = None


class Notification(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of one server."""

    id: str
    """The same whenever the same event is told again; each format's message has an id made from it."""
    event: str
    """Nova's word, as in its versioned types: `create.start`, `power_off.end`, `update`."""
    at: int
    server: Server
    service: Service = "compute"
    """Which of Nova's services would have said it."""
    host: str = ""
    told_by: str = ""
    """Where a conductor says it in the name of that host: its own."""
    request_id: str = ""
    global_request_id: str = ""
    user: str = ""
    """Who asked."""
    project: str = ""
    """The project that user acted for."""
    trouble: Trouble | None = None
    update: StateUpdate | None = None
    volume: str | None = None
    """Of events of volumes: which."""
    new_volume: str | None = None
    """Of a swap: the one it went on with."""
    period: tuple[int, int] | None = None
    """Of the audit that it belongs to: from, to."""
    new_flavor: FlavorCopy | None = None
    """Of `resize_prep`: the flavor that it is about to have."""
    snapshot_image: str = ""
    """Of `snapshot`: the image."""

    def message_id(self, format: str) -> str:
        """Of the message in one format: made, not minted, so that who is told twice can see it."""
        return str(uuid.uuid5(NAMESPACE, f"{self.id}/{format}"))


def without_secrets(server: Server) -> Server:
    """What may be told of a server: its user data stays with it."""
    return msgspec.structs.replace(server, user_data=None, hints={}, operation=None)
