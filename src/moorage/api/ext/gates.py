"""`/ext/gates`: which behaviour the fleet's levels allow, and which hosts block the next (N14)."""

import asyncio
from collections import Counter

import msgspec

from moorage.api.call import AnyCall, Response
from moorage.api.context import AppContext
from moorage.api.routes import Params, Route
from moorage.model.errors import Unavailable
from moorage.model.json_types import JsonObject
from moorage.operations.gates import report
from moorage.sql import Database
from moorage.store.cell import hosts as cell_hosts
from moorage.store.region import conductors, processes

EXECUTES = ("conductor", "up")
"""The roles that hold a lease for operations."""


async def show(call: AnyCall) -> Response:
    """Show the gates. Raises Unavailable when this API process does not read them."""
    call.require("moorage:gates:show")
    facts = call.context.gate_facts
    if facts is None:
        raise Unavailable("This API process does not read the gates.")
    known = report(facts())
    elsewhere = call.context.limit_warnings
    if elsewhere is not None:
        known = msgspec.structs.replace(known, warnings=(*known.warnings, *await elsewhere()))
    shown = {
        **msgspec.to_builtins(known, str_keys=True),
        "releases": await releases(call.context),
        "without_bus": await without_bus(call.context),
    }
    return Response(200, {"gates": shown}, finished=True)


async def releases(context: AppContext) -> list[JsonObject]:
    """Which releases are in play, by role; an empty one: it is of a release that did not say which it is yet."""
    living = await context.region.read(processes.living)
    leases = await context.region.read(conductors.living)
    counted = Counter((each.role, each.release) for each in living)
    silent = len(leases) - sum(each.role in EXECUTES for each in living)
    if silent > 0:
        counted["conductor", ""] = silent
    hosts = await asyncio.gather(*(_of_hosts(database) for database in context.cells.values()))
    for each in hosts:
        counted.update({("agent", release): count for release, count in each.items()})
    return [{"role": role, "release": release, "count": count} for (role, release), count in sorted(counted.items())]


async def without_bus(context: AppContext) -> list[JsonObject]:
    """Which conductors do not reach the message bus; one that has left its work to others has no lease meanwhile."""
    peers = await context.region.read(conductors.peers)
    back = {each.host: each.started_at for each in peers if each.lives and each.reaches_bus}
    return [
        {"conductor": each.id, "host": each.host, "has_lease": each.lives}
        for each in peers
        if not each.reaches_bus and (each.lives or back.get(each.host, 0.0) < each.started_at)
    ]


async def _of_hosts(cell: Database) -> dict[str, int]:
    """A cell that is out tells nothing of its hosts."""
    try:
        return await cell.read(cell_hosts.releases)
    except Unavailable:
        return {}


ROUTES = (Route("GET", "/ext/gates", show, params=Params({}, strict=(2, 1))),)
