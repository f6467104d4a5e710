"""Who listens to notifications, through the real oslo.messaging, as Ceilometer does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from oslo_config import cfg

from moorage.bus.notifications import oslo_messaging


@dataclass(frozen=True)
class ReceivedNotification:
    """One notification as a listener's endpoint gets it."""

    priority: str
    context: dict[str, Any]
    publisher_id: str
    event_type: str
    payload: dict[str, Any]
    message_id: str


@dataclass
class NotificationListener:
    heard: list[ReceivedNotification] = field(default_factory=list)
    refusals: int = 0
    """So many more are given back to the queue first."""
    _lock: Lock = field(default_factory=Lock)

    def types(self, instance: str | None = None) -> list[str]:
        """The received event types, in order; of one server, or of all."""
        return [each.event_type for each in self.heard if instance is None or instance in id_of(each.payload)]

    def _keep(self, priority: str, ctxt: Any, publisher: str, event_type: str, payload: Any, metadata: Any) -> Any:
        with self._lock:
            if self.refusals > 0:
                self.refusals -= 1
                return "requeue"
            kept = ReceivedNotification(priority, dict(ctxt), publisher, event_type, payload, metadata["message_id"])
            self.heard.append(kept)
        return "handled"

    def info(self, ctxt: Any, publisher: str, event_type: str, payload: Any, metadata: Any) -> Any:
        return self._keep("info", ctxt, publisher, event_type, payload, metadata)

    def error(self, ctxt: Any, publisher: str, event_type: str, payload: Any, metadata: Any) -> Any:
        return self._keep("error", ctxt, publisher, event_type, payload, metadata)


def id_of(payload: dict[str, Any]) -> str:
    """The server's, in either format."""
    found = payload.get("instance_id") or payload.get("nova_object.data", {}).get("uuid")
    return str(found)


@contextmanager
def listening(url: str, *topics: str, exchange: str = "nova") -> Iterator[NotificationListener]:
    """A listener on these topics, in threads of its own."""
    library = oslo_messaging()
    conf = cfg.ConfigOpts()
    conf([], project="listener", default_config_files=[], default_config_dirs=[])
    library.set_transport_defaults(exchange)
    transport = library.get_notification_transport(conf, url=url)
    listener = NotificationListener()
    targets = [library.Target(exchange=exchange, topic=topic) for topic in topics]
    server = library.get_notification_listener(transport, targets, [listener], executor="threading", allow_requeue=True)
    server.start()
    try:
        yield listener
    finally:
        server.stop()
        server.wait()
        transport.cleanup()
