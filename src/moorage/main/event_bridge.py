"""Takes the embedded network service's events about ports into the inbox, where the events of a real service go.

If the service runs in a role of its own, it posts them to the Compute API, as a real one does.
"""

import time
from contextlib import suppress

from moorage.clients.http import ServiceClient
from moorage.main.composition import RegionProcess
from moorage.model.errors import NotFound, Unavailable
from moorage.model.ids import ServerId
from moorage.model.json_types import JsonObject
from moorage.operations.records import inbox
from moorage.operations.server_service import ServerService
from moorage.store.region.inbox import ExternalEvent


class EventReceiver:
    """Receives the events. It exists before the region is open; the sender repeats events that come too early."""

    def __init__(self) -> None:
        self.region: RegionProcess | None = None

    async def __call__(self, events: list[JsonObject]) -> None:
        """Store the events of our servers, then send a hint (RULES §20). Raises Unavailable while the region is not open."""
        if self.region is None:
            raise Unavailable("compute does not accept events yet")
        now = time.time_ns() // 1000
        parsed = [
            ExternalEvent(
                ServerId(each["server_uuid"]), each["name"], each.get("tag") or "", each.get("status", "completed"), now
            )
            for each in events
            if each.get("server_uuid")
        ]
        kept = await inbox.take(self.region.databases.region, parsed)
        service = ServerService(self.region.context, self.region.bus)
        for event, is_stored in zip(parsed, kept, strict=True):
            if is_stored:
                await service.event_arrived(event.server, event.name, event.tag or None)


class EventsOverHttp:
    """Posts events to `/os-server-external-events` with credentials of its own. It raises what the call raises; then it is called again."""

    def __init__(self, compute: ServiceClient) -> None:
        self._compute = compute

    async def __call__(self, events: list[JsonObject]) -> None:
        """Post the events. Unknown or deleted servers are not an error."""
        with suppress(NotFound):
            await self._compute.call("POST", "/os-server-external-events", body={"events": events})
