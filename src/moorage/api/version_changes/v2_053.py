"""2.53: services and hypervisors are known by UUIDs."""

from moorage.api.microversions import Json, VersionChange, rows_at

BY_UUID = (2, 53)
PAST = ("past_id",)
HYPERVISORS = (
    "GET /os-hypervisors",
    "GET /os-hypervisors/detail",
    "GET /os-hypervisors/{id}",
    "GET /os-hypervisors/{id}/uptime",
)


def numbers_for_ids(body: Json) -> Json:
    for place in ("services", "hypervisors", "hypervisor", "hypervisors.service", "hypervisor.service"):
        for row in rows_at(body, place):
            _number(row)
            if isinstance(row.get("service"), dict):
                _number(row["service"])
    return body


def _number(row: Json) -> None:
    if "past_id" in row:
        row["id"] = row.pop("past_id")


CHANGE = VersionChange(
    at=(2, 53),
    summary="Ids of services and hypervisors are UUIDs; a service is changed by id; hypervisors are searched by query.",
    retires={
        "GET /os-services": {"services": PAST},
        "PUT /os-services/{id}": {"service": PAST},
        "GET /os-hypervisors": {"hypervisors": PAST},
        "GET /os-hypervisors/detail": {"hypervisors": PAST, "hypervisors.service": PAST},
        "GET /os-hypervisors/{id}": {"hypervisor": PAST, "hypervisor.service": PAST},
        "GET /os-hypervisors/{id}/uptime": {"hypervisor": PAST},
    },
    response={
        "GET /os-services": numbers_for_ids,
        "GET /os-hypervisors/{id}/search": numbers_for_ids,
        "GET /os-hypervisors/{id}/servers": numbers_for_ids,
        **dict.fromkeys(HYPERVISORS, numbers_for_ids),
    },
    ends=("GET /os-hypervisors/{id}/search", "GET /os-hypervisors/{id}/servers"),
    behaviour=("BY_UUID: paths name services and hypervisors by UUID, and what to do with a service is in the body.",),
)
