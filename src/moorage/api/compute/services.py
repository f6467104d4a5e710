"""`/os-services`: Nova's binaries, as Moorage has them.  A conductor is also the scheduler."""

import uuid
from collections.abc import Mapping
from typing import ClassVar, Literal

from moorage.api.call import AnyCall, Call, Response
from moorage.api.host_view import by_service, every_host, host_named, is_up, past_number, zone_of, zones_of
from moorage.api.microversions import Json
from moorage.api.routes import TEXT, Params, Route
from moorage.api.schema import Body, NovaBool, decode
from moorage.api.timestamps import micros, now_us
from moorage.api.version_changes import v2_011, v2_053, v2_069
from moorage.model.errors import Invalid, NotFound
from moorage.model.host import Host
from moorage.model.json_types import JsonObject
from moorage.operations.records import hosts as writes
from moorage.store.region import conductors
from moorage.store.region.placement import provider_statements

RULE = "os_compute_api:os-services:"
INTERNAL_ZONE = "internal"
CONDUCTORS_NAMESPACE = uuid.UUID("3c1c7c52-9e8b-5b0a-8f2e-5d6c5a0e7f10")
REASON_MAX_CHARS = 255


class ByName(Body):
    """Below 2.53 a service is named by host and binary, and the path says what to do."""

    never_null: ClassVar[Mapping[str, str]] = {"disabled_reason": "'string'", "forced_down": "'boolean', 'string'"}

    host: str
    binary: str
    disabled_reason: str | None = None
    forced_down: NovaBool | None = None


class ById(Body):
    """From 2.53 on the path names the service, and the body its new state."""

    never_null: ClassVar[Mapping[str, str]] = {
        "status": "'string'",
        "disabled_reason": "'string'",
        "forced_down": "'boolean', 'string'",
    }

    status: Literal["enabled", "disabled"] | None = None
    disabled_reason: str | None = None
    forced_down: NovaBool | None = None


def _of_host(call: AnyCall, host: Host, zones: dict[str, str]) -> JsonObject:
    return {
        "binary": "nova-compute",
        "host": host.host,
        "id": host.service,
        "past_id": past_number(host.service),
        "zone": zone_of(call, host, zones),
        "status": "disabled" if host.disabled else "enabled",
        "state": "up" if is_up(call, host) else "down",
        "updated_at": micros(host.seen_at),
        "disabled_reason": host.disabled_reason,
        "forced_down": host.forced_down,
    }


def _of_conductor(binary: str, host: str, lives: bool, until_s: float) -> JsonObject:
    service = str(uuid.uuid5(CONDUCTORS_NAMESPACE, f"{binary}@{host}"))
    return {
        "binary": binary,
        "host": host,
        "id": service,
        "past_id": past_number(service),
        "zone": INTERNAL_ZONE,
        "status": "enabled",
        "state": "up" if lives else "down",
        "updated_at": micros(int((until_s - conductors.LEASE_S) * 1e6)) if until_s else None,
        "disabled_reason": None,
        "forced_down": False,
    }


async def _all(call: AnyCall, binary: str = "") -> list[JsonObject]:
    """Those of one binary; of all with an empty name. Cells are asked only where hosts are wanted."""
    known = await call.context.region.read(conductors.listed)
    rows = [
        _of_conductor(each, host, lives, until)
        for each in ("nova-scheduler", "nova-conductor")
        if binary in {"", each}
        for host, lives, until in known
    ]
    return rows + (await _computes(call) if binary in {"", "nova-compute"} else [])


async def _computes(call: AnyCall) -> list[JsonObject]:
    hosts, silent = await every_host(call)
    zones = await zones_of(call)
    rows = [_of_host(call, host, zones) for host in hosts]
    if silent and call.version >= v2_069.CELLS_MAY_BE_DOWN:
        known = await call.context.region.read(lambda tx: provider_statements.hosts_of_cells(tx, silent))
        rows += [{"binary": "nova-compute", "host": host, "status": "UNKNOWN"} for host in known]
    return rows


async def index(call: Call[None]) -> Response:
    call.require(RULE + "list", {})
    host, binary = call.first("host"), call.first("binary")
    rows = [row for row in await _all(call, binary or "") if not host or row["host"] == host]
    return Response(body={"services": rows})


def _only_computes(binary: str) -> None:
    if binary != "nova-compute":
        raise Invalid(f"Updating a {binary} service is not supported. Only nova-compute services can be updated.")


def _reason(reason: str | None) -> str | None:
    if reason is not None and not 1 <= len(reason) <= REASON_MAX_CHARS:
        wrong = "is too short" if not reason else "is too long"
        raise Invalid(f"Invalid input for field/attribute disabled_reason. Value: {reason}. {reason!r} {wrong}")
    return reason


async def update(call: Call[Json]) -> Response:
    if call.version >= v2_053.BY_UUID:
        return await _update_by_id(call, decode(call.body, ById, soft=call.legacy))
    return await _update_by_name(call, decode(call.body, ByName, soft=call.legacy))


async def _update_by_name(call: Call[Json], fields: ByName) -> Response:
    """`PUT /os-services/enable`, `disable`, `disable-log-reason`, and from 2.11 on `force-down`."""
    doing = call.path["id"]
    reason = _reason(fields.disabled_reason)
    call.require(RULE + "update", {})
    known = {"enable", "disable", "disable-log-reason"}
    if doing not in known and not (doing == "force-down" and call.version >= v2_011.FORCE_DOWN):
        raise NotFound("Unknown action")
    shown: JsonObject = {"host": fields.host, "binary": fields.binary}
    if doing == "force-down" and fields.forced_down is None:
        raise Invalid("Missing forced_down field")
    if doing == "disable-log-reason" and reason is None:
        raise Invalid("Missing disabled reason field")
    _only_computes(fields.binary)
    host, cell = await host_named(call, fields.host)
    now = now_us(call.context.clock)
    if doing == "force-down":
        await writes.set_forced_down(
            call.context.region, cell, host, now, forced=bool(fields.forced_down), by=call.principal.user
        )
        return Response(body={"service": shown | {"forced_down": bool(fields.forced_down)}})
    disabled = doing != "enable"
    why = reason if doing == "disable-log-reason" else None
    await writes.set_disabled(call.context.region, cell, host, now, disabled=disabled, reason=why)
    shown["status"] = "disabled" if disabled else "enabled"
    return Response(body={"service": shown | ({"disabled_reason": why} if why else {})})


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError as failure:
        raise Invalid(f"Invalid uuid {text}") from failure


async def _update_by_id(call: Call[Json], fields: ById) -> Response:
    service = _uuid(call.path["id"])
    reason = _reason(fields.disabled_reason)
    call.require(RULE + "update", {})
    place = await by_service(call, service)
    if place is None:
        for row in await _all(call):
            if row.get("id") == service:
                _only_computes(row["binary"])
        raise NotFound(f"Service {service} could not be found.")
    if fields.status == "enabled" and reason:
        raise Invalid("Specifying 'disabled_reason' with status 'enabled' is invalid.")
    if fields.status is None and fields.forced_down is None:
        raise Invalid("No updates were requested. Fields 'status' or 'forced_down' should be specified.")
    host, cell = place
    now = now_us(call.context.clock)
    if fields.status is not None:
        disabled = fields.status == "disabled"
        host = await writes.set_disabled(call.context.region, cell, host, now, disabled=disabled, reason=reason)
    if fields.forced_down is not None:
        host = await writes.set_forced_down(
            call.context.region, cell, host, now, forced=bool(fields.forced_down), by=call.principal.user
        )
    return Response(body={"service": _of_host(call, host, await zones_of(call))})


async def delete(call: Call[None]) -> Response:
    """Delete a compute service.

    Raises Invalid for an id that is not an integer in old versions, and NotFound when there is no such service.
    """
    call.require(RULE + "delete", {})
    service = call.path["id"]
    if call.version >= v2_053.BY_UUID:
        service = _uuid(service)
    elif not service.isdecimal():
        raise Invalid(f"id must be an integer, not {service[:64]}")
    place = await by_service(call, service)
    if place is None:
        raise NotFound(f"Service {service} not found.")
    await writes.delete(call.context.region, call.context.cells, place[1], place[0], now_us(call.context.clock))
    return Response(204)


ROUTES = (
    Route("GET", "/os-services", index, params=Params({"host": TEXT, "binary": TEXT}, strict=(2, 75))),
    Route("PUT", "/os-services/{id}", update, takes=JsonObject),
    Route("DELETE", "/os-services/{id}", delete),
)
