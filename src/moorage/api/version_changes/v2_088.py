"""2.88: how full a host is, is placement's to tell."""

from moorage.api.microversions import VersionChange

FILL_IS_PLACEMENTS = (2, 88)
UPTIME = ("uptime",)

CHANGE = VersionChange(
    at=(2, 88),
    summary="Hypervisors show `uptime`, and no longer how full they are; their statistics are gone.",
    adds={"GET /os-hypervisors/detail": {"hypervisors": UPTIME}, "GET /os-hypervisors/{id}": {"hypervisor": UPTIME}},
    ends=("GET /os-hypervisors/statistics", "GET /os-hypervisors/{id}/uptime"),
    behaviour=("FILL_IS_PLACEMENTS: the numbers are not even read.",),
)
