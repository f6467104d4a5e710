"""Proof that a host's guest cannot run any more: without a proof, no guest is started elsewhere (RULES §11)."""

from enum import StrEnum
from typing import Protocol

import msgspec


class FencedBy(StrEnum):
    """The source of a proof."""

    HOST = "host"
    """Its agent answered: the guest is off, or there is none."""
    PLUGIN = "plug-in"
    """The fence plug-in confirmed that the machine has no power."""
    OPERATOR = "operator"
    """An operator forced the host down, and so asserts that no guest runs there."""


class FenceProof(msgspec.Struct, frozen=True):
    """One proof; it is kept in the journal of the operation that relied on it."""

    host: str
    by: FencedBy
    at: int
    """When it was given, µs."""
    who: str = ""
    """The user who forced the host down, or the plug-in; empty: unknown."""


class FencePlugin(Protocol):
    """Tells whether machines have power: by a BMC, a switched outlet, or the hypervisor of a nested cloud."""

    @property
    def name(self) -> str: ...

    async def is_off(self, host: str) -> bool:
        """Tell whether this host's machine certainly has no power; False if this cannot be found out."""
        ...

    def can_switch_off(self, host: str) -> bool:
        """Tell whether it may switch this host's machine off for an evacuation."""
        ...

    @property
    def off_within_s(self) -> float:
        """How long switching off may take, in seconds."""
        ...

    async def switch_off(self, host: str) -> bool:
        """Switch the machine off, even if guests run there; tell whether it certainly has no power now."""
        ...
