"""Builds the notifications of one process from its configuration: the outbox writer and the transports."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from moorage.bus.notifications import AllSenders, BusSender, OsloSender, Sender
from moorage.bus.transport import Bus
from moorage.conductor.reconcilers.notifications import NotificationRelay, OutboxLimits
from moorage.main.config import Config
from moorage.main.config_notifications import Notifications as NotificationsConfig
from moorage.model.clock import Clock
from moorage.operations.notifications.messages import Wording
from moorage.operations.notifications.outbox_writer import OutboxWriter
from moorage.sql import Database


@dataclass
class NotificationParts:
    """The parts of one process: its writer fills the outbox; only a conductor sends notifications."""

    notification_writer: OutboxWriter
    wanted: NotificationsConfig
    wording: Wording
    bus: Bus
    sender: Sender | None = None

    def relay(self, region: Database, cells: Sequence[Database], clock: Clock) -> NotificationRelay:
        """Build the relay of a conductor, which sends notifications. Raises Invalid when the transport's address cannot be used."""
        wanted = self.wanted
        senders: list[Sender] = []
        if wanted.transport_url:
            senders.append(OsloSender(wanted.transport_url, exchange=wanted.control_exchange, driver=wanted.driver))
        if wanted.bus:
            senders.append(BusSender(self.bus))
        self.sender = AllSenders(senders)
        limits = OutboxLimits(
            wanted.outbox_rows_max,
            wanted.outbox_age_max_s,
            wanted.retry_first_s,
            wanted.retry_most_s,
            wanted.tries_max,
        )
        return NotificationRelay(region, cells, self.sender, self.wording, clock, limits)

    async def close(self) -> None:
        if self.sender is not None:
            await self.sender.close()


def open_notifications(config: Config, bus: Bus) -> NotificationParts | None:
    """Open notifications as configured; None: they are off."""
    wanted = config.notifications
    if not wanted.wanted:
        return None
    return NotificationParts(
        OutboxWriter(
            wanted.publisher_host or platform.node(), wanted.notify_on_state_change, wanted.usage_audit_period
        ),
        wanted,
        Wording(
            wanted.notification_format,
            wanted.topics,
            wanted.versioned_notifications_topics,
            (config.image.url or config.api.image.url).rstrip("/"),
            wanted.bdms_in_notifications,
        ),
        bus,
    )
