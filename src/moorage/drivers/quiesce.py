"""An optional power: to make a guest's file systems still for a moment (see `driver.py` for what all verbs promise)."""

from typing import Protocol, runtime_checkable

from moorage.model.guest import PowerState
from moorage.model.ids import ServerId


@runtime_checkable
class Freezer(Protocol):
    """Through the agent in the guest.  Whoever asked may die, so a guest is never still for longer than was asked for."""

    async def freeze_guest(self, server: ServerId, why: str, for_s: float) -> PowerState:
        """Still until it is thawed for the same `why`, at most so long; a repeat changes nothing.

        Raises HostFailed: `guest_not_running`, `no_guest_agent`, `already_frozen` for something else.
        """
        ...

    async def thaw_guest(self, server: ServerId, why: str) -> PowerState:
        """The guest writes again, if it was still for this; a repeat is answered as the first was.

        Raises HostFailed: `not_frozen` when it was not still until now, for example because the time was over.
        """
        ...
