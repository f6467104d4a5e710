"""What an embedded service answers to what its functions raise."""

import logging
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from typing_extensions import override

from moorage.model.errors import Conflict, Gone, Internal, NoCapacity, NotBuilt, Problem, TooManyRequests, Unavailable
from moorage.model.principal import Principal
from moorage_embedded.http_kit.answers import HttpFault, json_response
from moorage_embedded.http_kit.endpoint import UNEXPECTED, Endpoint, check_query


async def nobody(token: str) -> Principal:
    raise AssertionError("no request here has a token")


class FailingEndpoint(Endpoint):
    def __init__(self, failure: Exception) -> None:
        super().__init__(nobody)
        self.failure = failure

    @override
    async def answer(self, request: Request) -> Response:
        raise self.failure

    @override
    def refusal(self, request: Request, fault: HttpFault) -> Response:
        return json_response({"said": fault.message}, fault.status, fault.headers)


class AnsweringEndpoint(FailingEndpoint):
    answers_crashes = True


async def answer_to(failure: Exception, *, answers_crashes: bool = True) -> tuple[int, dict[str, str], str]:
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    async def send(message: Any) -> None:
        sent.append(message)

    endpoint = (AnsweringEndpoint if answers_crashes else FailingEndpoint)(failure)
    await endpoint({"type": "http", "method": "GET", "path": "/x", "headers": []}, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, sent[1]["body"].decode()


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (HttpFault(418, "no coffee"), 418),
        (Conflict("no coffee"), 409),
        (Gone("no coffee"), 400),
        (NotBuilt("no coffee"), 501),
        (Unavailable("no coffee"), 503),
        (TooManyRequests("no coffee", retry_after_s=1.2), 429),
    ],
)
async def test_a_refusal_has_the_status_of_its_kind(failure: Exception, status: int) -> None:
    told, headers, body = await answer_to(failure)
    assert (told, body) == (status, '{"said":"no coffee"}')
    assert headers.get("retry-after") == ("2" if status == 429 else None)


@pytest.mark.parametrize(
    "failure", [Internal("no coffee", private="the pot"), NoCapacity("no coffee"), KeyError("pot")]
)
async def test_what_went_wrong_inside_is_in_the_log_alone(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        status, _, body = await answer_to(failure)
    assert (status, body) == (500, f'{{"said":"{UNEXPECTED}"}}')
    assert len(caplog.records) == 1
    assert (failure.private if isinstance(failure, Problem) else "pot") in caplog.text


async def test_a_crash_may_be_left_to_the_server() -> None:
    with pytest.raises(KeyError):
        await answer_to(KeyError("pot"), answers_crashes=False)


async def test_a_caller_who_leaves_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    assert (await answer_to(ClientDisconnect()))[0] == 400
    assert caplog.records == []


def test_a_query_has_a_limit() -> None:
    request = Request({"type": "http", "path": "/x", "query_string": b"a=1&a=%C3%A4", "headers": []})
    assert check_query(request, 12) == [("a", "1"), ("a", "ä")]
    with pytest.raises(HttpFault) as refused:
        check_query(request, 11)
    assert refused.value.status == 400
