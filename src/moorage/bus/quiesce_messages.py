"""Payloads of the verbs that quiesce and thaw a guest (`messages.PAYLOADS`)."""

import msgspec


class FreezeGuest(msgspec.Struct, frozen=True):
    """Quiesce the guest's file systems for this purpose, and at most for this time."""

    why: str
    for_s: float


class ThawGuest(msgspec.Struct, frozen=True):
    """Let the guest write again, if it was quiesced for this purpose."""

    why: str
