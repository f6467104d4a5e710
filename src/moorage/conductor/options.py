"""The options of a conductor that executes operations."""

import dataclasses
from collections.abc import Awaitable, Callable

from moorage.conductor.bulkheads import Places
from moorage.model.ids import ConductorId
from moorage.sql import Database
from moorage.store.region import conductors

LOOK_EVERY_S = 1.0
"""How often the table of operations is looked into for what no hint announced."""


@dataclasses.dataclass(frozen=True)
class ConductorOptions:
    """How a conductor works: its lease, its pace, and how many operations it executes at once."""

    alone: bool = False
    """This process holds the data directory: no other conductor can be alive."""
    lease_s: float = conductors.LEASE_S
    beat_s: float = conductors.BEAT_S
    look_every_s: float = LOOK_EVERY_S
    places: Places = dataclasses.field(default_factory=Places)
    renamed: Callable[[ConductorId], Awaitable[None]] | None = None
    """Is called with the new id when a lost lease was taken again."""
    lease_on: Database | None = None
    """The connections on which the lease is renewed; without it, those of the region."""


DEFAULTS = ConductorOptions()
