"""An optional ability: to quiesce a guest's file systems for a moment (`driver.py` has the rules for all verbs)."""

from typing import Protocol, runtime_checkable

from moorage.model.guest import PowerState
from moorage.model.ids import ServerId


@runtime_checkable
class Freezer(Protocol):
    """Quiesces guests through the agent in the guest.  The caller may die, so a guest is never quiesced for longer than requested."""

    async def freeze_guest(self, server: ServerId, why: str, for_s: float) -> PowerState:
        """Quiesce the guest until it is thawed for the same `why`, at most `for_s` seconds; a repeat changes nothing.

        Raises HostFailed: `guest_not_running`, `no_guest_agent`, `already_frozen` for another purpose.
        """
        ...

    async def thaw_guest(self, server: ServerId, why: str) -> PowerState:
        """Let the guest write again, if it was quiesced for this purpose; a repeat has the same result as the first call.

        Raises HostFailed: `not_frozen` when it was not quiesced until now, for example because the time was over.
        """
        ...
