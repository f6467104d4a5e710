"""`[notifications]` of the configuration."""

from typing import Literal

import msgspec

from moorage.model.notification import NotificationFormat, StateChanges


class Notifications(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What others are told of servers, and how; with neither `bus` nor `transport_url` nothing is told."""

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
    """Whether `update` is told of changed states: not at all, of `vm_state`, or of `vm_and_task_state`."""
    bdms_in_notifications: bool = False
    """Every versioned notification says which volumes the server has; else those alone whose senders have them at hand, as in Nova."""
    usage_audit: bool = False
    """Tell `exists` of every server when a period is over."""
    usage_audit_period: Literal["hour", "day", "month", "year"] = "month"
    publisher_host: str = ""
    """What publisher ids call this machine; empty: its name."""
    outbox_rows_max: int = 100_000
    """Of what could not be sent yet; the oldest goes."""
    outbox_age_max_s: float = 86_400.0
    retry_first_s: float = 1.0
    """How long to wait after a send that failed; twice as long after the next, up to `retry_most_s`."""
    retry_most_s: float = 60.0
    tries_max: int = 0
    """Sends of one notification before it is given up; 0: until it is too old."""

    @property
    def wanted(self) -> bool:
        return self.bus or bool(self.transport_url)
