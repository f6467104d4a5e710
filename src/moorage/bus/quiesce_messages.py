"""What travels with the verbs that make a guest still and let it go (`messages.PAYLOADS`)."""

import msgspec


class FreezeGuest(msgspec.Struct, frozen=True):
    """Make the guest's file systems still, for this, and for so long at most."""

    why: str
    for_s: float


class ThawGuest(msgspec.Struct, frozen=True):
    """The guest may write again, if it was made still for this."""

    why: str
