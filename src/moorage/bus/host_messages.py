"""Messages of a host about itself, and its cell's answers: heartbeats, reports, and which servers belong there."""

from typing import Any

import msgspec

from moorage.bus.command_messages import ResultKey
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import PhysicalFunction, PowerState, ResourceInventory
from moorage.model.guest_devices import GuestDevices
from moorage.model.ids import CellId, ServerId

MAX_LISTED = 5_000
"""Limit of servers in one message, and of acknowledged results: about half of the megabyte that a NATS server allows."""
DEVICES_LISTED_MAX = 2_500
"""Limit of volumes and interfaces in one report: with 150 bytes each, less than the other half of that megabyte."""


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """A host's sign of life.  Receivers keep it in memory, never in a database."""

    host: str
    cell: CellId
    boot: str
    """The agent's incarnation id, new at each start: it distinguishes two agents with one host name."""
    beat: int = 0
    guests: int = 0
    digest: str = ""
    """Digest of all guests' power states (`model.guest.digest`): a receiver with another one asks with `ReportWanted`."""
    changed: dict[ServerId, PowerState] = {}
    """Power states that changed since the last heartbeat; a destroyed guest is NOSTATE."""
    untaken: tuple[ResultKey, ...] = ()
    """Some of the oldest results that are not acknowledged."""
    leaving: bool = False
    """The agent stops now: another one may speak for this host at once."""
    takes_questions: bool = False
    """It hears questions where API and console processes may ask (`subjects.ask_host`); False: its release, or its broker, does not
    let it, and questions come with the orders."""
    described: str = ""
    """Of the descriptions of ports that it has (`port_description.held_digest`); empty: it takes none, or its release does not."""
    devices: str = ""
    """Digest of all guests' volumes and interfaces (`model.guest_devices.devices_digest`); empty: the host says nothing of them."""


class HostReport(msgspec.Struct, frozen=True, tag="host_report"):
    """A host's full report about itself: sent when it starts, when something changed, and on request."""

    host: str
    cell: CellId
    host_id: str
    boot: str
    level: int = 3
    """The agent's protocol level: level 3 gets bound ports, and has no network client."""
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
    """Number of all guests, if there are more than `MAX_LISTED`; None: the sender's release does not say."""
    set_aside: tuple[str, ...] = ()
    """Records of guests that the host could not read and has moved aside."""
    up_since: int = 0
    """Since when the machine runs, µs by its own clock; 0: the sender's release does not say."""
    replaces: tuple[str, ...] | None = None
    """The agents that ran here before, as in `AgentReturned`; None: it does not say."""
    takes_descriptions: bool = False
    """It wires ports by what it is told of them (`PortDescriptions`), and keeps those closed of which it was told nothing."""
    turns: dict[ServerId, int] = {}
    """Server → the operation of the last command that this host obeyed, with a guest here or not; some of them, if there are very many."""
    not_wired: tuple[str, ...] = ()
    """What of the descriptions it could not put into effect, some of it, for an operator; such a port lets less pass than it may."""
    devices: dict[ServerId, GuestDevices] = {}
    """The volumes and interfaces of guests.  A guest that is not in it is one of which the host says nothing: its release does not, or
    `DEVICES_LISTED_MAX` was reached; a later report names others then."""
    devices_digest: str = ""
    """As in `Heartbeat`, at the moment of the report."""


class ReportWanted(msgspec.Struct, frozen=True, tag="report_wanted"):
    """To a host: send your whole report."""

    host: str = ""
    knows_senders: bool = False
    """The sender hears what hosts say under their names (`bus/sender_checks.py`); False: its release does not."""


class AgentReturned(msgspec.Struct, frozen=True, tag="agent_returned"):
    """A host has started, or had no contact for a while, and asks its cell which servers belong on it.

    It executes no command before the answer (RULES §10, §23).
    """

    host: str
    cell: CellId
    boot: str
    """New with each question, and repeated in the answer, so that an answer to an earlier question is recognised."""
    guests: tuple[ServerId, ...] = ()
    """Every server with a guest here, or with a turn that is remembered here: the answer must cover each of them."""
    home: bool = False
    """Whether the host has been accepted already, and asks only about servers whose turns it remembers."""
    agent: str = ""
    """The `boot` of its heartbeats and reports; empty: the sender's release uses that as the `boot` of its question."""
    replaces: tuple[str, ...] | None = None
    """The agents that ran here before, from the journal on this machine's disk, newest first; None: not known."""


class AgentRefused(msgspec.Struct, frozen=True, tag="agent_refused"):
    """To an agent: another agent runs for this host already.  It executes and reports nothing until a later question is answered."""

    host: str
    agent: str
    """The `boot` of the refused agent's heartbeats, because both agents receive this message."""
    why: str = ""


class ServerTurn(msgspec.Struct, frozen=True):
    """What a cell knows about one server on one host."""

    server: ServerId
    turn: FencingToken | None = None
    """The highest turn known; None if there is none."""
    here: bool = True
    """Whether it belongs on this host."""
    running: bool = True
    """Whether its user wants it to run."""
    gone: bool = False
    """Whether it is deleted for ever: no turn is needed to destroy it, and none must be remembered."""
    over: int | None = None
    """All operations of the server up to this one have ended and left it here, so their starts count.  None: not known."""


class ServersOfHost(msgspec.Struct, frozen=True, tag="servers_of_host"):
    """The cell's answer to `AgentReturned`; it is also sent without a question, to a host that was silent for a while."""

    boot: str
    """That of the question; an answer to an earlier question is ignored.  Empty: there was no question."""
    servers: tuple[ServerTurn, ...] = ()
    knows_senders: bool = False
    """The sender hears what hosts say under their names (`bus/sender_checks.py`); False: its release does not."""
    newest: dict[ServerId, int] | None = None
    """The number of the last operation of those servers that have had more than `NOT_TOLD_UP_TO`; None: the sender's release does
    not say."""


NOT_TOLD_UP_TO = 500
"""Servers with at most so many operations stand not in `ServersOfHost.newest`, which so stays short."""


class TurnReset(msgspec.Struct, frozen=True, tag="turn_reset"):
    """To a host: an operator takes back a turn that no conductor gave.  It counts only while that is the host's turn."""

    host: str
    server: ServerId
    forged: FencingToken
    turn: FencingToken
    """The server's turn from now on: what the region knows."""


class TurnOfServer(msgspec.Struct, frozen=True):
    """The answer to `server_turn`."""

    turn: FencingToken | None = None
    """The highest turn that the host remembers; None: it knows none."""
