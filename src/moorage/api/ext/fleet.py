"""`/ext/fleet`: every host with its level, when it was last heard, and what administrators said of it and who; a page of them at a time."""

from moorage.api.call import AnyCall, Response
from moorage.api.host_view import every_host, is_up, zone_of, zones_of
from moorage.api.routes import NUMBER, TEXT, Param, Params, Route
from moorage.api.timestamps import micros
from moorage.model.host import Host
from moorage.model.json_types import JsonObject


async def index(call: AnyCall) -> Response:
    """By name. Hosts that are down, disabled, or were forced down come first with `trouble=1`, and no others come."""
    call.require("moorage:fleet:show")
    limit, marker = call.page()
    troubled = call.first("trouble") == "1"
    hosts, silent = await every_host(call)
    zones = await zones_of(call)
    counts = {"hosts": len(hosts), "up": 0, "disabled": 0, "forced_down": 0}
    rows: list[JsonObject] = []
    for each in hosts:
        up = is_up(call, each)
        counts["up"] += up
        counts["disabled"] += each.disabled
        counts["forced_down"] += each.forced_down
        wanted = (not troubled or not up or each.disabled) and (not marker or each.host > marker)
        if wanted and len(rows) < limit:
            rows.append(_row(each, up=up, zone=zone_of(call, each, zones)))
    return Response(200, {"fleet": rows, "counts": counts, "cells_out": silent}, finished=True)


def _row(host: Host, *, up: bool, zone: str) -> JsonObject:
    return {
        "host": host.host,
        "cell": host.cell,
        "zone": zone,
        "level": host.level,
        "release": host.version,
        "up": up,
        "seen_at": micros(host.seen_at) if host.seen_at else None,
        "disabled": host.disabled,
        "disabled_reason": host.disabled_reason,
        "forced_down": host.forced_down,
        "forced_down_by": host.forced_down_by,
        "forced_down_at": None if host.forced_down_at is None else micros(host.forced_down_at),
    }


LISTING = Params(
    {"limit": Param(form=NUMBER), "marker": TEXT, "trouble": Param(form="^[01]$", many=False)}, strict=(2, 1)
)

ROUTES = (Route("GET", "/ext/fleet", index, params=LISTING),)
