"""`/os-migrations`: moves of servers.  None is made yet, so the list is empty; its filters are judged all the same."""

from typing import Any

from moorage.api.call import Call, Reply
from moorage.api.routes import NUMBER, TEXT, Param, Params, Route
from moorage.model.errors import Invalid

RULE = "os_compute_api:os-migrations:index"
MOMENT = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"


async def index(call: Call[Any]) -> Reply:
    call.require(RULE)
    if call.asker.project is None or call.first("project_id") not in {None, call.asker.project}:
        call.require(RULE + ":all_projects")
    if call.first("host") or call.first("source_compute"):
        call.require(RULE + ":host")
    since, before = call.first("changes-since"), call.first("changes-before")
    if since and before and before < since:
        raise Invalid("The value of changes-since must be less than or equal to changes-before.")
    if marker := call.first("marker"):
        raise Invalid(f"Marker {marker} could not be found.")
    return Reply(body={"migrations": []})


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
)
