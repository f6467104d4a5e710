"""2.28: a hypervisor's `cpu_info` is an object, not text that holds one."""

from moorage.api.microversions import Json, VersionChange, rows_at
from moorage.api.schema import write_json


def cpu_info_as_text(body: Json) -> Json:
    for place in ("hypervisor", "hypervisors"):
        for row in rows_at(body, place):
            if "cpu_info" in row:
                row["cpu_info"] = write_json(row["cpu_info"]).decode()
    return body


CHANGE = VersionChange(
    at=(2, 28),
    summary="`cpu_info` of a hypervisor is a JSON object.",
    response={"GET /os-hypervisors/detail": cpu_info_as_text, "GET /os-hypervisors/{id}": cpu_info_as_text},
)
