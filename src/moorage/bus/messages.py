"""The list of all messages, and how they are encoded and decoded.

The structs are in `command_messages.py`, `host_messages.py` and the modules of payloads; hints are here.

Conductors and hosts of different releases exchange messages, so a field is only ever **added, with a default**; none is renamed,
re-typed or removed.  `tests/pure/test_messages_golden.py` compares these structs with their published form.

Every message is JSON with its kind under `type`.  A message that cannot be read is ignored (`read` returns None): messages are hints,
and an important one is sent again.
"""

from typing import TypeAlias

import msgspec

from moorage.bus.command_messages import Command, Result, ResultTaken
from moorage.bus.description_messages import PortDescriptions
from moorage.bus.guest_payloads import (
    AttachInterface,
    CacheImage,
    ConsoleOutput,
    ConsoleText,
    DestroyGuest,
    DetachInterface,
    Done,
    GetConsole,
    GuestNow,
    OfSnapshot,
    PowerOff,
    Reboot,
    RebuildGuest,
    SetAdminPassword,
    StartGuest,
    TakeSnapshot,
)
from moorage.bus.host_messages import (
    AgentRefused,
    AgentReturned,
    Heartbeat,
    HostReport,
    ReportWanted,
    ServersOfHost,
    TurnOfServer,
    TurnReset,
)
from moorage.bus.log_limiter import unreadable
from moorage.bus.move_payloads import ForceLive, LiveTarget, OfMove, SendGuest, SendLive, TakeGuest
from moorage.bus.quiesce_messages import FreezeGuest, ThawGuest
from moorage.bus.rescue_messages import RescueGuest, UnrescueGuest
from moorage.bus.volume_payloads import (
    AttachVolume,
    Connector,
    DetachVolume,
    DropVolumeSnapshot,
    ExtendVolume,
    SwapVolume,
    TakeVolumeSnapshot,
)
from moorage.model.console import ConsoleSocket
from moorage.model.diagnostics import GuestDiagnostics
from moorage.model.guest import MoveTarget
from moorage.model.host_ports import Plumbed
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId
from moorage.model.live_migration import LiveNow, LiveSource

NO_NETWORK_CLIENT = "no_network_client"
"""The code with which a host of level 3 answers a `PortOrder`."""


class OperationHint(msgspec.Struct, frozen=True, tag="operation_hint"):
    """To an operation's owner: the operation waits for it, or was cancelled."""

    operation: OperationId
    owner: ConductorId
    cancelled: bool = False


class ServerHint(msgspec.Struct, frozen=True, tag="server_hint"):
    """From a cell's conductor to the region's: check this server."""

    cell: CellId
    server: ServerId


class EventHint(msgspec.Struct, frozen=True, tag="event_hint"):
    """There is an external event in the inbox (RULES §20)."""

    server: ServerId
    name: str = ""
    tag: str | None = None


class PictureHint(msgspec.Struct, frozen=True, tag="picture_hint"):
    """Claims or inventories have changed: update the provider cache (RULES §6)."""

    changed: int = 0


Message: TypeAlias = (
    Command
    | Result
    | ResultTaken
    | Heartbeat
    | HostReport
    | ReportWanted
    | AgentReturned
    | AgentRefused
    | ServersOfHost
    | TurnReset
    | OperationHint
    | ServerHint
    | EventHint
    | PictureHint
    | PortDescriptions
)

PAYLOADS: tuple[type[msgspec.Struct], ...] = (
    StartGuest,
    DestroyGuest,
    PowerOff,
    Reboot,
    AttachInterface,
    DetachInterface,
    AttachVolume,
    DetachVolume,
    SwapVolume,
    ExtendVolume,
    TakeVolumeSnapshot,
    DropVolumeSnapshot,
    FreezeGuest,
    ThawGuest,
    Connector,
    ConsoleOutput,
    ConsoleText,
    TakeSnapshot,
    OfSnapshot,
    GuestNow,
    Plumbed,
    SetAdminPassword,
    CacheImage,
    RebuildGuest,
    RescueGuest,
    UnrescueGuest,
    Done,
    GuestDiagnostics,
    GetConsole,
    ConsoleSocket,
    MoveTarget,
    SendGuest,
    TakeGuest,
    OfMove,
    LiveSource,
    LiveTarget,
    LiveNow,
    SendLive,
    ForceLive,
    TurnOfServer,
)
"""The structs inside `Command.payload` and `Result.payload`; the same rules apply to them as to messages."""

MESSAGES: tuple[type[msgspec.Struct], ...] = (
    Command,
    Result,
    ResultTaken,
    Heartbeat,
    HostReport,
    ReportWanted,
    AgentReturned,
    AgentRefused,
    ServersOfHost,
    TurnReset,
    OperationHint,
    ServerHint,
    EventHint,
    PictureHint,
    PortDescriptions,
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def pack(payload: msgspec.Struct) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(payload))


def read(payload: bytes) -> Message | None:
    """Decode a message; None: this release does not know it, or it is damaged."""
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        unreadable.warn("a message of %d bytes that cannot be read is ignored: %s", len(payload), error)
        return None
