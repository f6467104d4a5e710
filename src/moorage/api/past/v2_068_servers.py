"""2.68: No live migration is forced to a host."""

from moorage.api.microversions import Change

CHANGE = Change(
    at=(2, 68),
    says="No live migration is forced to a host.",
    refuses_from={"POST /servers/{id}/action:os-migrateLive": {"os-migrateLive": ("force",)}},
)
