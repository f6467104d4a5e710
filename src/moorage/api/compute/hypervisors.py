"""`/os-hypervisors`: hosts, as hypervisors.

Until 2.87 a hypervisor also tells how full it is; those numbers are placement's, since claims are what counts.
"""

import time
import uuid
from collections.abc import Sequence

from moorage.api.call import AnyCall, Call, Response
from moorage.api.host_view import every_host, is_up, past_number, servers_on
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.schema import NovaBool
from moorage.api.version_changes import v2_053, v2_088
from moorage.model.errors import Invalid, NotBuilt, NotFound
from moorage.model.host import Host
from moorage.model.json_types import JsonObject
from moorage.model.pattern import like
from moorage.model.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from moorage.sql import Tx
from moorage.store.region.placement import provider_statements

RULE = "os_compute_api:os-hypervisors:"
Stock = dict[str, tuple[Inventory, int]]


def _brief(call: AnyCall, host: Host) -> JsonObject:
    return {
        "id": host.id,
        "past_id": past_number(host.id),
        "hypervisor_hostname": host.node,
        "state": "up" if is_up(call, host) else "down",
        "status": "disabled" if host.disabled else "enabled",
    }


def _amounts(stock: Stock, resource: str) -> tuple[int, int]:
    """(total, used including reserved)."""
    if resource not in stock:
        return 0, 0
    inventory, used = stock[resource]
    return inventory.total, used + (inventory.reserved if resource != VCPU else 0)


def _fill(stock: Stock, running: int) -> dict[str, int]:
    vcpus, vcpus_used = _amounts(stock, VCPU)
    ram, ram_used = _amounts(stock, MEMORY_MB)
    disk, disk_used = _amounts(stock, DISK_GB)
    return {
        "vcpus": vcpus,
        "memory_mb": ram,
        "local_gb": disk,
        "vcpus_used": vcpus_used,
        "memory_mb_used": ram_used,
        "local_gb_used": disk_used,
        "free_ram_mb": ram - ram_used,
        "free_disk_gb": disk - disk_used,
        "current_workload": 0,
        "running_vms": running,
        "disk_available_least": disk - disk_used,
    }


def _detailed(call: AnyCall, host: Host) -> JsonObject:
    return _brief(call, host) | {
        "hypervisor_type": host.hypervisor_type,
        "hypervisor_version": host.hypervisor_version,
        "host_ip": host.address or None,
        "service": {
            "id": host.service,
            "past_id": past_number(host.service),
            "host": host.host,
            "disabled_reason": host.disabled_reason,
        },
        "uptime": uptime_of(call, host),
    }


def uptime_of(call: AnyCall, host: Host) -> str | None:
    """As the command `uptime` begins: ` 08:32:11 up 93 days, 18:25`; None of a host that is down or does not say."""
    if not host.up_since or not is_up(call, host):
        return None
    now_s = int(call.context.clock.now())
    minutes = max(0, now_s - host.up_since // 1_000_000) // 60
    days, minutes = divmod(minutes, 24 * 60)
    days_text = "" if not days else f"{days} day{'s' if days > 1 else ''}, "
    return f" {time.strftime('%H:%M:%S', time.gmtime(now_s))} up {days_text}{minutes // 60:2}:{minutes % 60:02}"


async def _stocks(call: AnyCall, hosts: Sequence[Host]) -> list[Stock]:
    def work(tx: Tx) -> list[Stock]:
        return [provider_statements.inventories_of(tx, host.id) for host in hosts]

    return await call.context.region.read(work)


async def filled(call: AnyCall, hosts: Sequence[Host]) -> list[dict[str, int]]:
    """The use of each host, with the hypervisors API's names."""
    servers = await servers_on(call, hosts)
    stocks = await _stocks(call, hosts)
    return [_fill(stock, len(servers[host.host])) for host, stock in zip(hosts, stocks, strict=True)]


async def _rows(call: AnyCall, hosts: Sequence[Host], *, detail: bool, with_servers: bool) -> list[JsonObject]:
    rows = [_detailed(call, host) if detail else _brief(call, host) for host in hosts]
    fill = detail and call.version < v2_088.FILL_IS_PLACEMENTS
    servers = await servers_on(call, hosts) if fill or with_servers else {}
    if fill:
        for row, host, stock in zip(rows, hosts, await _stocks(call, hosts), strict=True):
            row.update(_fill(stock, len(servers[host.host])))
            row["cpu_info"] = dict(host.cpu_info)
    if with_servers:
        for row, host in zip(rows, hosts, strict=True):
            row["servers"] = servers[host.host]
    return rows


async def _matching(call: AnyCall, pattern: str) -> list[Host]:
    hosts, _ = await every_host(call)
    wanted = like(pattern)
    matching = [host for host in hosts if wanted(host.node)]
    if not matching:
        raise NotFound(f"No hypervisor matching '{pattern[:255]}' could be found.")
    return matching


def _with_servers(call: AnyCall) -> bool:
    text = call.first("with_servers")
    if text is None:
        return False
    try:
        return bool(NovaBool.of(text))
    except ValueError as failure:
        raise Invalid(f"Invalid input for query parameters with_servers. Value: {text}. {failure}") from failure


async def _list(call: Call[None], *, detail: bool) -> Response:
    pattern, with_servers = call.first("hypervisor_hostname_pattern"), _with_servers(call)
    limit, marker = call.page()
    links: list[dict[str, str]] = []
    if pattern is not None:
        if "limit" in call.query or marker is not None:
            raise Invalid(
                "Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported."
            )
        hosts = await _matching(call, pattern)
    else:
        hosts, _ = await every_host(call)
        hosts = sorted(hosts, key=lambda host: (host.number, host.cell))
        if marker is not None:
            at = next((n for n, host in enumerate(hosts) if marker in _names(call, host)), None)
            if at is None:
                raise Invalid(f"marker [{marker}] not found")
            hosts = hosts[at + 1 :]
        hosts = hosts[:limit]
        path = "os-hypervisors/detail" if detail else "os-hypervisors"
        links = call.next_links(path, hosts, _names(call, hosts[-1])[0], limit) if hosts else []
    body: JsonObject = {"hypervisors": await _rows(call, hosts, detail=detail, with_servers=with_servers)}
    return Response(body=body | ({"hypervisors_links": links} if links else {}))


def _names(call: AnyCall, host: Host) -> tuple[str, ...]:
    """How this version names a hypervisor."""
    return (host.id,) if call.version >= v2_053.BY_UUID else (str(past_number(host.id)),)


async def index(call: Call[None]) -> Response:
    call.require(RULE + "list", {})
    return await _list(call, detail=False)


async def detail(call: Call[None]) -> Response:
    call.require(RULE + "list-detail", {})
    return await _list(call, detail=True)


async def _one(call: Call[None]) -> Host:
    wanted_id = call.path["id"]
    if call.version >= v2_053.BY_UUID:
        try:
            wanted_id = str(uuid.UUID(wanted_id))
        except ValueError as failure:
            raise Invalid(f"Invalid uuid {wanted_id}") from failure
    hosts, _ = await every_host(call)
    for host in hosts:
        if wanted_id in _names(call, host):
            return host
    raise NotFound(f"Hypervisor with ID '{wanted_id}' could not be found.")


async def show(call: Call[None]) -> Response:
    call.require(RULE + "show", {})
    rows = await _rows(call, [await _one(call)], detail=True, with_servers=_with_servers(call))
    return Response(body={"hypervisor": rows[0]})


async def uptime(call: Call[None]) -> Response:
    """Show a hypervisor's uptime. Raises Invalid when its host is down, and NotBuilt when the driver does not report it."""
    call.require(RULE + "uptime", {})
    host = await _one(call)
    text = uptime_of(call, host)
    if text is None and not is_up(call, host):
        raise Invalid("Compute service of " + host.host + " is unavailable at this time.")
    if text is None:
        raise NotBuilt("The requested functionality is not supported.")
    return Response(body={"hypervisor": {**_brief(call, host), "uptime": text}})


async def search(call: Call[None]) -> Response:
    call.require(RULE + "search", {})
    hosts = await _matching(call, call.path["id"])
    return Response(body={"hypervisors": await _rows(call, hosts, detail=False, with_servers=False)})


async def servers(call: Call[None]) -> Response:
    call.require(RULE + "servers", {})
    hosts = await _matching(call, call.path["id"])
    return Response(body={"hypervisors": await _rows(call, hosts, detail=False, with_servers=True)})


async def statistics(call: Call[None]) -> Response:
    """Sums over the hosts that are in service."""
    call.require(RULE + "statistics", {})
    hosts, _ = await every_host(call)
    counted = [host for host in hosts if not host.disabled]
    running = await servers_on(call, counted)
    total = _fill({}, 0)
    for host, stock in zip(counted, await _stocks(call, counted), strict=True):
        for name, amount in _fill(stock, len(running[host.host])).items():
            total[name] += amount
    return Response(body={"hypervisor_statistics": {"count": len(counted), **total}})


_WITH_SERVERS = Param(since=(2, 53), many=False)
_LISTING = Params(
    {
        "limit": Param(since=(2, 33), form=NUMBER),
        "marker": Param(since=(2, 33)),
        "hypervisor_hostname_pattern": Param(since=(2, 53), form="^[a-zA-Z0-9-._]{1,255}$", many=False),
        "with_servers": _WITH_SERVERS,
    },
    strict=(2, 53),
)

ROUTES = (
    Route("GET", "/os-hypervisors", index, params=_LISTING),
    Route("GET", "/os-hypervisors/detail", detail, params=_LISTING),
    Route("GET", "/os-hypervisors/statistics", statistics, params=Params(strict=None)),
    Route("GET", "/os-hypervisors/{id}", show, params=Params({"with_servers": _WITH_SERVERS}, strict=(2, 53))),
    Route("GET", "/os-hypervisors/{id}/search", search, params=Params(strict=None)),
    Route("GET", "/os-hypervisors/{id}/servers", servers, params=Params(strict=None)),
    Route("GET", "/os-hypervisors/{id}/uptime", uptime, params=Params(strict=None)),
)
