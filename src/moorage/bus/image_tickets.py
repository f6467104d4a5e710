"""Says which images' data an order needs, so that its tickets can be signed (`model/image_ticket.py`)."""

import msgspec

from moorage.bus.guest_payloads import CacheImage, OfSnapshot, RebuildGuest, StartGuest
from moorage.bus.move_payloads import TakeGuest
from moorage.bus.rescue_messages import RescueGuest
from moorage.bus.verbs import Verb
from moorage.model.guest import GuestSpec
from moorage.model.image_ticket import ImageTicket

KERNELS = ("kernel_id", "ramdisk_id")
"""Properties of a rescue image that name its kernel and its RAM disk; only those that its caller sees come here."""


def needed_by(verb: Verb, payload: msgspec.Struct | None) -> tuple[ImageTicket, ...]:
    """Return the tickets of an order, not signed yet."""
    match payload:
        case StartGuest() | RebuildGuest() | TakeGuest():
            return _of_guest(payload.guest)
        case RescueGuest():
            named = (payload.rescue.properties.get(each, "") for each in KERNELS)
            return tuple(ImageTicket(each, "read") for each in (payload.rescue.image, *named) if each)
        case CacheImage():
            return (ImageTicket(payload.image, "read"),)
        case OfSnapshot() if verb == Verb.UPLOAD_SNAPSHOT:
            return (ImageTicket(payload.image, "fill"),)
        case _:
            return ()


def _of_guest(spec: GuestSpec) -> tuple[ImageTicket, ...]:
    return tuple(ImageTicket(str(each), "read") for each in (spec.image, spec.kernel, spec.ramdisk) if each)
