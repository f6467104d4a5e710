"""Tickets with which a host uses the data of one image: to read it, or to fill it while it waits for its data.

A conductor signs a ticket with each order that needs an image, and the image service checks it; both have the secret, and no host has.
So who takes a host reads what that host was lately told to use, and nothing else.  A ticket counts when a request begins: a transfer
that has begun may take longer.
"""

import base64
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import msgspec

from moorage.model.errors import Unauthenticated

Direction: TypeAlias = Literal["read", "fill"]
HEADER = "X-Image-Ticket"
LIFE_S = 900
SKEW_S = 120
"""How far the clocks of a conductor and of the image service may be apart."""
TEXT_CHARS_MAX = 1_024
KEPT_MAX = 1_000
FORM = "moorage-image-ticket-1"


class ImageTicket(msgspec.Struct, frozen=True):
    """What a host may use; `text` is what it shows the image service, and is empty until the order is sent."""

    image: str
    direction: Direction
    text: str = ""


class Granted(msgspec.Struct, frozen=True, array_like=True):
    """The signed part."""

    form: str
    image: str
    direction: Direction
    host: str
    expires: int
    """Seconds since 1970."""


class TicketSecret:
    """Signs and checks tickets."""

    def __init__(self, secret: str, now: Callable[[], float] = time.time) -> None:
        self._secret, self._now = secret.encode(), now

    def signed(self, host: str, tickets: Iterable[ImageTicket]) -> tuple[ImageTicket, ...]:
        """Sign the tickets of an order to a host, from now."""
        expires = int(self._now()) + LIFE_S
        return tuple(
            msgspec.structs.replace(each, text=self._text(Granted(FORM, each.image, each.direction, host, expires)))
            for each in tickets
        )

    def granted(self, text: str) -> Granted:
        """Return what a ticket grants. Raises Unauthenticated for one that is forged, damaged or too old."""
        body, _, signature = text.partition(".")
        if len(text) > TEXT_CHARS_MAX or not hmac.compare_digest(self._signature(body).encode(), signature.encode()):
            raise Unauthenticated("The image ticket is not valid.")
        try:
            granted = msgspec.json.decode(base64.urlsafe_b64decode(body), type=Granted)
        except (msgspec.MsgspecError, ValueError) as damaged:
            raise Unauthenticated("The image ticket is not valid.", private=str(damaged)) from damaged
        earliest, latest = granted.expires - LIFE_S - SKEW_S, granted.expires + SKEW_S
        if granted.form != FORM or not earliest <= self._now() <= latest:
            raise Unauthenticated("The image ticket has expired.", private=f"{granted.host}: {granted.image}")
        return granted

    def _text(self, granted: Granted) -> str:
        body = base64.urlsafe_b64encode(msgspec.json.encode(granted)).decode()
        return f"{body}.{self._signature(body)}"

    def _signature(self, body: str) -> str:
        return hmac.new(self._secret, body.encode(), hashlib.sha256).hexdigest()


class TicketBox:
    """The newest tickets of one host's orders. An order that comes again brings a newer one, so a host that waits for the image
    service has one that counts.
    """

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[str, Direction], str] = OrderedDict()

    def keep(self, tickets: Iterable[ImageTicket]) -> None:
        for each in tickets:
            self._texts.pop((each.image, each.direction), None)
            self._texts[each.image, each.direction] = each.text
        while len(self._texts) > KEPT_MAX:
            self._texts.popitem(last=False)

    def find(self, image: str, direction: Direction) -> str | None:
        """Return the newest ticket; None: no order brought one."""
        return self._texts.get((image, direction))
