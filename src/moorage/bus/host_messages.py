"""Messages of a host about itself, and what its cell answers: heartbeats, reports, and which servers belong there."""

from typing import Any

import msgspec

from moorage.bus.command_messages import ResultKey
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import PhysicalFunction, PowerState, ResourceInventory
from moorage.model.ids import CellId, ServerId

MAX_LISTED = 5_000
"""Servers in one message, and results acknowledged in one: about half of the megabyte that a NATS server lets through."""


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
    described: str = ""
    """Of the descriptions of ports that it has (`port_description.held_digest`); empty: it takes none, or its release does not."""


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
    takes_descriptions: bool = False
    """It wires ports by what it is told of them (`PortDescriptions`), and keeps those closed of which it was told nothing."""
    not_wired: tuple[str, ...] = ()
    """What of the descriptions it could not put into effect, some of it, for an operator; such a port lets less pass than it may."""


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
