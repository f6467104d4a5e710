"""What goes wrong, in Cinder's shape: `{"badRequest": {"code", "message"}}`, under the name that belongs to the status."""

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, json_response

NAMES = {
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


def bad(message: str) -> HttpFault:
    return HttpFault(400, message)


def invalid_input(reason: str) -> HttpFault:
    return HttpFault(400, f"Invalid input received: {reason}")


def invalid_volume(reason: str) -> HttpFault:
    return HttpFault(400, f"Invalid volume: {reason}")


def invalid_snapshot(reason: str) -> HttpFault:
    return HttpFault(400, f"Invalid snapshot: {reason}")


def invalid_group(reason: str) -> HttpFault:
    return HttpFault(400, f"Invalid Group: {reason}")


def invalid_group_snapshot(reason: str) -> HttpFault:
    return HttpFault(400, f"Invalid GroupSnapshot: {reason}")


def invalid_group_type(reason: str) -> HttpFault:
    return HttpFault(400, f"Invalid group type: {reason}")


def forbidden(rule: str) -> HttpFault:
    return HttpFault(403, f"Policy doesn't allow {rule} to be performed.")


def no_volume(id: str) -> HttpFault:
    return HttpFault(404, f"Volume {id} could not be found.")


def no_snapshot(id: str) -> HttpFault:
    return HttpFault(404, f"Snapshot {id} could not be found.")


def no_attachment(id: str) -> HttpFault:
    return HttpFault(404, f"Volume attachment could not be found with filter: attachment_id = {id}.")


def no_type(id: str) -> HttpFault:
    return HttpFault(404, f"Volume type {id} could not be found.")


def no_group(id: str) -> HttpFault:
    return HttpFault(404, f"Group {id} could not be found.")


def no_group_snapshot(id: str) -> HttpFault:
    return HttpFault(404, f"GroupSnapshot {id} could not be found.")


def no_group_type(id: str) -> HttpFault:
    return HttpFault(404, f"Group type {id} could not be found.")


def conflict(message: str) -> HttpFault:
    return HttpFault(409, message)


def over_limit(message: str) -> HttpFault:
    return HttpFault(413, message, {"Retry-After": "0"})


def nova_uses_it(server: str) -> HttpFault:
    """CVE-2023-2088: a detach without compute would leave a host with a device that later belongs to another user."""
    return HttpFault(
        409,
        "Detach volume from instance"
        f"{f' {server}' if server else ''} using the Compute API: only a request with a service token may end this attachment.",
    )


def answer_of(fault: HttpFault) -> Response:
    body: dict[str, object] = {"code": fault.status, "message": fault.message}
    if fault.status == 413 and (after := fault.headers.get("Retry-After")) is not None:
        body["retryAfter"] = after
    name = NAMES.get(fault.status, "computeFault")
    return json_response({name: body}, fault.status, fault.headers)
