"""The tables of the configuration that say who may watch a process, and how."""

from typing import Annotated

import msgspec

from moorage.model.errors import Invalid

PORT_MAX = 65_535


class Metrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prometheus' metrics of each process, and its health, on a listener of their own: whoever reaches it may read them."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: there is no listener."""
    kept_s: float = 5.0
    """How old what was read from a database may be; no look at it sooner."""


class Tracing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Traces for OpenTelemetry (`pip install 'moorage[tracing]'`)."""

    endpoint: str = ""
    """Where a collector takes OTLP over HTTP: `http://127.0.0.1:4318/v1/traces`; empty: nothing is traced."""
    sample: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """The part of traces that is kept; all of one or nothing of it."""
    trust_callers: bool = False
    """A request is part of the trace that its caller names (`traceparent`), and is kept if that is."""


def check_watching(metrics: Metrics, tracing: Tracing) -> None:
    """Raises Invalid for numbers and addresses that cannot be meant."""
    if not 0 <= metrics.port <= PORT_MAX or metrics.kept_s <= 0:
        raise Invalid(f"[metrics] port is from 0 (none) to {PORT_MAX}, and kept_s a positive number")
    if tracing.endpoint and not tracing.endpoint.lower().startswith(("http://", "https://")):
        raise Invalid("[tracing] endpoint begins with http:// or https://")
