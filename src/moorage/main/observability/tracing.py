"""Sends spans to OpenTelemetry: one trace from a request through the operation, its steps, other services and hosts, and back.

The parts of a trace are in several processes and far apart in time.  The `traceparent` is passed on: in the first record of the
operation's journal, in a header of each call to another service, and in each command to a host.  If a process in between does not trace
and passes nothing on, the trace id is the request id without `req-` and dashes, so the parts still belong to one trace.

Work outside a trace (a reconciler's calls, a host's own work) starts no trace: otherwise each heartbeat would make one.
"""

import asyncio
import logging
import secrets
from contextvars import ContextVar
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace import Span as TelemetrySpan
from typing_extensions import override

from moorage import __version__
from moorage.main.observability.requests import traceparent_of
from moorage.model.tracing import CANCELLED, OK, Span, SpanType

logger = logging.getLogger(__name__)

EXPORT_TIMEOUT_S = 5.0
WAITING_SPANS_MAX = 8_192
"""Limit of spans that wait to be sent; further ones are dropped."""
BATCH_SPANS_MAX = 512
FACT_CHARS_MAX = 256
LETS_GO_S = 6.0
"""How long the end of the process waits until the remaining spans are sent."""

BEGIN_TRACES = frozenset({SpanType.REQUEST, SpanType.OPERATION, SpanType.OBEY})
"""Spans whose parent is the `traceparent` that was passed to them, never the span that is active around them."""
KINDS = {
    SpanType.REQUEST: SpanKind.SERVER,
    SpanType.OPERATION: SpanKind.CONSUMER,
    SpanType.STEP: SpanKind.INTERNAL,
    SpanType.CALL: SpanKind.CLIENT,
    SpanType.COMMAND: SpanKind.CLIENT,
    SpanType.OBEY: SpanKind.SERVER,
    SpanType.DRIVE: SpanKind.INTERNAL,
}
WELL = frozenset({OK, "done", CANCELLED, "left", "asleep"})
_NOTHING = Context()
_wanted: ContextVar[int] = ContextVar("moorage_trace_id", default=0)
_doing: ContextVar[TelemetrySpan | None] = ContextVar("moorage_telemetry_span", default=None)


class _Ids(IdGenerator):
    """Makes random ids; the id of a trace with a request id follows from that."""

    @override
    def generate_span_id(self) -> int:
        return secrets.randbits(64) or 1

    @override
    def generate_trace_id(self) -> int:
        return _wanted.get() or secrets.randbits(128) or 1


class _Begun(NamedTuple):
    ours: TelemetrySpan | None
    """The span of OpenTelemetry; None: this trace is not kept."""
    around: TelemetrySpan | None


class OtelWatcher:
    """Sends spans to a collector; a `model.spans.Watcher`."""

    def __init__(self, endpoint: str, *, role: str, name: str, sample: float) -> None:
        """`endpoint`: where a collector takes OTLP over HTTP; `name`: which process of the role; `sample`: the part of traces that is kept."""
        resource = Resource(
            {
                "service.name": f"moorage-{role}",
                "service.namespace": "moorage",
                "service.version": __version__,
                "service.instance.id": name,
            }
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample)),
            resource=resource,
            id_generator=_Ids(),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=WAITING_SPANS_MAX,
                max_export_batch_size=BATCH_SPANS_MAX,
                export_timeout_millis=EXPORT_TIMEOUT_S * 1000,
            )
        )
        self._tracer = self._provider.get_tracer("moorage", __version__)

    def begun(self, span: Span) -> _Begun | None:
        around = _doing.get()
        if span.kind in BEGIN_TRACES:
            parent = _carried(span.parent)
        elif around is None:
            return None
        else:
            parent = around
        if parent is not None and not parent.get_span_context().trace_flags.sampled:
            _doing.set(parent)  # this trace is not kept: it is passed on, and no span is made
            return _Begun(None, around)
        if parent is None:
            token = _wanted.set(_trace_id(span.seed))
            try:
                ours = self._tracer.start_span(span.name, context=_NOTHING, kind=KINDS[span.kind])
            finally:
                _wanted.reset(token)
        else:
            ours = self._tracer.start_span(
                span.name, context=trace.set_span_in_context(parent, _NOTHING), kind=KINDS[span.kind]
            )
        _doing.set(ours)
        return _Begun(ours, around)

    def ended(self, span: Span, state: Any, failure: BaseException | None) -> None:
        if not isinstance(state, _Begun):
            return
        _doing.set(state.around)  # not a token's reset: a generator may end in another context than it began in
        ours = state.ours
        if ours is None:
            return
        if ours.is_recording():
            if span.kind is SpanType.REQUEST:
                ours.update_name(span.name)
            facts: dict[str, str | int] = {"moorage.kind": span.kind.value, "moorage.outcome": span.outcome}
            if span.seed and span.kind in BEGIN_TRACES:
                facts["moorage.request_id"] = span.seed
            for name, value in span.facts.items():
                facts[f"moorage.{name}"] = value if isinstance(value, int) else str(value)[:FACT_CHARS_MAX]
            ours.set_attributes(facts)
            if _is_bad(span.outcome):
                ours.set_status(Status(StatusCode.ERROR, span.outcome))
        ours.end()

    def traceparent(self) -> str:
        doing = _doing.get()
        if doing is None:
            return ""
        context = doing.get_span_context()
        return (
            f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}" if context.is_valid else ""
        )

    async def flush(self) -> None:
        """Send the waiting spans now."""
        await asyncio.to_thread(self._provider.force_flush)

    async def close(self) -> None:
        """Send the waiting spans, for at most `LETS_GO_S`."""
        ending = asyncio.get_running_loop().run_in_executor(None, self._provider.shutdown)
        done, _ = await asyncio.wait([ending], timeout=LETS_GO_S)
        if not done:
            logger.warning("some spans were not sent: the collector does not answer")


def _carried(traceparent: str) -> TelemetrySpan | None:
    """The span that a `traceparent` names; None: it names none."""
    if not traceparent or not traceparent_of([(b"traceparent", traceparent.encode("ascii", "replace"))]):
        return None
    _, trace_id, span_id, flags = traceparent.split("-")
    context = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16) & 1)
    )
    return NonRecordingSpan(context)


def _trace_id(request_id: str) -> int:
    """The trace id that follows from one of our request ids: without `req-` and dashes; 0: use a random one."""
    digits = request_id.removeprefix("req-").replace("-", "")
    try:
        return int(digits, 16) if len(digits) == 32 else 0
    except ValueError:
        return 0


def _is_bad(outcome: str) -> bool:
    return outcome not in WELL and not (outcome.isdigit() and int(outcome) < 500)
