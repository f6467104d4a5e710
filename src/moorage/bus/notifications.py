"""Carrying notifications out: on our own bus, and through oslo.messaging to whatever an OpenStack cloud listens on.

On our bus a message goes to the subject `moorage.notification.TOPIC.PRIORITY`, in oslo.messaging's envelope, and may be
lost like everything there.  Through oslo.messaging it is sent until the broker has taken it.

The library's own Notifier is not used to send: it gives every message a new id, so that nobody could see that one came
twice, and it logs what the broker refused and forgets it.  Its transport is; calls to it wait, so they have a thread.
This is the one module that imports oslo_messaging, and only when an address is configured.
"""

import asyncio
import importlib
import logging
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from oslo_config import cfg

from moorage.bus import subjects
from moorage.bus.transport import Bus
from moorage.model.errors import Invalid, Unavailable

ENVELOPE_VERSION = "2.0"
CLOSE_WITHIN_S = 5.0
SEND_TRIES = 2
"""Reconnections within one try to send; the sender tries again later."""

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Message:
    """One message to one topic."""

    topic: str
    priority: str
    """Lower case: the queue is named `TOPIC.PRIORITY`."""
    body: dict[str, Any]
    context: dict[str, Any] = field(default_factory=dict)

    def envelope(self) -> bytes:
        """As `messagingv2` puts it on the wire."""
        inner = {
            **self.body,
            "_unique_id": self.body["message_id"].replace("-", ""),
            **{f"_context_{name}": value for name, value in self.context.items()},
        }
        return _encode({"oslo.version": ENVELOPE_VERSION, "oslo.message": _encode(inner).decode()})


class Sender(Protocol):
    async def send(self, messages: Sequence[Message]) -> None:
        """In order; returns when all were taken. Raises Unavailable when one was not: what came before it was."""
        ...

    async def close(self) -> None: ...


class BusSender:
    """On our own bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def send(self, messages: Sequence[Message]) -> None:
        for each in messages:
            await self._bus.publish(subjects.notification(each.topic, each.priority), each.envelope())

    async def close(self) -> None:
        """The bus is its owner's."""


class OsloSender:
    """Through oslo.messaging."""

    def __init__(self, transport_url: str, *, exchange: str, driver: str = "messagingv2") -> None:
        self._version = 2.0 if driver == "messagingv2" else 1.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="notifications")
        try:
            self.transport = _open_transport(transport_url, exchange)
        except ImportError as missing:
            raise Invalid(
                "[notifications] transport_url needs the library oslo.messaging: install moorage[notifications]",
                private=str(missing),
            ) from missing
        except ValueError:  # it names what stands where a port should be, which may be a part of the password
            raise Invalid(
                "[notifications] transport_url is no URL: in its password write / as %2F, # as %23, ? as %3F, @ as %40, : as %3A"
            ) from None
        except Exception as wrong:  # whatever the library and its drivers make of an address
            raise Invalid(f"[notifications] transport_url cannot be used: {wrong}") from wrong

    async def send(self, messages: Sequence[Message]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._send, messages)

    def _send(self, messages: Sequence[Message]) -> None:
        target_of = oslo_messaging().Target
        for each in messages:
            target = target_of(topic=f"{each.topic}.{each.priority}")
            try:
                self.transport._send_notification(
                    target, dict(each.context), dict(each.body), version=self._version, retry=SEND_TRIES
                )
            except Exception as refused:
                raise Unavailable(
                    "the message broker does not take notifications", private=f"{type(refused).__name__}: {refused}"
                ) from refused

    async def close(self) -> None:
        """A send under way ends first, or is left behind: it has a limit of its own."""
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self.transport.cleanup)
        _, late = await asyncio.wait({closing}, timeout=CLOSE_WITHIN_S)
        if late:
            logger.warning("the message broker does not answer; the connection to it is left behind")
        self._thread.shutdown(wait=False, cancel_futures=True)


def oslo_messaging() -> Any:
    """The library, imported when it is wanted; that it looks at eventlet, which it does not use here, is not said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("oslo_messaging")


def _open_transport(url: str, exchange: str) -> Any:
    library = oslo_messaging()
    library.set_transport_defaults(exchange)
    conf = cfg.ConfigOpts()
    conf([], project="moorage", default_config_files=[], default_config_dirs=[])
    return library.get_notification_transport(conf, url=url)


class AllSenders:
    """To every one of them, in turn."""

    def __init__(self, senders: Sequence[Sender]) -> None:
        self._senders = senders

    async def send(self, messages: Sequence[Message]) -> None:
        for each in self._senders:
            await each.send(messages)

    async def close(self) -> None:
        for each in self._senders:
            await each.close()
