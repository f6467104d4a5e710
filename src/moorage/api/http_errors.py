"""Kinds of problem → status and Nova's error body.  The Compute API takes the status of a problem from here; the
Placement API (`api/placement/app.py`) and the embedded services have bodies of their own, and statuses beside them."""

from moorage.api.schema import write_json
from moorage.model import errors
from moorage.model.errors import Problem

STATUS: dict[type[Problem], int] = {
    errors.Problem: 500,
    errors.Refusal: 400,
    errors.Invalid: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.OverQuota: 403,
    errors.NotFound: 404,
    errors.WrongMethod: 405,
    errors.NotAcceptable: 406,
    errors.Conflict: 409,
    errors.Stale: 409,
    errors.Overtaken: 409,
    errors.Doubtful: 409,
    errors.Gone: 410,
    errors.PreconditionFailed: 412,
    errors.TooLarge: 413,
    errors.WrongMediaType: 415,
    errors.TooManyRequests: 429,
    errors.NotBuilt: 501,
    errors.NoCapacity: 409,
    errors.HostFailed: 500,
    errors.Unavailable: 503,
    errors.CircuitOpen: 503,
    errors.UnknownOutcome: 503,
    errors.BusOut: 503,
    errors.HostUnanswered: 503,
    errors.Internal: 500,
}
"""Every kind; `tests/test_house.py` checks that none is missing."""

FAULT_NAMES = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}
"""Nova's; anything else is `computeFault`."""

MESSAGE_CHARACTERS_MAX = 4_000
UNEXPECTED = "Unexpected API Error. The request could not be completed; the operator's log has the reason under this request's id."


def status_of(problem: Problem) -> int:
    """The nearest ancestor's number."""
    for kind in type(problem).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 500


def fault(status: int, message: str) -> bytes:
    """Nova's error body; what a message repeats of the request is cut off."""
    if len(message) > MESSAGE_CHARACTERS_MAX:
        message = message[:MESSAGE_CHARACTERS_MAX] + "…"
    return write_json({FAULT_NAMES.get(status, "computeFault"): {"code": status, "message": message}})


def answer(problem: Problem) -> tuple[int, bytes]:
    """Status and body for a problem."""
    status = status_of(problem)
    if status == 401:
        return 401, UNAUTHENTICATED_BODY
    return status, fault(status, problem.public if status != 500 else problem.public or UNEXPECTED)


UNAUTHENTICATED_BODY = write_json(
    {
        "error": {
            "code": 401,
            "title": "Unauthorized",
            "message": "The request you have made requires authentication.",
        }
    }
)
"""As keystonemiddleware answers, in front of Nova."""
