"""The table in which the embedded services find the handler of a path."""

import pytest
from starlette.requests import Request
from tests.pure.test_spans import Heard, heard

from moorage.model.tracing import SpanType, answering, span
from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.routing import RouteTable, path_parts

__all__ = ["heard"]

ROUTES = {
    "volumes": {"GET": "index", "POST": "create"},
    "volumes/{id}": {"GET": "show", "PUT": "update"},
    "volumes/detail": {"GET": "detail"},
    "volumes/{id}/tags/{tag}": {"PUT": "tag"},
}


def asked(method: str, path: str) -> Request:
    return Request({"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": []})


def wrong_method(method: str, allowed: list[str]) -> HttpFault:
    return HttpFault(405, f"not {method}", {"Allow": ", ".join(allowed)})


@pytest.mark.parametrize(
    ("method", "path", "handler", "named"),
    [
        ("GET", "/volumes", "index", {}),
        ("GET", "/volumes/detail", "detail", {}),  # a word goes before a name
        ("PUT", "/volumes/detail", "update", {"id": "detail"}),  # and a method of the name where the word has none
        ("PUT", "/volumes/v/tags/a%2Fb", "tag", {"id": "v", "tag": "a/b"}),
    ],
)
def test_a_path_leads_to_its_handler(method: str, path: str, handler: str, named: dict[str, str]) -> None:
    request = asked(method, path)
    assert RouteTable("volume", "/v3", ROUTES).find(request, path_parts(request.scope)) == handler
    assert request.path_params == named


@pytest.mark.parametrize("path", ["/", "/nothing", "/volumes/v/tags", "/volumes/v/labels/a"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    request = asked("PUT", path)
    with pytest.raises(HttpFault) as refused:
        RouteTable("volume", "/v3", ROUTES, wrong_method).find(request, path_parts(request.scope))
    assert refused.value.status == 404


def test_a_service_says_what_a_method_is_that_a_path_does_not_have() -> None:
    request = asked("DELETE", "/volumes/detail")
    parts = path_parts(request.scope)
    with pytest.raises(HttpFault) as refused:
        RouteTable("volume", "/v3", ROUTES, wrong_method).find(request, parts)
    assert (refused.value.status, refused.value.headers) == (405, {"Allow": "GET, PUT"})
    with pytest.raises(HttpFault) as refused:
        RouteTable("volume", "/v3", ROUTES).find(request, parts)
    assert refused.value.status == 404


def test_the_span_of_a_request_learns_its_template(heard: Heard) -> None:
    request = asked("GET", "/volumes/v")
    with span(SpanType.REQUEST, "volume", service="volume") as watched, answering(watched):
        RouteTable("volume", "/v3", ROUTES).find(request, path_parts(request.scope))
    assert heard.spans[0].facts["route"] == "/v3/volumes/{id}"
