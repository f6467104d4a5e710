"""2.80: Migrations say whose they are, and are found by it."""

from moorage.api.microversions import VersionChange

OWNER = ("user_id", "project_id")

CHANGE = VersionChange(
    at=(2, 80),
    summary="Migrations say whose they are, and are found by it.",
    adds={
        "GET /os-migrations": {"migrations": OWNER},
        "GET /servers/{id}/migrations": {"migrations": OWNER},
        "GET /servers/{id}/migrations/{migration}": {"migration": OWNER},
    },
)
