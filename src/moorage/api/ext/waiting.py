"""`/ext/waiting`: servers that wait for a host, in the order in which they came, and how many wait for what."""

from moorage.api.call import AnyCall, Response
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.timestamps import seconds
from moorage.model.errors import Invalid
from moorage.model.ids import OperationId
from moorage.model.json_types import JsonObject
from moorage.scheduler.lacks import CAUSES
from moorage.sql import Tx
from moorage.store.region import waiting
from moorage.store.region.waiting import CauseCount, WaitingServer

LISTING = Params(
    {"limit": Param(form=NUMBER), "marker": Param(), "cause": Param(), "project_id": Param(), "all_projects": Param()},
    strict=(2, 1),
)


def described(row: WaitingServer) -> JsonObject:
    """One row, as its owner may see it: causes and counts, no names of hosts."""
    return {
        "server": row.server,
        "operation": row.operation,
        "project_id": row.project,
        "state": "asleep" if row.woken_at is None else "trying",
        "causes": list(row.causes),
        "refused": dict(row.counts),
        "since": seconds(row.since),
        "until": seconds(row.until),
        "woken_in_vain": row.in_vain,
    }


def _count(of: CauseCount) -> JsonObject:
    return {"servers": of.servers, "oldest_since": seconds(of.oldest_at)}


async def index(call: AnyCall) -> Response:
    """Of the caller's project; of all, or of another one, for who may. Raises Invalid for a cause that nobody waits for."""
    call.require("moorage:waiting:list")
    everywhere = call.first("all_projects") in {"", "1", "true", "True"} and "all_projects" in call.query
    project = call.first("project_id")
    if everywhere or (project and project != call.project):
        call.require("moorage:waiting:list:all_projects")
    elif not project:
        project = call.project
    limit, marker = call.page()
    cause = call.first("cause")
    if cause and cause not in CAUSES:
        raise Invalid(f"'{cause[:100]}' is nothing that servers wait for; they wait for {', '.join(CAUSES)}.")

    def read(tx: Tx) -> tuple[list[WaitingServer], dict[str, CauseCount], int]:
        rows = waiting.listed(
            tx, project=project, cause=cause or None, marker=OperationId(marker) if marker else None, limit=limit
        )
        return list(rows), waiting.by_cause(tx, project), waiting.counted(tx, project)

    rows, causes, count = await call.context.region.read(read)
    shown = {
        "waiting": [described(each) for each in rows],
        "causes": {name: _count(of) for name, of in causes.items()},
        "servers": count,
    }
    return Response(200, shown, finished=True)


ROUTES = (Route("GET", "/ext/waiting", index, params=LISTING),)
