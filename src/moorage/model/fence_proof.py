"""Proof that a host's guest cannot run any more: without one, none is started elsewhere (RULES §11)."""

from enum import StrEnum
from typing import Protocol

import msgspec


class FencedBy(StrEnum):
    """Who says so."""

    HOST = "host"
    """Its agent answered: the guest is off, or there is none."""
    PLUGIN = "plug-in"
    """The fence plug-in confirmed that the machine has no power."""
    OPERATOR = "operator"
    """An operator forced the host down, which asserts it."""


class FenceProof(msgspec.Struct, frozen=True):
    """Kept in the journal of the operation that relied on it."""

    host: str
    by: FencedBy
    at: int
    """When it was said, µs."""
    who: str = ""
    """The user who forced the host down, or the plug-in; empty: unknown."""


class FencePlugin(Protocol):
    """What knows whether machines have power: a BMC, a switched outlet, the hypervisor of a nested cloud."""

    @property
    def name(self) -> str: ...

    async def is_off(self, host: str) -> bool:
        """Whether this host's machine has certainly no power.  What cannot be asked, or is not sure, is False."""
        ...

    def can_switch_off(self, host: str) -> bool:
        """Whether it may switch this host's machine off, when a server is evacuated from it."""
        ...

    @property
    def off_within_s(self) -> float:
        """How long that may take."""
        ...

    async def switch_off(self, host: str) -> bool:
        """Switch it off, whatever runs there; whether it has certainly no power now."""
        ...
