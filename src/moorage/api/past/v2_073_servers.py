"""2.73: A lock may have a reason."""

from moorage.api.microversions import Change

CHANGE = Change(
    at=(2, 73),
    says="A lock may have a reason.",
    adds={
        "GET /servers/detail": {"servers": ("locked_reason",)},
        "GET /servers/{id}": {"server": ("locked_reason",)},
        "PUT /servers/{id}": {"server": ("locked_reason",)},
    },
)
