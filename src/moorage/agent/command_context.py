"""Helpers of all verbs: a driver's optional abilities, and the payload of a command."""

from typing import TypeAlias, TypeVar

import msgspec

from moorage.bus.command_messages import Command
from moorage.drivers.driver import Driver
from moorage.model.errors import HostFailed
from moorage.model.parsed_messages import refuse_malformed

PowerT = TypeVar("PowerT")
PayloadT = TypeVar("PayloadT", bound=msgspec.Struct)

Answer: TypeAlias = tuple[msgspec.Struct, bool | None]
"""The verb's answer, and whether the guest shall run from now on (None: as before)."""


def power_of(driver: Driver, kind: type[PowerT]) -> PowerT:
    """Return the driver if it has this ability. Raises HostFailed (`not_supported`) if it has not."""
    if not isinstance(driver, kind):
        raise HostFailed("this host cannot do that", private=f"no {kind.__name__}", code="not_supported")
    return driver


def payload_of(command: Command, kind: type[PayloadT]) -> PayloadT:
    """Decode the command's payload. Raises HostFailed for words in it that are not what they claim to be (parsed_messages.py)."""
    payload = msgspec.json.decode(command.payload, type=kind)
    refuse_malformed(payload)
    return payload
