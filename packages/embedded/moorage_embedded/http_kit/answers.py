"""Answers: JSON, nothing, and the refusal that a service puts into the error body of its API."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from moorage.model.errors import bounded

encode = msgspec.json.Encoder().encode


class HttpFault(Exception):
    """A request is refused: the status, a sentence for the caller, and headers of the answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = bounded(message)
        self.headers = dict(headers or {})


def title_of(status: int) -> str:
    """What HTTP calls a status; newer Pythons say `Content Too Large` for 413, which OpenStack's services do not."""
    return "Request Entity Too Large" if status == 413 else HTTPStatus(status).phrase


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(content), status, headers, "application/json")


def empty_response(status: int = 204) -> Response:
    return Response(status_code=status)
