"""Payloads of commands that make, run and read one guest, and of their answers."""

import msgspec
from typing_extensions import override

from moorage.model.guest import GuestSpec, PowerState, Quiesce, VifData
from moorage.model.host_ports import Plumbed, PortOrder
from moorage.model.ids import ImageId


class StartGuest(msgspec.Struct, frozen=True):
    guest: GuestSpec
    order: PortOrder | None = None
    """What a host of level 1 or 2 first does with the ports; None: they are bound."""


class DestroyGuest(msgspec.Struct, frozen=True):
    """Destroy the guest; the fields are only for hosts of level 1 and 2."""

    release: bool = False
    """Whether a host of level 1 or 2 also deletes the ports that we made, and releases the user's (S0.8)."""
    vifs: tuple[VifData, ...] = ()
    """The ports; `preserve_on_delete` marks the user's."""


class PowerOff(msgspec.Struct, frozen=True):
    graceful_s: float = 60.0
    """How long the guest may take to shut itself down; 0 pulls the plug."""


def waits_s(payload: msgspec.Struct | None) -> float:
    """How long a host is told to wait for a guest that shuts itself down, besides its own work."""
    return max(0.0, float(getattr(payload, "graceful_s", 0.0)))


class Reboot(msgspec.Struct, frozen=True):
    hard: bool = False


class AttachInterface(msgspec.Struct, frozen=True):
    vif: VifData


class DetachInterface(msgspec.Struct, frozen=True):
    port: str


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Copy the guest's disk; the copy is uploaded into this image later."""

    image: ImageId
    quiesce: Quiesce = Quiesce.NO


class OfSnapshot(msgspec.Struct, frozen=True):
    """The copy that was made for this image, which is to be uploaded or removed."""

    image: ImageId


class ConsoleOutput(msgspec.Struct, frozen=True):
    lines: int | None = None
    """How many of the last lines; None: all that are kept."""


class ConsoleText(msgspec.Struct, frozen=True):
    """The answer to `console_output`."""

    text: str = ""


class SetAdminPassword(msgspec.Struct, frozen=True):
    password: str

    @override
    def __repr__(self) -> str:
        """Leave out the password, because printed text may be stored."""
        return "SetAdminPassword(…)"


class CacheImage(msgspec.Struct, frozen=True):
    image: str


class RebuildGuest(msgspec.Struct, frozen=True):
    """Make the guest again in its place, from another image or the same one."""

    guest: GuestSpec
    preserve_ephemeral: bool = False


class Done(msgspec.Struct, frozen=True):
    """The answer to a verb that returns no data."""


class GetConsole(msgspec.Struct, frozen=True):
    """Answered with a `ConsoleSocket`."""

    kind: str


class GuestNow(msgspec.Struct, frozen=True):
    """The answer to every verb that changes a guest: its state afterwards."""

    power_state: PowerState = PowerState.NOSTATE
    plumbed: Plumbed | None = None
    """The ports, if the host made or bound them."""
