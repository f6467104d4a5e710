"""2.73: A lock may have a reason."""

from moorage.api.microversions import Change, Json
from moorage.model.errors import Invalid


def null_only(body: Json) -> None:
    if body["lock"] is not None:
        raise Invalid(
            f"Invalid input for field/attribute lock. Value: {body['lock']}. {body['lock']!r} is not of type 'null'"
        )


CHANGE = Change(
    at=(2, 73),
    says="A lock may have a reason.",
    adds={
        "GET /servers/detail": {"servers": ("locked_reason",)},
        "GET /servers/{id}": {"server": ("locked_reason",)},
        "PUT /servers/{id}": {"server": ("locked_reason",)},
    },
    refuses={"POST /servers/{id}/action:lock": {"lock": ("locked_reason",)}},
    loosens={"POST /servers/{id}/action:lock": null_only},
)
