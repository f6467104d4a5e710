"""Debts: what a host that is out of reach must still do for a server (RULES §25)."""

from enum import StrEnum

import msgspec

from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, OperationId, ProviderId, ServerId
from moorage.model.network import NicAsk


class DebtKind(StrEnum):
    UNPLUG_VOLUME = "unplug_volume"
    """The guest may have a volume that its record does not list; the volume stays attached to the server meanwhile."""
    UNPLUG_INTERFACE = "unplug_interface"
    """The guest may have an interface that its record does not list; port, address and bandwidth stay the server's."""
    SWITCH_ON = "switch_on"
    """The guest may be off, because an operation that was undone switched it off."""
    SWITCH_OFF = "switch_off"
    """The guest may be on, because an operation that was undone switched it on."""
    DROP_COPY = "drop_copy"
    """The host may have a copy of the guest's disk, made for an image that goes."""
    DESTROY = "destroy"
    """The host, the `thing`, may have a guest of a server that was deleted, not built, or goes on elsewhere. What a deleted
    or unbuilt server's guest may use stays the server's until it is destroyed."""


class Debt(msgspec.Struct, frozen=True):
    """One row: written in the commit that goes on without the host, removed in the commit that ends its payment."""

    server: ServerId
    operation: OperationId
    """The operation that went on without the host."""
    kind: DebtKind
    thing: str
    """The volume, port or image that it concerns, or the host of a guest that is left; empty: the guest."""
    cell: CellId
    host: str
    turn: FencingToken
    """The newest command that the host may have obeyed; what pays is newer."""
    reason: str
    since: int
    """Microseconds since 1970, UTC."""
    nic: NicAsk | None = None
    """Of an interface: how its port is released."""
    held: tuple[tuple[ProviderId, str, int], ...] = ()
    """Of an interface: what it holds of the server's claim."""
    function_of: tuple[str, ...] = ()
    """Of an interface that is a virtual function: the ids by which the claim knows its port."""
    tries: int = 0
    """Payments that failed."""
    next_at: int = 0
    """Microseconds since 1970, UTC: no payment is begun before."""
    answered_at: int | None = None
    """When the host last answered that it cannot; None: it was not reached. Until then the server is given nothing new."""
    problem: str = ""
    """Why the last payment failed."""
