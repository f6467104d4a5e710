"""A collector of traces: takes OTLP over HTTP, as OpenTelemetry's own does, and keeps the spans."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from typing_extensions import override


@dataclass(frozen=True)
class Kept:
    """One span as it came."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    facts: dict[str, str]
    failed: bool


@dataclass
class Collector:
    url: str
    spans: dict[str, Kept] = field(default_factory=dict)
    """By id: a batch that was answered late is sent again."""

    def of(self, trace: str) -> list[Kept]:
        return [each for each in list(self.spans.values()) if each.trace == trace]

    def named(self, trace: str, name: str, kind: str) -> Kept:
        """The one of this trace."""
        (found,) = [each for each in self.of(trace) if each.name == name and each.kind == kind]
        return found

    def take(self, told: Any) -> None:
        for resource in told.resource_spans:
            service = next(
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            )
            for scope in resource.scope_spans:
                for span in scope.spans:
                    facts = {
                        each.key.removeprefix("moorage."): each.value.string_value or str(each.value.int_value)
                        for each in span.attributes
                    }
                    self.spans[span.span_id.hex()] = Kept(
                        service,
                        span.name,
                        facts.pop("kind"),
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        facts,
                        span.status.code == 2,
                    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """One that listens, on a free port, in threads of its own: it hears processes that stop while the test waits for them."""

    class Handler(BaseHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}/v1/traces")
    thread = Thread(target=server.serve_forever, name="collector")
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
