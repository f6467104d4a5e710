"""A server that is somewhere, as the scheduler is asked for it when its host fails."""

import msgspec

from moorage.model.ids import HostId, ProviderId
from moorage.model.world import Ask


class Resident(msgspec.Struct, frozen=True):
    name: str
    """Its id, or in an invented fleet its name."""
    host: HostId
    segments: tuple[ProviderId, ...] = ()
    """Those that its addresses are of."""
    asks: tuple[Ask, ...] = ()
    """What an evacuation of it asks, one after the other."""
