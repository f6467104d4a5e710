"""`/os-server-external-events`: what network, volume and other services say has happened to servers."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import Uuid
from moorage.api.cross_cell import find_server
from moorage.api.routes import Route
from moorage.api.schema import Body
from moorage.api.timestamps import now_us
from moorage.model.errors import NotFound, Unavailable
from moorage.model.ids import ServerId
from moorage.model.json_types import JsonObject
from moorage.operations.records import inbox
from moorage.store.region.inbox import ExternalEvent

EVENTS_MAX = 1_000
TAG_REQUIRED = frozenset({"volume-extended", "power-update", "accelerator-request-bound", "volume-reimaged"})


class ExternalEventItem(Body):
    name: Literal[
        "network-changed",
        "network-vif-plugged",
        "network-vif-unplugged",
        "network-vif-deleted",
        "volume-extended",
        "power-update",
        "accelerator-request-bound",
        "volume-reimaged",
    ]
    server_uuid: Uuid
    status: Literal["failed", "completed", "in-progress"] = "completed"
    tag: Annotated[str, Meta(max_length=255)] | UnsetType = UNSET


class ExternalEventsBody(Body):
    events: Annotated[list[ExternalEventItem], Meta(min_length=1, max_length=EVENTS_MAX)]


async def create(call: Call[ExternalEventsBody]) -> Response:
    """Keep what can be kept, then answer, event by event; 207 when one was not."""
    call.require("os_compute_api:os-server-external-events:create", {})
    known = {each: await _known(call, each) for each in {event.server_uuid for event in call.body.events}}
    codes: dict[int, int] = {}
    now = now_us(call.context.clock)
    kept: list[tuple[int, ExternalEvent]] = []
    for place, event in enumerate(call.body.events):
        if not known[event.server_uuid]:
            codes[place] = 404
        elif event.name in TAG_REQUIRED and event.tag is UNSET:
            codes[place] = 400
        else:
            new = ExternalEvent(
                ServerId(event.server_uuid), event.name, "" if event.tag is UNSET else event.tag, event.status, now
            )
            kept.append((place, new))
    if kept:
        taken = await inbox.take(call.context.region, [event for _, event in kept])
        for (place, new), is_stored in zip(kept, taken, strict=True):
            codes[place] = 200 if is_stored else 422
            if is_stored and call.context.operations is not None:
                await call.context.operations.event_arrived(new.server, new.name, new.tag or None)
    rows: list[JsonObject] = []
    for place, event in enumerate(call.body.events):
        row = {name: value for name, value in msgspec.structs.asdict(event).items() if value is not UNSET}
        rows.append({**row, "status": "completed" if codes[place] == 200 else "failed", "code": codes[place]})
    return Response(200 if set(codes.values()) <= {200} else 207, {"events": rows})


async def _known(call: AnyCall, server_id: str) -> bool:
    try:
        await find_server(call.context, server_id)
    except NotFound:
        return False
    except Unavailable:
        return True  # its cell is out; the region knows it, and the event must not be lost
    return True


ROUTES = (Route("POST", "/os-server-external-events", create, takes=ExternalEventsBody),)
