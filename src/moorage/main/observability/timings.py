"""Turns spans into counters and histograms: requests, operations, steps, calls to other services, commands to hosts."""

from collections.abc import Callable
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from moorage.main.observability.metric_families import FAMILIES
from moorage.model.json_types import JsonObject
from moorage.model.tracing import Span, SpanType

SERIES_MAX = 4_000
"""Limit of label sets of one family in one process; further ones are counted under `other`."""
OTHER = "other"

Labels: TypeAlias = tuple[str, ...]
Count: TypeAlias = Callable[[], None]
Measure: TypeAlias = Callable[[float], None]


class Timings:
    """Counts and times spans; a `model.spans.Watcher`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._in_flight: Gauge = self._made(Gauge, "moorage_requests_in_flight")
        self._counters = {
            SpanType.REQUEST: self._made(Counter, "moorage_requests_total"),
            SpanType.OPERATION: self._made(Counter, "moorage_operations_told_total"),
            SpanType.CALL: self._made(Counter, "moorage_calls_total"),
            SpanType.COMMAND: self._made(Counter, "moorage_commands_total"),
            SpanType.OBEY: self._made(Counter, "moorage_agent_verbs_total"),
        }
        self._histograms = {
            SpanType.REQUEST: self._made(Histogram, "moorage_request_seconds"),
            SpanType.OPERATION: self._made(Histogram, "moorage_operation_seconds"),
            SpanType.STEP: self._made(Histogram, "moorage_step_seconds"),
            SpanType.CALL: self._made(Histogram, "moorage_call_seconds"),
            SpanType.COMMAND: self._made(Histogram, "moorage_command_seconds"),
            SpanType.DRIVE: self._made(Histogram, "moorage_agent_verb_seconds"),
        }
        self._counts: dict[SpanType, dict[Labels, Count]] = {}
        self._measures: dict[SpanType, dict[Labels, Measure]] = {}

    def _made(self, kind: type[Any], name: str) -> Any:
        family = FAMILIES[name]
        more: JsonObject = {"buckets": family.bounds_s} if kind is Histogram else {}
        return kind(name, family.help, family.labels, registry=self._registry, **more)

    def begun(self, span: Span) -> None:
        if span.kind is SpanType.REQUEST:
            self._in_flight.labels(span.facts["service"]).inc()

    def ended(self, span: Span, state: Any, failure: BaseException | None) -> None:
        if span.kind is SpanType.REQUEST:
            self._in_flight.labels(span.facts["service"]).dec()
        what = _what(span)
        if (counter := self._counters.get(span.kind)) is not None:
            counts = self._counts.setdefault(span.kind, {})
            (counts.get((*what, span.outcome)) or _child(counts, counter, (*what, span.outcome), "inc"))()
        if (histogram := self._histograms.get(span.kind)) is not None:
            measures = self._measures.setdefault(span.kind, {})
            (measures.get(what) or _child(measures, histogram, what, "observe"))(span.took_s)

    def traceparent(self) -> str:
        return ""


def _what(span: Span) -> Labels:
    """The labels of its kind, without its outcome, which comes last where it is one of them."""
    facts = span.facts
    match span.kind:
        case SpanType.REQUEST:
            return facts["service"], facts["method"], facts["route"]
        case SpanType.STEP:
            return span.name, facts["phase"]
        case SpanType.CALL:
            return facts["neighbour"], facts["call"]
        case _:
            return (span.name,)


def _child(known: dict[Labels, Any], family: Any, labels: Labels, act: str) -> Any:
    """Return the metric with these labels. It is cached, because looking it up takes longer than counting."""
    if len(known) >= SERIES_MAX:
        labels = (OTHER,) * len(labels)
        if (other := known.get(labels)) is not None:
            return other
    child = known[labels] = getattr(family.labels(*labels), act)
    return child
