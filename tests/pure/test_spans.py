"""Spans: what they contain, and who receives them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from moorage.clients.http import ServiceClient
from moorage.main.observability.requests import RequestMetrics, traceparent_of
from moorage.main.observability.timings import OTHER, Timings
from moorage.main.observability.tracing import OtelWatcher
from moorage.model.tracing import UNSEEN, Span, SpanType, answering, request, span, traceparent, watch, watched

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Heard:
    """Keeps what it hears."""

    def __init__(self, carries: str = "") -> None:
        self.spans: list[Span] = []
        self.failures: list[BaseException | None] = []
        self.carries = carries

    def begun(self, span: Span) -> int:
        self.spans.append(span)
        return len(self.spans) - 1

    def ended(self, span: Span, state: Any, failure: BaseException | None) -> None:
        assert self.spans[state] is span
        self.failures.append(failure)

    def traceparent(self) -> str:
        return self.carries


@pytest.fixture
def heard() -> Iterator[Heard]:
    found = Heard()
    leave = watch(found)
    yield found
    leave()


def test_without_tracing_no_span_is_made() -> None:
    assert not watched()
    with span(SpanType.STEP, "a", saga="boot/1") as doing:
        doing.annotate(tries=1)
        doing.came_to("failed")
        doing.called("b")
        assert doing is UNSEEN
    assert (UNSEEN.facts, UNSEEN.outcome, UNSEEN.name) == ({}, "", "")
    assert traceparent() == ""


def test_a_span_has_its_outcome(heard: Heard) -> None:
    with span(SpanType.STEP, "well"):
        pass
    with span(SpanType.CALL, "said") as doing:
        doing.came_to("201")
    with pytest.raises(ValueError, match="no"), span(SpanType.STEP, "broken"):
        raise ValueError("no")
    with pytest.raises(asyncio.CancelledError), span(SpanType.STEP, "left"):
        raise asyncio.CancelledError
    assert [each.outcome for each in heard.spans] == ["ok", "201", "ValueError", "cancelled"]
    assert [type(each) for each in heard.failures] == [type(None), type(None), ValueError, asyncio.CancelledError]
    assert all(each.took_s >= 0 for each in heard.spans)


def test_a_removed_listener_receives_nothing(heard: Heard) -> None:
    second = Heard("00-trace")
    leave = watch(second)
    with span(SpanType.STEP, "a"):
        assert traceparent() == "00-trace"
        leave()
    assert (len(heard.failures), len(second.failures)) == (1, 1)  # what began while it watched is ended for it
    with span(SpanType.STEP, "b"):
        assert traceparent() == ""
    assert (len(heard.spans), len(second.spans)) == (2, 1)


def test_a_request_has_a_span_at_the_answering_service(heard: Heard) -> None:
    with span(SpanType.REQUEST, "compute", seed="req-1", service="compute") as asked, answering(asked):
        assert request("compute").seed == "req-1"
        request("image").annotate(route="/v2/images")  # asked inside, on its behalf
        request("compute").annotate(route="/servers")
    assert request("compute") is UNSEEN
    assert heard.spans[0].facts["route"] == "/servers"


async def served(app: Any, headers: list[tuple[bytes, bytes]], *, trust: bool, method: str = "GET") -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "headers": headers, "path": "/x"}
    await RequestMetrics("compute", app, trust_callers=trust)(scope, _nothing, send)  # type: ignore[arg-type]
    return sent


async def _nothing() -> Any:
    return {"type": "http.request"}


async def _answers(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404})


async def _breaks(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError


@pytest.mark.parametrize(("trust", "parent"), [(True, f"00-{TRACE}-{PARENT}-01"), (False, "")])
async def test_a_clients_trace_is_accepted_only_where_trusted(heard: Heard, trust: bool, parent: str) -> None:
    await served(_answers, [(b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())], trust=trust)
    (asked,) = heard.spans
    assert (asked.parent, asked.outcome, asked.name) == (parent, "404", "GET none")
    assert asked.seed.startswith("req-")


async def test_a_method_of_somebodys_making_is_no_label(heard: Heard) -> None:
    await served(_answers, [], trust=False, method="BREW")
    with pytest.raises(RuntimeError):
        await served(_breaks, [], trust=False)
    assert [(each.facts["method"], each.outcome) for each in heard.spans] == [("other", "404"), ("GET", "500")]


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"00",
        b"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        b"00-00000000000000000000000000000000-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
        b"x" * 65536,
    ],
)
def test_an_invalid_traceparent_is_ignored(told: bytes) -> None:
    assert traceparent_of([(b"traceparent", told)]) == ""


def test_two_traceparents_are_none() -> None:
    told = (b"Traceparent", f"00-{TRACE}-{PARENT}-01".encode())
    assert traceparent_of([told]) == f"00-{TRACE}-{PARENT}-01"
    assert traceparent_of([told, told]) == ""


def test_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.main.observability.timings.SERIES_MAX", 3)
    registry = CollectorRegistry()
    leave = watch(Timings(registry))
    try:
        for number in range(10):
            with span(SpanType.STEP, f"step{number}", phase="do"):
                pass
    finally:
        leave()
    count = "moorage_step_seconds_count"
    assert registry.get_sample_value(count, {"step": "step2", "phase": "do"}) == 1
    assert registry.get_sample_value(count, {"step": "step3", "phase": "do"}) is None
    assert registry.get_sample_value(count, {"step": OTHER, "phase": OTHER}) == 7


@pytest.fixture
async def tracing() -> AsyncIterator[OtelWatcher]:
    """It keeps nothing of its own, so nothing is sent to where nobody listens."""
    found = OtelWatcher("http://127.0.0.1:1/v1/traces", role="test", name="test", sample=0.0)
    leave = watch(found)
    yield found
    leave()
    await found.close()


async def test_the_not_sampled_flag_is_passed_on(tracing: OtelWatcher) -> None:
    """So that nobody further on keeps a part of it."""
    with span(SpanType.REQUEST, "a", seed="req-0af76519-16cd-43dd-8448-eb211c80319c", service="compute"):
        told = traceparent()
        assert told.startswith(f"00-{TRACE}-")
        assert told.endswith("-00")
        with span(SpanType.CALL, "b"):
            assert traceparent() == told
        assert traceparent() == told
    assert traceparent() == ""


async def test_called_services_receive_the_trace(tracing: OtelWatcher) -> None:
    calls: list[str | None] = []

    def answer(asked: httpx.Request) -> httpx.Response:
        calls.append(asked.headers.get("traceparent"))
        return httpx.Response(200, json={})

    neighbour = ServiceClient("network", "http://network/v2.0", transport=httpx.MockTransport(answer))
    await neighbour.call("GET", "/ports", token="t")
    with span(SpanType.OPERATION, "boot/1", parent=f"00-{TRACE}-{PARENT}-00"):
        await neighbour.call("GET", "/ports", token="t")
    await neighbour.close()
    assert calls == [None, f"00-{TRACE}-{PARENT}-00"]


async def test_a_given_trace_overrides_the_current_one(tracing: OtelWatcher) -> None:
    with span(SpanType.REQUEST, "a", service="compute"):
        around = traceparent()
        with span(SpanType.OBEY, "start_guest", parent=f"00-{TRACE}-{PARENT}-00"):
            assert traceparent() == f"00-{TRACE}-{PARENT}-00"
        assert traceparent() == around
        with span(SpanType.OPERATION, "boot/1", parent="nonsense", seed="nonsense"):
            assert traceparent()[:35] not in {around[:35], f"00-{TRACE}"}


async def test_without_a_trace_none_is_started(tracing: OtelWatcher) -> None:
    with span(SpanType.CALL, "network GET ports"):
        assert traceparent() == ""


@pytest.mark.slow
def test_without_tracing_its_packages_are_not_imported() -> None:
    asks = (
        "import sys, moorage.main.up, moorage.main.placement_role; from moorage.main.roles import ROLES, role_of;"
        "[role_of(each) for each in ROLES];"
        "print([each for each in sys.modules if each.split('.')[0] in ('prometheus_client', 'opentelemetry')])"
    )
    reply = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert reply.stdout.strip() == "[]"
