"""What was done to a server: an action, and the events it consists of (`os-instance-actions`)."""

import msgspec

from moorage.model.ids import ServerId


class ActionEvent(msgspec.Struct, frozen=True):
    """One part of an action, usually something a host did."""

    name: str
    started_at: int
    finished_at: int | None = None
    result: str | None = None
    """`Success` or `Error`."""
    host: str | None = None
    details: str | None = None
    traceback: str | None = None


class Action(msgspec.Struct, frozen=True):
    """One thing asked of a server, known by the id of the request that asked."""

    server: ServerId
    action: str
    """Nova's name of the action: create, delete, start, stop, reboot …"""
    request_id: str
    user: str
    project: str
    started_at: int
    updated_at: int
    finished_at: int | None = None
    message: str | None = None
    """`Error` when it failed."""
    events: tuple[ActionEvent, ...] = ()
