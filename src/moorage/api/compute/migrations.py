"""`/os-migrations`: moves of servers, of all cells as one list; `/servers/{id}/migrations`: the live ones under way of one server.

A cell that does not answer is left out, as in lists of servers.  While a server moves into another cell, its migrations are in both:
those are listed whose server's record is shown.
"""

from collections.abc import Sequence

import msgspec

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_filters import instant, last_instant
from moorage.api.compute.server_lookup import in_state, not_locked, notification_of, service_of, target_of, the_server
from moorage.api.routes import NUMBER, TEXT, Param, Params, Route
from moorage.api.schema import TRUE, Body
from moorage.api.timestamps import micros, now_us
from moorage.api.version_changes import v2_059_servers, v2_065_servers
from moorage.model.errors import Invalid, NotFound, Unavailable
from moorage.model.ids import ServerId
from moorage.model.json_types import JsonObject
from moorage.model.migration import Migration, MigrationStatus, MigrationType, TransferProgress
from moorage.model.server import FlavorCopy, Server, TaskState, VmState
from moorage.operations.shown_records import Ask, CellQuery, EveryCell
from moorage.sql import Database
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell.migrations import MigrationQuery, place_of

RULE = "os_compute_api:os-migrations:index"
ONE = "/servers/{id}/migrations/{migration}"
OF_SERVER = "os_compute_api:servers:migrations:"
MOMENT = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"
ABORTABLE = (MigrationStatus.QUEUED, MigrationStatus.PREPARING, MigrationStatus.RUNNING)
NUMBER_DIGITS_MAX = 10
NUMBER_MAX = 2**31 - 1
"""Of a migration; a longer one names none."""
ENDS = ("dest_compute", "dest_host", "dest_node", "source_compute", "source_node")
"""What only those who may know hosts are shown."""


async def index(call: AnyCall) -> Response:
    """Newest first since 2.59; before, in the order in which they began."""
    call.require(RULE)
    if call.principal.project is None or call.first("project_id") != call.principal.project:
        call.require(RULE + ":all_projects")
    if call.first("host") or call.first("source_compute"):
        call.require(RULE + ":host")
    query, paged = _wanted(call), call.version >= v2_059_servers.PAGED
    marker = call.first("marker")
    if marker:
        query = msgspec.structs.replace(query, after=place_of(await _marked(call, marker)))
    rows: list[Migration] = []
    if query.limit > 0 and (call.first("hidden") or "").lower() not in TRUE:
        rows = await _gathered(call, query)
    rows = sorted(rows, key=place_of, reverse=True)[: query.limit]
    hosts = call.allows(RULE + ":host")
    body: JsonObject = {"migrations": [_row(call, each, hosts=hosts) for each in (rows if paged else rows[::-1])]}
    links = call.next_links("os-migrations", rows, rows[-1].uuid, query.limit) if rows and paged else []
    return Response(200, {**body, "migrations_links": links} if links else body)


def _wanted(call: AnyCall) -> MigrationQuery:
    since, before = call.first("changes-since"), call.first("changes-before")
    low = instant(since, "changes-since") if since else None
    high = last_instant(before, "changes-before") if before else None
    if low is not None and high is not None and high < low:
        raise Invalid("The value of changes-since must be less than or equal to changes-before.")
    host = call.first("host")
    limit, _ = call.page()
    return MigrationQuery(
        limit=limit,
        server=call.first("instance_uuid"),
        type=call.first("migration_type"),
        status=call.first("status"),
        host=host,
        source_host=None if host is not None else call.first("source_compute"),
        user=call.first("user_id"),
        project=call.first("project_id"),
        changes_since=low,
        changes_before=high,
    )


async def _gathered(call: AnyCall, query: MigrationQuery) -> list[Migration]:
    """Of the cells that answer, each server's of the record of it that is shown."""

    async def query_cell(name: str, database: Database, look: CellQuery) -> Sequence[Migration] | None:
        wanted = msgspec.structs.replace(query, limit=query.limit + look.more, without=look.without, servers=look.only)
        try:
            return await database.read(lambda tx: cell_migrations.listed(tx, wanted))
        except (Unavailable, OSError):
            return None

    answer = await _every_cell(call, query_cell, query.limit).rows()
    return answer.rows


async def _marked(call: AnyCall, marker: str) -> Migration:
    """Raises Invalid when there is no such migration, Unavailable when a cell that may have it is out."""
    silent: list[Unavailable] = []

    async def query_cell(name: str, database: Database, look: CellQuery) -> Sequence[Migration] | None:
        try:
            found = await database.read(lambda tx: cell_migrations.get(tx, marker))
        except Unavailable as problem:
            silent.append(problem)
            return None
        wanted = found is not None and found.server not in look.without
        return [found] if found is not None and wanted and (look.only is None or found.server in look.only) else []

    migrations = (await _every_cell(call, query_cell).rows()).rows
    if migrations:
        return migrations[0]
    if silent:
        raise silent[0]
    raise Invalid(f"Marker {marker} could not be found.")


def _every_cell(call: AnyCall, ask: Ask[Migration], limit: int | None = None) -> EveryCell[Migration]:
    region, cells, now = call.context.region, call.context.cells, now_us(call.context.clock)
    return EveryCell(region, cells, now, ask, lambda each: each.server, limit=limit)


def _row(call: AnyCall, migration: Migration, *, hosts: bool) -> JsonObject:
    row: JsonObject = {
        "created_at": micros(migration.created_at),
        "dest_compute": migration.dest_host,
        "dest_host": migration.dest_address,
        "dest_node": migration.dest_node,
        "id": migration.number,
        "instance_uuid": migration.server,
        "new_instance_type_id": _number(migration.new_flavor),
        "old_instance_type_id": _number(migration.old_flavor),
        "source_compute": migration.source_host,
        "source_node": migration.source_node,
        "status": migration.status.value,
        "migration_type": migration.type.value,
        "updated_at": micros(migration.updated_at),
        "uuid": migration.uuid,
        "user_id": migration.user,
        "project_id": migration.project,
    }
    if not hosts:
        row |= dict.fromkeys(ENDS)
    if migration.live_in_progress:
        row["links"] = call.links(f"servers/{migration.server}/migrations/{migration.number}")
    return row


def _number(flavor: FlavorCopy | None) -> int | None:
    return None if flavor is None else flavor.number


# ------------------------------------------------------------------------------------------------- of one server


async def of_server(call: AnyCall) -> Response:
    """The live migrations of it that are under way."""
    server = await the_server(call, OF_SERVER + "index")
    hosts = call.allows(OF_SERVER + "index:host", target_of(server))
    database = call.context.cells.get(server.cell or "")
    migrations = [] if database is None else await database.read(lambda tx: cell_migrations.open_of(tx, server.id))
    return Response(200, {"migrations": [_live_row(each, hosts=hosts) for each in migrations if each.live_in_progress]})


async def show(call: AnyCall) -> Response:
    """Show a server's live migration while it is in progress.

    Raises NotFound when there is none, or the migration is of another kind.
    """
    server = await the_server(call, OF_SERVER + "show")
    migration_id = call.path["migration"]
    migration = await _of_number(call, server, migration_id)
    if migration is None:
        raise NotFound(f"In-progress live migration {migration_id} is not found for server {server.id}.")
    if migration.type is not MigrationType.LIVE_MIGRATION:
        raise NotFound(f"Migration {migration_id} for server {server.id} is not live-migration.")
    if not migration.live_in_progress:
        raise NotFound(f"Live migration {migration_id} for server {server.id} is not in progress.")
    return Response(200, {"migration": _live_row(migration, hosts=True)})


async def _of_number(call: AnyCall, server: Server, number_text: str) -> Migration | None:
    database = call.context.cells.get(server.cell or "")
    if (
        database is None
        or not number_text.isdecimal()
        or len(number_text) > NUMBER_DIGITS_MAX
        or int(number_text) > NUMBER_MAX
    ):
        return None
    number, id = int(number_text), ServerId(server.id)
    return await database.read(lambda tx: cell_migrations.of_number(tx, id, number))


def _live_row(migration: Migration, *, hosts: bool) -> JsonObject:
    sent = migration.progress or TransferProgress()
    row: JsonObject = {
        "created_at": micros(migration.created_at),
        "dest_compute": migration.dest_host,
        "dest_host": migration.dest_address,
        "dest_node": migration.dest_node,
        "disk_processed_bytes": sent.disk_processed,
        "disk_remaining_bytes": sent.disk_remaining,
        "disk_total_bytes": sent.disk_total,
        "id": migration.number,
        "memory_processed_bytes": sent.memory_processed,
        "memory_remaining_bytes": sent.memory_remaining,
        "memory_total_bytes": sent.memory_total,
        "server_uuid": migration.server,
        "source_compute": migration.source_host,
        "source_node": migration.source_node,
        "status": migration.status.value,
        "updated_at": micros(migration.updated_at),
        "uuid": migration.uuid,
        "user_id": migration.user,
        "project_id": migration.project,
    }
    return row if hosts else row | dict.fromkeys(ENDS)


class ForceBody(Body):
    force_complete: None


async def force_complete(call: Call[ForceBody]) -> Response:
    """Let a live migration complete now. Raises Invalid for an unknown migration."""
    server = await the_server(call, OF_SERVER + "force_complete")
    not_locked(call, server)
    in_state(server, "force_complete", (VmState.ACTIVE,), (TaskState.MIGRATING,))
    try:
        migration = await _running(call, server, "force complete", (MigrationStatus.RUNNING,))
    except NotFound as unknown:  # Nova answers so
        raise Invalid(unknown.public) from unknown
    listeners = (
        notification_of(call, "live_migration_force_complete.start"),
        notification_of(call, "live_migration_force_complete.end"),
    )
    await service_of(call).force_live_migration(
        call.principal,
        server,
        migration,
        request_id=call.request_id,
        listeners=[each for each in listeners if each is not None],
    )
    return Response(202)


async def abort(call: AnyCall) -> Response:
    server = await the_server(call, OF_SERVER + "delete")
    not_locked(call, server)
    if server.task_state is not TaskState.MIGRATING:
        in_state(server, "abort live migration", tuple(VmState), (TaskState.MIGRATING,))
    early = call.version >= v2_065_servers.ABORTED_BEFORE_IT_RUNS
    migration = await _running(call, server, "abort live migration", ABORTABLE if early else (MigrationStatus.RUNNING,))
    await service_of(call).abort_live_migration(call.principal, server, migration, request_id=call.request_id)
    return Response(202)


async def _running(call: AnyCall, server: Server, method: str, states: tuple[MigrationStatus, ...]) -> Migration:
    """Raises NotFound, and Invalid when it is in another state."""
    migration_id = call.path["migration"]
    migration = await _of_number(call, server, migration_id)
    if migration is None:
        raise NotFound(f"Migration {migration_id} not found for instance {server.id}")
    if migration.type is not MigrationType.LIVE_MIGRATION or migration.status not in states:
        raise Invalid(
            f"Migration {migration_id} state of instance {server.id} is {migration.status.value}. Cannot {method} while the migration is in "
            "this state."
        )
    return migration


def _moment(since: tuple[int, int]) -> Param:
    return Param(since=since, form=MOMENT, many=False, format="date-time")


ROUTES = (
    Route(
        "GET",
        "/os-migrations",
        index,
        params=Params(
            {
                **dict.fromkeys(
                    ("hidden", "host", "instance_uuid", "source_compute", "status", "migration_type"), TEXT
                ),
                "limit": Param(since=(2, 59), form=NUMBER, many=False),
                "marker": Param(since=(2, 59), many=False),
                "changes-since": _moment((2, 59)),
                "changes-before": _moment((2, 66)),
                "user_id": Param(since=(2, 80), many=False),
                "project_id": Param(since=(2, 80), many=False),
            },
            strict=(2, 59),
        ),
    ),
    Route("GET", "/servers/{id}/migrations", of_server),
    Route("GET", ONE, show),
    Route("DELETE", ONE, abort),
    Route("POST", f"{ONE}/action", force_complete, takes=ForceBody, action="force_complete"),
)
