"""`/ext/fit-map`: what is free on each host and in each segment, as this API's picture has it; numbers in columns, for there are many hosts."""

import base64
from typing import Any

import numpy as np

from moorage.api.call import AnyCall, Response
from moorage.api.routes import Params, Route
from moorage.api.timestamps import micros, now_us
from moorage.model.errors import Unavailable
from moorage.model.json_types import JsonObject
from moorage.model.world import World

RESOURCES = ("VCPU", "MEMORY_MB", "DISK_GB")
BANDWIDTH = {"egress": "NET_BW_EGR_KILOBIT_PER_SEC", "ingress": "NET_BW_IGR_KILOBIT_PER_SEC"}
UP, DISABLED, DOWN = 0, 1, 2
"""What `state` says of a host."""


async def show(call: AnyCall) -> Response:
    """Every host; wires are bit masks in base64, the first host in the highest bit of the first byte."""
    call.require("moorage:fit_map:show")
    world = _world(call)
    body = {"at": micros(now_us(call.context.clock)), **_hosts(world), "segments": _segments(world, masks=True)}
    return Response(200, {"fit_map": body}, finished=True)


async def totals(call: AnyCall) -> Response:
    """What is free in all, on hosts that take servers, and in each segment."""
    call.require("moorage:fit_map:show")
    world = _world(call)
    usable = world.present & world.enabled & world.alive & ~world.cell_disabled
    rows = {
        name: {"free": _sum(world.free[name], usable), "total": _sum(world.capacity[name], usable)}
        for name in RESOURCES
        if name in world.free
    }
    hosts = {"all": int(world.present.sum()), "usable": int(usable.sum())}
    body = {"hosts": hosts, "resources": rows, "segments": _segments(world, masks=False)}
    return Response(200, {"totals": body}, finished=True)


def _world(call: AnyCall) -> World:
    engine = call.context.placement
    if engine is None:
        raise Unavailable("This process has no provider cache.")
    return engine.world()


def _sum(column: Any, where: Any) -> int:
    return int(np.clip(column, 0, None)[where].sum(dtype=np.int64))


def _hosts(world: World) -> JsonObject:
    slots, names = world.roll().slots, world.roll().names
    state = np.where(world.alive, np.where(world.enabled & ~world.cell_disabled, UP, DISABLED), DOWN)
    resources = {
        name: {"free": world.free[name][slots].tolist(), "total": world.capacity[name][slots].tolist()}
        for name in RESOURCES
        if name in world.free
    }
    return {
        "hosts": {
            "name": names,
            "cell": world.cell[slots].tolist(),
            "zone": world.zone[slots].tolist(),
            "state": state[slots].tolist(),
        },
        "cells": list(world.cell_names),
        "zones": list(world.zone_names),
        "resources": resources,
        "bandwidth": {way: _below(world, resource) for way, resource in BANDWIDTH.items()},
    }


def _below(world: World, resource: str) -> dict[str, list[int]]:
    """Of all devices of each host together, kbit/s."""
    nested = world.nested
    if resource not in nested.free:
        return {"free": [], "total": []}
    size, slots = nested.size, world.roll().slots
    mine = np.flatnonzero(nested.host >= 0)
    shares = {}
    for word, columns in (("free", nested.free), ("total", nested.capacity)):
        amounts = np.bincount(nested.host[mine], weights=columns[resource][:size][mine], minlength=world.size)
        shares[word] = amounts[slots].astype(np.int64).tolist()
    return shares


def _segments(world: World, *, masks: bool) -> list[JsonObject]:
    slots = world.roll().slots
    rows = []
    for each in sorted(world.segments.values(), key=lambda one: one.name):
        row: JsonObject = {"id": each.id, "name": each.name, "free": each.free, "total": each.total}
        if masks:
            row["hosts"] = base64.b64encode(np.packbits(each.wired[slots]).tobytes()).decode()
        else:
            row["hosts"] = int(each.wired[slots].sum())
        rows.append(row)
    return rows


NONE = Params({}, strict=(2, 1))

ROUTES = (
    Route("GET", "/ext/fit-map", show, params=NONE),
    Route("GET", "/ext/fit-map/totals", totals, params=NONE),
)
