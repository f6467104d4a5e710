"""Payloads of the verbs that rescue a guest and end the rescue (`messages.PAYLOADS`)."""

import msgspec

from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.rescue import RescueSpec


class RescueGuest(msgspec.Struct, frozen=True):
    """Boot the guest from a rescue image, with its own disks attached."""

    rescue: RescueSpec
    drive: InstanceMetadata | None = None
    """The contents of its config drive during the rescue; None: those of its last rescue, if there was one."""


class UnrescueGuest(msgspec.Struct, frozen=True):
    power_on: bool = True
    """Whether the guest is started after the rescue; it boots from its own disk again in any case."""
