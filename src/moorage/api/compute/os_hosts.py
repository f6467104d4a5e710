"""`/os-hosts`, which ended with 2.42: services by host, how full a host is, and whether it takes servers."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.hypervisors import filled
from moorage.api.host_view import every_host, host_named, servers_of, zone_of, zones_of
from moorage.api.routes import TEXT, Params, Route
from moorage.api.schema import Body
from moorage.api.timestamps import now_us
from moorage.model.errors import Invalid, NotBuilt, NotFound
from moorage.model.host import Host
from moorage.model.json_types import JsonObject
from moorage.model.server import Server
from moorage.operations.records import hosts as writes
from moorage.sql import Database
from moorage.store.region import conductors

RULE = "os_compute_api:os-hosts:"
INTERNAL_ZONE = "internal"
Switch = Literal["enable", "disable", "Enable", "Disable", "ENABLE", "DISABLE"]
ANY_QUERY = Params(strict=None)


class HostUpdate(Body):
    never_null: ClassVar[Mapping[str, str]] = {"status": "'string'", "maintenance_mode": "'string'"}

    status: Switch | None = None
    maintenance_mode: Switch | None = None


async def _host(call: AnyCall) -> tuple[Host, Database]:
    name = call.path["id"]
    try:
        return await host_named(call, name)
    except NotFound:
        raise NotFound(f"Compute host {name} could not be found.") from None


async def index(call: Call[None]) -> Response:
    call.require(RULE + "list", {})
    hosts, _ = await every_host(call)
    zones = await zones_of(call)
    dispatcher = await call.context.region.read(conductors.listed)
    rows = [
        {"host_name": host, "service": service, "zone": INTERNAL_ZONE}
        for service in ("scheduler", "conductor")
        for host, _, _ in dispatcher
    ]
    rows += [
        {"host_name": host.host, "service": "compute", "zone": zone_of(call, host, zones)}
        for host in hosts
        if not host.disabled
    ]
    wanted = call.first("zone")
    return Response(body={"hosts": [row for row in rows if not wanted or row["zone"] == wanted]})


def _resource(host: str, project: str, cpu: int, memory_mb: int, disk_gb: int) -> JsonObject:
    named = {"host": host, "project": project, "cpu": cpu, "memory_mb": memory_mb, "disk_gb": disk_gb}
    return {"resource": named}


def _sum(host: str, project: str, servers: list[Server]) -> JsonObject:
    flavors = [server.flavor for server in servers]
    return _resource(
        host,
        project,
        sum(flavor.vcpus for flavor in flavors),
        sum(flavor.ram_mib for flavor in flavors),
        sum(flavor.disk_gib + flavor.ephemeral_gib for flavor in flavors),
    )


async def show(call: Call[None]) -> Response:
    """The capacity, the present use, the use that running servers can reach, and the same for each project."""
    call.require(RULE + "show", {})
    host, cell = await _host(call)
    servers = await servers_of(call, host, cell)
    fill = (await filled(call, [host]))[0]
    name = host.host
    rows = [
        _resource(name, "(total)", fill["vcpus"], fill["memory_mb"], fill["local_gb"]),
        _resource(name, "(used_now)", fill["vcpus_used"], fill["memory_mb_used"], fill["local_gb_used"]),
        _sum(name, "(used_max)", servers),
    ]
    rows += [
        _sum(name, project, [server for server in servers if server.project == project])
        for project in dict.fromkeys(server.project for server in servers)
    ]
    return Response(body={"host": rows})


async def update(call: Call[HostUpdate]) -> Response:
    """Enable or disable a host by the older API.

    Raises Invalid for an empty change, and NotBuilt for the maintenance mode.
    """
    call.require(RULE + "update", {})
    status, maintenance = call.body.status, call.body.maintenance_mode
    if status is None and maintenance is None:
        raise Invalid("Invalid input: 'status' or 'maintenance_mode' is a required property.")
    host, cell = await _host(call)
    if maintenance is not None:
        raise NotBuilt("The requested functionality is not supported.")
    disabled = str(status).lower() == "disable"
    now = now_us(call.context.clock)
    await writes.set_disabled(call.context.region, cell, host, now, disabled=disabled, reason=None)
    return Response(body={"host": host.host, "status": "disabled" if disabled else "enabled"})


def _power(rule: str) -> Any:
    async def act(call: Call[None]) -> Response:
        call.require(RULE + rule, {})
        await _host(call)
        raise NotBuilt("The requested functionality is not supported.")

    return act


ROUTES = (
    Route("GET", "/os-hosts", index, params=Params({"zone": TEXT}, strict=None)),
    Route("GET", "/os-hosts/{id}", show, params=ANY_QUERY),
    Route("PUT", "/os-hosts/{id}", update, takes=HostUpdate),
    Route("GET", "/os-hosts/{id}/reboot", _power("reboot"), params=ANY_QUERY),
    Route("GET", "/os-hosts/{id}/shutdown", _power("shutdown"), params=ANY_QUERY),
    Route("GET", "/os-hosts/{id}/startup", _power("start"), params=ANY_QUERY),
)
