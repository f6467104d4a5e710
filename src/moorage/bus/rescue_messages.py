"""What travels with the verbs that rescue a guest and bring it back (`messages.PAYLOADS`)."""

import msgspec

from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.rescue import RescueSpec


class RescueGuest(msgspec.Struct, frozen=True):
    """Boot the guest from a rescue image, its own disks beside it."""

    rescue: RescueSpec
    drive: InstanceMetadata | None = None
    """What its config drive says for as long as it is rescued; None: what that of its last rescue said, if there was one."""


class UnrescueGuest(msgspec.Struct, frozen=True):
    power_on: bool = True
    """False: its own disk is the one it boots from again, and it is off."""
