"""An optional ability: a guest's console as a socket, to which a console proxy connects."""

from typing import Protocol, runtime_checkable

from moorage.model.console import ConsoleSocket
from moorage.model.ids import ServerId


@runtime_checkable
class ConsoleGiver(Protocol):
    async def get_console(self, server: ServerId, kind: str) -> ConsoleSocket:
        """Return the address of the console of this kind (`ConsoleType`).  It is the same until the guest is started again.

        Raises HostFailed: `console_unavailable` for a kind that the guest does not have, `guest_not_running`, `guest_not_found`.
        """
        ...
