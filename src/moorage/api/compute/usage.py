"""`/os-simple-tenant-usage`: hours that servers ran, times their size."""

from collections.abc import Sequence
from datetime import UTC, datetime

from moorage.api.call import AnyCall, Call, Response
from moorage.api.routes import NUMBER, TEXT, Param, Params, Route
from moorage.api.timestamps import micros, now_us
from moorage.api.version_changes import v2_040
from moorage.model.errors import Invalid
from moorage.model.json_types import JsonObject
from moorage.model.server import Server
from moorage.operations.shown_records import CellQuery, EveryCell
from moorage.sql import Database
from moorage.store.cell import usage as reads

RULE = "os_compute_api:os-simple-tenant-usage:"
FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f")
HOUR_US = 3_600_000_000


def _moment(text: str | None, now: int) -> int:
    if not text:
        return now
    for form in FORMS:
        try:
            return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1e6)
        except ValueError:
            continue
    raise Invalid("Invalid datetime string: Datetime is in invalid format")


def _span(call: AnyCall) -> tuple[int, int]:
    now = now_us(call.context.clock)
    start, stop = _moment(call.first("start"), now), _moment(call.first("end"), now)
    if start >= stop and not (start == stop == now):
        raise Invalid("Invalid start time. The start time cannot occur after the end time.")
    return start, min(stop, now)


def _row(server: Server, start: int, stop: int, now: int) -> JsonObject:
    launched = server.launched_at or now
    ended = server.terminated_at
    ran_us = max(0, min(stop, ended or stop) - max(start, launched))
    return {
        "instance_id": server.id,
        "name": server.name,
        "tenant_id": server.project,
        "flavor": server.flavor.name,
        "memory_mb": server.flavor.ram_mib,
        "local_gb": server.flavor.disk_gib + server.flavor.ephemeral_gib,
        "vcpus": server.flavor.vcpus,
        "hours": ran_us / HOUR_US,
        "started_at": micros(launched),
        "ended_at": micros(ended),
        "state": "terminated" if ended else server.vm_state.value,
        "uptime": ((ended or now) - launched) // 1_000_000,
    }


def _summary(project: str, rows: list[JsonObject], start: int, stop: int) -> JsonObject:
    return {
        "tenant_id": project,
        "start": micros(start),
        "stop": micros(stop),
        "total_hours": sum(row["hours"] for row in rows),
        "total_local_gb_usage": sum(row["local_gb"] * row["hours"] for row in rows),
        "total_memory_mb_usage": sum(row["memory_mb"] * row["hours"] for row in rows),
        "total_vcpus_usage": sum(row["vcpus"] * row["hours"] for row in rows),
    }


async def _rows(call: AnyCall, project: str | None) -> tuple[list[JsonObject], int, int, int]:
    """(a page of servers, the span, the page's limit): over all cells, by id."""
    start, stop = _span(call)
    limit, marker = call.page() if call.version >= v2_040.PAGED else (call.context.config.page_max_rows, None)

    async def query_cell(name: str, cell: Database, look: CellQuery) -> Sequence[Server]:
        most = limit + look.more
        return await cell.read(
            lambda tx: reads.ran_between(
                tx, reads.Period(start, stop), project, marker, most, only=look.only, without=look.without
            )
        )

    now = now_us(call.context.clock)
    cells = EveryCell(call.context.region, call.context.cells, now, query_cell, lambda server: server.id, limit=limit)
    answer = await cells.rows()
    servers = sorted(answer.rows, key=lambda server: server.id)[:limit]
    return [_row(server, start, stop, now) for server in servers], start, stop, limit


async def index(call: Call[None]) -> Response:
    call.require(RULE + "list")
    rows, start, stop, limit = await _rows(call, None)
    by_project: dict[str, list[JsonObject]] = {}
    for row in rows:
        by_project.setdefault(row["tenant_id"], []).append(row)
    usages = [_summary(project, mine, start, stop) for project, mine in by_project.items()]
    if call.first("detailed") == "1":
        for usage in usages:
            usage["server_usages"] = by_project[usage["tenant_id"]]
    links = call.next_links("os-simple-tenant-usage", rows, rows[-1]["instance_id"], limit) if rows else []
    return Response(body={"tenant_usages": usages} | ({"tenant_usages_links": links} if links else {}))


async def show(call: Call[None]) -> Response:
    project = call.path["id"]
    call.require(RULE + "show", {"project_id": project})
    rows, start, stop, limit = await _rows(call, project)
    usage = _summary(project, rows, start, stop) | {"server_usages": rows} if rows else {}
    links = call.next_links(f"os-simple-tenant-usage/{project}", rows, rows[-1]["instance_id"], limit) if rows else []
    return Response(body={"tenant_usage": usage} | ({"tenant_usage_links": links} if links else {}))


_PAGED = {"limit": Param(since=(2, 40), form=NUMBER), "marker": Param(since=(2, 40))}
_SPAN = {"start": TEXT, "end": TEXT}

ROUTES = (
    Route(
        "GET", "/os-simple-tenant-usage", index, params=Params({**_SPAN, **_PAGED, "detailed": TEXT}, strict=(2, 75))
    ),
    Route("GET", "/os-simple-tenant-usage/{id}", show, params=Params({**_SPAN, **_PAGED}, strict=(2, 75))),
)
