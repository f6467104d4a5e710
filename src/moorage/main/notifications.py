"""Config → who tells others of servers, and through what."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from moorage.bus.carrier import Bus
from moorage.bus.notifications import AllSenders, BusSender, OsloSender, Sender
from moorage.conductor.reconcilers.notifications import Notifications, OutboxLimits
from moorage.main.config import Config
from moorage.model.clock import Clock
from moorage.model.ids import ConductorId
from moorage.operations.notifications.herald import Herald
from moorage.operations.notifications.messages import Wording
from moorage.sql import Database


@dataclass(frozen=True)
class Told:
    """What one process has of it: the herald writes, the sender sends."""

    herald: Herald
    sender: Sender
    wording: Wording
    limits: OutboxLimits

    def relay(self, me: ConductorId, region: Database, cells: Sequence[Database], clock: Clock) -> Notifications:
        return Notifications(me, region, cells, self.sender, self.wording, clock, self.limits)


def open_notifications(config: Config, bus: Bus) -> Told | None:
    """None when nobody wants to be told. Raises Invalid when the address cannot be used."""
    wanted = config.notifications
    if not wanted.wanted:
        return None
    senders: list[Sender] = []
    if wanted.transport_url:
        senders.append(OsloSender(wanted.transport_url, exchange=wanted.control_exchange, driver=wanted.driver))
    if wanted.bus:
        senders.append(BusSender(bus))
    return Told(
        Herald(wanted.publisher_host or platform.node(), wanted.notify_on_state_change),
        AllSenders(senders),
        Wording(
            wanted.notification_format,
            wanted.topics,
            wanted.versioned_notifications_topics,
            (config.image.url or config.api.image.url).rstrip("/"),
        ),
        OutboxLimits(
            wanted.outbox_rows_max,
            wanted.outbox_age_max_s,
            wanted.retry_first_s,
            wanted.retry_most_s,
            wanted.tries_max,
        ),
    )
