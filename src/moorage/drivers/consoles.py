"""An optional power: the console of a guest as a socket, which a console proxy connects to."""

from typing import Protocol, runtime_checkable

from moorage.model.console import ConsoleSocket
from moorage.model.ids import ServerId


@runtime_checkable
class ConsoleGiver(Protocol):
    async def get_console(self, server: ServerId, kind: str) -> ConsoleSocket:
        """Where the console of this kind (`ConsoleType`) listens.  Asked again for the same start of the guest, it is the same place.

        Raises HostFailed: `console_unavailable` for a kind that the guest has not, `guest_not_running`, `guest_not_found`.
        """
        ...
