"""2.6: Consoles are asked for at one place, whatever their kind."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 6),
    summary="Consoles are asked for at one place, whatever their kind.",
    begins=("POST /servers/{id}/remote-consoles",),
    ends=(
        "POST /servers/{id}/action:os-getVNCConsole",
        "POST /servers/{id}/action:os-getSPICEConsole",
        "POST /servers/{id}/action:os-getSerialConsole",
        "POST /servers/{id}/action:os-getRDPConsole",
    ),
)
