"""A server on a host, with the asks of its evacuation, for questions about failures."""

import msgspec

from moorage.model.ids import HostId, ProviderId
from moorage.model.world import Ask


class Resident(msgspec.Struct, frozen=True):
    name: str
    """The server's id; in an invented fleet its name."""
    host: HostId
    segments: tuple[ProviderId, ...] = ()
    """The segments of its addresses."""
    asks: tuple[Ask, ...] = ()
    """The asks of its evacuation, in the order in which they are tried."""
