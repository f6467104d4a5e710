"""A collector of traces: takes OTLP over HTTP, as OpenTelemetry's own does, and keeps the spans."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from moorage.main.config import Listen
from moorage.main.servers import Doorway
from moorage.testing.ports import free_ports


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
    spans: list[Kept] = field(default_factory=list)

    def of(self, trace: str) -> list[Kept]:
        return [each for each in self.spans if each.trace == trace]

    def named(self, trace: str, name: str, kind: str) -> Kept:
        """The one of this trace."""
        (found,) = [each for each in self.of(trace) if each.name == name and each.kind == kind]
        return found

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if dict(scope["headers"]).get(b"content-encoding", b"") not in {b"", b"identity"}:
            raise AssertionError("what is packed is not read here")
        self._take(ExportTraceServiceRequest.FromString(body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def _take(self, told: Any) -> None:
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
                    self.spans.append(
                        Kept(
                            service,
                            span.name,
                            facts.pop("kind"),
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            facts,
                            span.status.code == 2,
                        )
                    )


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """One that listens, on a free port."""
    port = free_ports(1)[0]
    collector = Collector(f"http://127.0.0.1:{port}/v1/traces")
    door = Doorway("collector", Listen(port=port))
    await door.open(collector)
    try:
        yield collector
    finally:
        await door.close()
        await asyncio.sleep(0)
