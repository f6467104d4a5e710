"""The options of an agent."""

from dataclasses import dataclass

from moorage.agent.legacy_ports import Plumbing
from moorage.model.image_ticket import TicketBox


@dataclass(frozen=True)
class AgentOptions:
    """The pace of an agent, and what it does besides for older levels."""

    plumbing: Plumbing | None = None
    """A host of level 1 or 2 sees to ports itself."""
    beat_s: float = 5.0
    silence_s: float = 30.0
    """After so long without a beat others take the host for dead (`host_silence_s`)."""
    beats_per_look: int = 12
    tickets: TicketBox | None = None
    """Takes the tickets for images that orders bring; None: this host has an account at the image service, or no images."""
    at_once: int = 16
    """Commands of different servers."""
    earlier: bool = True
    """Conductors of release 0.1.0 may be there (`Outgoing`)."""


DEFAULTS = AgentOptions()
