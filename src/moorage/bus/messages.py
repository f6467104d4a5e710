"""Every message that travels, in one place.

Old and new conductors and hosts talk to each other, so a field is only ever **added, with a default**; none is renamed, re-typed or
taken away.  `tests/pure/test_messages_golden.py` compares these structs with what was once published and fails otherwise.

Every message is JSON with its kind under `type`.  Whoever cannot read one lets it lie (`read` gives None): the bus is a hint, and
a message that matters is sent again.
"""

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
from typing_extensions import override

from moorage.bus.log_limiter import unreadable
from moorage.bus.quiesce_messages import FreezeGuest, ThawGuest
from moorage.bus.rescue_messages import RescueGuest, UnrescueGuest
from moorage.model.console import ConsoleSocket
from moorage.model.diagnostics import GuestDiagnostics
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import (
    GuestSpec,
    MoveTarget,
    PhysicalFunction,
    PowerState,
    Quiesce,
    ResourceInventory,
    VifData,
    VolumeDisk,
)
from moorage.model.host_ports import Plumbed, PortOrder
from moorage.model.ids import CellId, ConductorId, ImageId, OperationId, ServerId
from moorage.model.live_migration import LiveNow, LiveSource

MAX_LISTED = 5_000
"""Servers in one message, and results acknowledged in one: about half of the megabyte that a NATS server lets through."""

EMPTY = msgspec.Raw(b"{}")
NO_NETWORK_CLIENT = "no_network_client"
"""The code with which a host of level 3 answers a `PortOrder`."""


class Verb(StrEnum):
    """What a host can be asked.  The set is open: an agent answers an unknown verb with `not_supported`."""

    START_GUEST = "start_guest"
    DESTROY_GUEST = "destroy_guest"
    POWER_ON = "power_on"
    POWER_OFF = "power_off"
    REBOOT = "reboot"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"
    RESUME = "resume"
    ATTACH_INTERFACE = "attach_interface"
    DETACH_INTERFACE = "detach_interface"
    ATTACH_VOLUME = "attach_volume"
    DETACH_VOLUME = "detach_volume"
    CONSOLE_OUTPUT = "console_output"
    SET_ADMIN_PASSWORD = "set_admin_password"
    CRASH_DUMP = "crash_dump"
    DIAGNOSTICS = "diagnostics"
    CACHE_IMAGE = "cache_image"
    REBUILD_GUEST = "rebuild_guest"
    RESCUE_GUEST = "rescue_guest"
    UNRESCUE_GUEST = "unrescue_guest"
    TAKE_SNAPSHOT = "take_snapshot"
    UPLOAD_SNAPSHOT = "upload_snapshot"
    DROP_SNAPSHOT = "drop_snapshot"
    VOLUME_CONNECTOR = "volume_connector"
    SWAP_VOLUME = "swap_volume"
    EXTEND_VOLUME = "extend_volume"
    GET_CONSOLE = "get_console"
    TAKE_VOLUME_SNAPSHOT = "take_volume_snapshot"
    DROP_VOLUME_SNAPSHOT = "drop_volume_snapshot"
    FREEZE_GUEST = "freeze_guest"
    THAW_GUEST = "thaw_guest"
    GUEST_POWER = "guest_power"
    MOVE_TARGET = "move_target"
    SEND_GUEST = "send_guest"
    TAKE_GUEST = "take_guest"
    RETURN_GUEST = "return_guest"
    FORGET_LEFT = "forget_left"
    LIVE_SOURCE = "live_source"
    LIVE_TARGET = "live_target"
    LIVE_STATUS = "live_status"
    PREPARE_LIVE = "prepare_live"
    SEND_LIVE = "send_live"
    ABORT_LIVE = "abort_live"
    FORCE_LIVE = "force_live"
    DROP_LIVE = "drop_live"
    LAND_LIVE = "land_live"


READS = frozenset(
    {
        Verb.CONSOLE_OUTPUT,
        Verb.GET_CONSOLE,
        Verb.SET_ADMIN_PASSWORD,
        Verb.DIAGNOSTICS,
        Verb.CACHE_IMAGE,
        Verb.VOLUME_CONNECTOR,
        Verb.GUEST_POWER,
        Verb.MOVE_TARGET,
        Verb.LIVE_SOURCE,
        Verb.LIVE_TARGET,
        Verb.LIVE_STATUS,
        Verb.FREEZE_GUEST,
        Verb.THAW_GUEST,
    }
)
"""Verbs that change nothing a record tells of: they carry no turn, and leave nothing in the host's journal, where no password may be kept."""


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


class AttachVolume(msgspec.Struct, frozen=True):
    disk: VolumeDisk


class DetachVolume(msgspec.Struct, frozen=True):
    volume: str


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Copy the guest's disk, to be sent into that image later."""

    image: ImageId
    quiesce: Quiesce = Quiesce.NO


class OfSnapshot(msgspec.Struct, frozen=True):
    """The copy that was taken for that image: send it, or remove it."""

    image: ImageId


class SwapVolume(msgspec.Struct, frozen=True):
    """Copy what is on one volume to another while the guest runs, and let it go on with the other."""

    old: str
    disk: VolumeDisk


class ExtendVolume(msgspec.Struct, frozen=True):
    """A volume has grown; the guest is to see it."""

    volume: str
    size_gib: int


class TakeVolumeSnapshot(msgspec.Struct, frozen=True):
    """The guest is to write to another file of the volume, which the volume service has made (qcow2)."""

    volume: str
    snapshot: str
    new_file: str


class DropVolumeSnapshot(msgspec.Struct, frozen=True):
    """A file goes out of the volume's chain."""

    volume: str
    snapshot: str
    merge_file: str | None = None
    merge_target: str | None = None


class Connector(msgspec.Struct, frozen=True):
    """The answer to `volume_connector`: what the volume service is told of the host, to export volumes to it."""

    connector: dict[str, Any] = {}


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


class SendGuest(msgspec.Struct, frozen=True):
    """Switch the guest off and send its disk to the host that is to have it; the guest stays here too, and off."""

    to: MoveTarget
    move: str
    """The move's UUID."""
    graceful_s: float = 60.0


class TakeGuest(msgspec.Struct, frozen=True):
    """Make a guest of what another host sent; it is off until it is started.  Where the guest is here already, the old one is kept
    beside it."""

    guest: GuestSpec
    move: str


class OfMove(msgspec.Struct, frozen=True):
    """Of a guest that was resized on its host: have the old one back, or forget it."""

    move: str


class LiveTarget(msgspec.Struct, frozen=True):
    """Can this guest, which runs on that host, go on here?  Answered with a `MoveTarget`."""

    guest: GuestSpec
    source: LiveSource
    block: bool | None = None
    """Whether local disks are sent too; None: if they must be."""


class SendLive(msgspec.Struct, frozen=True):
    """Begin to send a guest that runs to the host that waits for it."""

    to: MoveTarget
    move: str


class ForceLive(msgspec.Struct, frozen=True):
    """Switch now, though the guest writes faster than it is sent."""

    move: str
    post_copy: bool = False
    """It may go on there before all of its memory is; else it stands still until it is."""


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


class ResultKey(msgspec.Struct, frozen=True, array_like=True):
    """Names one result at one host."""

    server: ServerId
    turn: FencingToken
    step: str


class Command(msgspec.Struct, frozen=True, tag="command"):
    """A conductor tells a host to do one thing to one server."""

    server: ServerId
    turn: FencingToken
    step: str
    """The saga's step; equal turn and step mean the same command again."""
    verb: str
    operation: OperationId
    deadline: float
    """Seconds since 1970, for hosts of a release that does not know `left_s`: after this nobody waits for the answer."""
    reply_to: ConductorId
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: EMPTY)
    taken: tuple[ResultKey, ...] = ()
    request_id: str = ""
    left_s: float | None = None
    """So many seconds after it was sent nobody waits for the answer any more, and the host need not begin.  A duration, because
    the clocks of two machines may differ; None: the sender's release knows `deadline` alone."""
    until_done: bool = False
    """Nobody gives up before it is done: a failure is answered and not kept, so that the same command is tried anew."""
    knows_senders: bool = False
    """The sender hears what hosts say under their names (`bus/sender_checks.py`); False: its release does not."""
    trace: str = ""  # what the command is part of, as a `traceparent`; empty: nobody traces it


class Result(msgspec.Struct, frozen=True, tag="result"):
    """A host tells what became of a command.  Kept at the host until it was taken."""

    host: str
    cell: CellId
    server: ServerId
    turn: FencingToken
    step: str
    ok: bool
    code: str = ""
    """The kind of problem, a stable word."""
    public: str = ""
    private: str = ""
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: EMPTY)
    """The answer; of a failed `start_guest`, the ports that are left (`Plumbed`)."""
    operation: OperationId = OperationId("")

    @property
    def key(self) -> ResultKey:
        return ResultKey(self.server, self.turn, self.step)


class ResultTaken(msgspec.Struct, frozen=True, tag="result_taken"):
    """To a host: these results are in somebody's journal, and these servers are gone for ever; forget them."""

    results: tuple[ResultKey, ...] = ()
    gone: tuple[ServerId, ...] = ()


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """A host lives.  Kept in memory by whoever hears it, never in a database."""

    host: str
    cell: CellId
    boot: str
    """New each time the agent starts: it tells two agents of one host name apart."""
    beat: int = 0
    guests: int = 0
    digest: str = ""
    """Of all guests' power states (`model.guest.digest`): whoever has another one asks with `ReportWanted`."""
    changed: dict[ServerId, PowerState] = {}
    """Power states that differ from the last beat's; a destroyed guest shows as NOSTATE."""
    untaken: tuple[ResultKey, ...] = ()
    """Results that nobody has said to have taken, some of the oldest."""
    leaving: bool = False
    """The agent stops now: another one may speak for this host at once."""


class HostReport(msgspec.Struct, frozen=True, tag="host_report"):
    """All that a host says of itself: sent when it starts, when something changed and when it is wanted."""

    host: str
    cell: CellId
    host_id: str
    boot: str
    level: int = 3
    """The agent's protocol level: 3 takes ports that arrive bound, and has no way to the network service."""
    version: str = ""
    inventory: dict[str, ResourceInventory] = {}
    traits: tuple[str, ...] = ()
    physical_networks: tuple[str, ...] = ()
    guests: dict[ServerId, PowerState] = {}
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    hypervisor_hostname: str = ""
    cpu_info: dict[str, Any] = {}
    address: str = ""
    physical_functions: tuple[PhysicalFunction, ...] = ()
    guests_in_all: int | None = None
    """More than `guests` lists when there are more than `MAX_LISTED`; None: the sender's release does not say."""
    set_aside: tuple[str, ...] = ()
    """Records of guests that the host could not read, and has put away."""
    up_since: int = 0
    """Since when the machine runs, µs by its own clock; 0: the sender's release does not say."""
    replaces: tuple[str, ...] | None = None
    """The agents that ran here before, as in `AgentReturned`; None: it does not say."""


class ReportWanted(msgspec.Struct, frozen=True, tag="report_wanted"):
    """To a host: send your whole report."""

    host: str = ""
    knows_senders: bool = False
    """The sender hears what hosts say under their names (`bus/sender_checks.py`); False: its release does not."""


class AgentReturned(msgspec.Struct, frozen=True, tag="agent_returned"):
    """A host has started, or could not be heard for a while, and asks its cell: who belongs here?

    It obeys nobody until it is told (RULES §10, §23).
    """

    host: str
    cell: CellId
    boot: str
    """New with each question, and repeated in the answer, so that an answer to an earlier one is known by it."""
    guests: tuple[ServerId, ...] = ()
    """Every server that has a guest here, or whose turn is remembered here: the answer must speak of each."""
    home: bool = False
    """It is home, and asks of servers whose turns it remembers only: what is its own need not be said again."""
    agent: str = ""
    """The `boot` of its beats and reports; empty: the sender's release asks with that as `boot`."""
    replaces: tuple[str, ...] | None = None
    """The agents that ran here before, by the journal on this machine's disk, newest first; None: it does not know."""


class AgentRefused(msgspec.Struct, frozen=True, tag="agent_refused"):
    """To an agent: another one speaks for this host already.  It obeys nobody and reports nothing until a later question is answered."""

    host: str
    agent: str
    """The `boot` of the beats of whom is refused: both agents hear this."""
    why: str = ""


class ServerTurn(msgspec.Struct, frozen=True):
    """What a cell knows of one server and one host."""

    server: ServerId
    turn: FencingToken | None = None
    """The highest turn known; None if there is none."""
    here: bool = True
    """It belongs on this host."""
    running: bool = True
    """Its user wants it on."""
    gone: bool = False
    """Deleted for ever: no turn is needed to destroy it, and none to remember."""
    over: int | None = None
    """All operations of the server up to this one are over, and left it here: their starts count.  None: that is not said."""


class ServersOfHost(msgspec.Struct, frozen=True, tag="servers_of_host"):
    """The cell's answer to `AgentReturned`; may also be sent unasked, to a host that was silent for a while."""

    boot: str
    """From the question; an answer to an earlier one is ignored.  Empty: unasked."""
    servers: tuple[ServerTurn, ...] = ()
    knows_senders: bool = False
    """The sender hears what hosts say under their names (`bus/sender_checks.py`); False: its release does not."""


class OperationHint(msgspec.Struct, frozen=True, tag="operation_hint"):
    """An operation waits for its owner, or was cancelled."""

    operation: OperationId
    owner: ConductorId
    cancelled: bool = False


class ServerHint(msgspec.Struct, frozen=True, tag="server_hint"):
    """A cell's conductor tells the region's: look at this server."""

    cell: CellId
    server: ServerId


class EventHint(msgspec.Struct, frozen=True, tag="event_hint"):
    """An external event lies in the inbox (RULES §20)."""

    server: ServerId
    name: str = ""
    tag: str | None = None


class PictureHint(msgspec.Struct, frozen=True, tag="picture_hint"):
    """Claims or inventories have changed: catch up (RULES §6)."""

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
    | OperationHint
    | ServerHint
    | EventHint
    | PictureHint
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
)
"""What travels inside `Command.payload` and `Result.payload`, kept as carefully as the messages."""

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
    OperationHint,
    ServerHint,
    EventHint,
    PictureHint,
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def pack(payload: msgspec.Struct) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(payload))


def read(payload: bytes) -> Message | None:
    """The message, or None if this version does not know it or it is garbled."""
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        unreadable.warn("a message of %d bytes that cannot be read is left lying: %s", len(payload), error)
        return None
