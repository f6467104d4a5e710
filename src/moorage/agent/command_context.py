"""What every verb needs: the driver's optional power, and what the command says beside its verb."""

from typing import TypeAlias, TypeVar

import msgspec

from moorage.bus.command_messages import Command
from moorage.drivers.driver import Driver
from moorage.model.errors import HostFailed

PowerT = TypeVar("PowerT")
PayloadT = TypeVar("PayloadT", bound=msgspec.Struct)

Answer: TypeAlias = tuple[msgspec.Struct, bool | None]
"""What goes back, and whether the guest is meant to be on from now (None: as before)."""


def power_of(driver: Driver, kind: type[PowerT]) -> PowerT:
    """The driver, if it can do that. Raises HostFailed (`not_supported`)."""
    if not isinstance(driver, kind):
        raise HostFailed("this host cannot do that", private=f"no {kind.__name__}", code="not_supported")
    return driver


def payload_of(command: Command, kind: type[PayloadT]) -> PayloadT:
    """What the command says beside its verb."""
    return msgspec.json.decode(command.payload, type=kind)
