"""The optional power of a driver that wires ports by their descriptions."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from moorage.model.port_description import AddressSetPart, PortDescription, Present


@runtime_checkable
class PortDescribed(Protocol):
    """Keeps ports closed of which it was told nothing."""

    def describe_ports(
        self, ports: Sequence[PortDescription], sets: Sequence[AddressSetPart], present: Present | None, version: int
    ) -> None:
        """Take what is newer than what it has, and put it into effect soon. Returns at once.

        `present`: all that there is; older things that it does not name go. `version`: that of `present`.
        """
        ...

    def described(self) -> str:
        """Of all that it has (`port_description.held_digest`)."""
        ...
