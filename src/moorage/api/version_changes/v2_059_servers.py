"""2.59: Migrations are paged, newest first, and have UUIDs."""

from moorage.api.microversions import VersionChange

PAGED = (2, 59)

CHANGE = VersionChange(
    at=(2, 59),
    summary="Migrations are paged, newest first, and have UUIDs.",
    adds={
        "GET /os-migrations": {"migrations": ("uuid",), "": ("migrations_links",)},
        "GET /servers/{id}/migrations": {"migrations": ("uuid",)},
        "GET /servers/{id}/migrations/{migration}": {"migration": ("uuid",)},
    },
    behaviour=("PAGED: before, all were listed in the order in which they began",),
)
