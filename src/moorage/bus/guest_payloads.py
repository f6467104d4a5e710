"""Payloads of commands that make, run and read one guest, and of their answers."""

import msgspec
from typing_extensions import override

from moorage.model.guest import GuestSpec, PowerState, Quiesce, VifData
from moorage.model.host_ports import Plumbed, PortOrder
from moorage.model.ids import ImageId


class StartGuest(msgspec.Struct, frozen=True):
    guest: GuestSpec
    order: PortOrder | None = None
    """What a host of level 1 or 2 does about the ports first; None: they are finished."""


class DestroyGuest(msgspec.Struct, frozen=True):
    """Hosts of level 3 need to be told nothing."""

    release: bool = False
    """The server is to have no ports any more: a host of level 1 or 2 deletes those we made and lets the user's go (S0.8)."""
    vifs: tuple[VifData, ...] = ()
    """`preserve_on_delete` says whose each is."""


class PowerOff(msgspec.Struct, frozen=True):
    graceful_s: float = 60.0
    """How long the guest may take to shut itself down; 0 pulls the plug."""


class Reboot(msgspec.Struct, frozen=True):
    hard: bool = False


class AttachInterface(msgspec.Struct, frozen=True):
    vif: VifData


class DetachInterface(msgspec.Struct, frozen=True):
    port: str


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Copy the guest's disk, to be sent into that image later."""

    image: ImageId
    quiesce: Quiesce = Quiesce.NO


class OfSnapshot(msgspec.Struct, frozen=True):
    """The copy that was taken for that image: send it, or remove it."""

    image: ImageId


class ConsoleOutput(msgspec.Struct, frozen=True):
    lines: int | None = None
    """How many of the last lines; None is all that is kept."""


class ConsoleText(msgspec.Struct, frozen=True):
    """The answer to `console_output`."""

    text: str = ""


class SetAdminPassword(msgspec.Struct, frozen=True):
    password: str

    @override
    def __repr__(self) -> str:
        """Never the password: what is printed is kept."""
        return "SetAdminPassword(…)"


class CacheImage(msgspec.Struct, frozen=True):
    image: str


class RebuildGuest(msgspec.Struct, frozen=True):
    """Make the guest anew in its place, from another image or the same one."""

    guest: GuestSpec
    preserve_ephemeral: bool = False


class Done(msgspec.Struct, frozen=True):
    """The answer to a verb of which nothing is to be said but that it was done."""


class GetConsole(msgspec.Struct, frozen=True):
    """Answered with a `ConsoleSocket`."""

    kind: str


class GuestNow(msgspec.Struct, frozen=True):
    """The answer to every verb that touches a guest: how it is afterwards."""

    power_state: PowerState = PowerState.NOSTATE
    plumbed: Plumbed | None = None
    """The ports, when the host saw to them."""
