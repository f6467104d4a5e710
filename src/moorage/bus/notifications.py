"""Sends notifications: on our own bus, and through oslo.messaging to the consumers of an OpenStack cloud.

On our bus a message goes to the subject `moorage.notification.TOPIC.PRIORITY`, in oslo.messaging's envelope, and may be
lost like every message there.  Through oslo.messaging it is sent until the broker has accepted it.

The library's own Notifier is not used: it gives every message a new id, so that receivers could not recognise a repeat, and it only
logs a message that the broker refused.  Its transport is used; calls to it block, so they run in a thread.
This is the only module that imports oslo_messaging, and only if an address is configured.
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
        """Return the message in the envelope of `messagingv2`."""
        inner = {
            **self.body,
            "_unique_id": self.body["message_id"].replace("-", ""),
            **{f"_context_{name}": value for name, value in self.context.items()},
        }
        return _encode({"oslo.version": ENVELOPE_VERSION, "oslo.message": _encode(inner).decode()})


class Sender(Protocol):
    async def send(self, messages: Sequence[Message]) -> None:
        """Send messages in order; returns when all were accepted. Raises Unavailable when one was not; those before it were."""
        ...

    async def close(self) -> None: ...


class BusSender:
    """Sends on our own bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def send(self, messages: Sequence[Message]) -> None:
        for each in messages:
            await self._bus.publish(subjects.notification(each.topic, each.priority), each.envelope())

    async def close(self) -> None:
        """Do nothing: the bus belongs to another object."""


class OsloSender:
    """Sends through oslo.messaging."""

    def __init__(self, transport_url: str, *, exchange: str, driver: str = "messagingv2") -> None:
        self._version = 2.0 if driver == "messagingv2" else 1.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="notifications")
        try:
            self.transport = _open_transport(transport_url, exchange)
        except ImportError as missing:
            raise Invalid(
                "[notifications] transport_url needs the library oslo.messaging: "
                "pip install -c constraints.txt -e '.[notifications]' in the directory of Moorage's repository",
                private=str(missing),
            ) from missing
        except ValueError:  # the error quotes the text in place of the port, which may be a part of the password
            raise Invalid(
                "[notifications] transport_url is no URL: in its password write / as %2F, # as %23, ? as %3F, @ as %40, : as %3A"
            ) from None
        except Exception as wrong:  # any error of the library and its drivers about an address
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
        """Close the transport. A send under way ends first, or is abandoned: it has its own time limit."""
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self.transport.cleanup)
        _, late = await asyncio.wait({closing}, timeout=CLOSE_WITHIN_S)
        if late:
            logger.warning("the message broker does not answer; the connection to it is left behind")
        self._thread.shutdown(wait=False, cancel_futures=True)


def oslo_messaging() -> Any:
    """Import the library when it is needed, without its warning about eventlet, which is not used here."""
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
    """Sends with each of several senders, one after another."""

    def __init__(self, senders: Sequence[Sender]) -> None:
        self._senders = senders

    async def send(self, messages: Sequence[Message]) -> None:
        for each in self._senders:
            await each.send(messages)

    async def close(self) -> None:
        for each in self._senders:
            await each.close()
