"""2.23: The migrations of one server are listed."""

from moorage.api.microversions import Change

CHANGE = Change(
    at=(2, 23),
    says="The migrations of one server are listed.",
    begins=("GET /servers/{id}/migrations", "GET /servers/{id}/migrations/{migration}"),
)
