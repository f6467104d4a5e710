"""`[notifications]` of the configuration."""

from typing import Literal

import msgspec

from moorage.model.notification import NotificationFormat, StateChanges


class Notifications(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Notifications about servers, and how they are sent; with neither `bus` nor `transport_url` none are sent."""

    bus: bool = False
    """Publish on our own bus, below `moorage.notification`."""
    transport_url: str = ""
    """Send through oslo.messaging: `rabbit://user:password@host:5672/`."""
    driver: Literal["messagingv2", "messaging"] = "messagingv2"
    """With or without oslo.messaging's envelope."""
    control_exchange: str = "nova"
    """Nova's exchange, on which Ceilometer listens."""
    notification_format: NotificationFormat = "unversioned"
    topics: tuple[str, ...] = ("notifications",)
    """Of the unversioned format."""
    versioned_notifications_topics: tuple[str, ...] = ("versioned_notifications",)
    notify_on_state_change: StateChanges = ""
    """Which changes of state cause an `update` notification: none, those of `vm_state`, or of `vm_and_task_state`."""
    bdms_in_notifications: bool = False
    """Whether every versioned notification lists the server's volumes; else only those whose sender has read them anyway, as in Nova."""
    usage_audit: bool = False
    """Send `exists` for every server at the end of each audit period."""
    usage_audit_period: Literal["hour", "day", "month", "year"] = "month"
    publisher_host: str = ""
    """Name of this machine in publisher ids; empty: its host name."""
    outbox_rows_max: int = 100_000
    """Notifications that wait to be sent, at most; above that the oldest is dropped."""
    outbox_age_max_s: float = 86_400.0
    retry_first_s: float = 1.0
    """How long to wait after a send that failed; twice as long after the next, up to `retry_most_s`."""
    retry_most_s: float = 60.0
    tries_max: int = 0
    """Sends of one notification before it is given up; 0: until it is too old."""

    @property
    def wanted(self) -> bool:
        return self.bus or bool(self.transport_url)
