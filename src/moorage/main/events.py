"""What the embedded network service says has happened to ports, put where a real one's events go: into the inbox."""

import time
from typing import Any

from moorage.main.region import Region
from moorage.model.ids import ServerId
from moorage.operations.doors import Doors
from moorage.operations.nouns import inbox
from moorage.store.region.inbox import ExternalEvent


class EventDoor:
    """Given to the embedded service before the region is open; events that come earlier are said again by their sender."""

    def __init__(self) -> None:
        self.region: Region | None = None

    async def __call__(self, events: list[dict[str, Any]]) -> None:
        """Keep what is said of our servers, then hint (RULES §20)."""
        if self.region is None:
            return
        now = time.time_ns() // 1000
        told = [
            ExternalEvent(
                ServerId(each["server_uuid"]), each["name"], each.get("tag") or "", each.get("status", "completed"), now
            )
            for each in events
            if each.get("server_uuid")
        ]
        kept = await inbox.take(self.region.databases.region, told)
        doors = Doors(self.region.rooms, self.region.bus)
        for event, was in zip(told, kept, strict=True):
            if was:
                await doors.event_arrived(event.server, event.name, event.tag or None)
