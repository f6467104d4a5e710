"""Tables of the configuration for metrics, health checks and traces."""

from typing import Annotated

import msgspec

from moorage.model.errors import Invalid

PORT_MAX = 65_535


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Metrics for Prometheus and health checks of each process, on a listener of their own without authentication."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: there is no listener."""
    kept_s: float = 5.0
    """How long values that were read from a database are kept; it is not read again sooner."""


class TracingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Traces for OpenTelemetry (the extra `tracing`)."""

    endpoint: str = ""
    """Where a collector takes OTLP over HTTP: `http://127.0.0.1:4318/v1/traces`; empty: nothing is traced."""
    sample: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """The part of all traces that is kept. A trace is kept whole or not at all."""
    trust_callers: bool = False
    """Whether a request becomes part of the trace that its caller names (`traceparent`), and is kept if the caller keeps it."""


def check_watching(metrics: MetricsConfig, tracing: TracingConfig) -> None:
    """Check `[metrics]` and `[tracing]`. Raises Invalid for numbers and addresses that make no sense."""
    if not 0 <= metrics.port <= PORT_MAX or metrics.kept_s <= 0:
        raise Invalid(f"[metrics] port is from 0 (none) to {PORT_MAX}, and kept_s a positive number")
    if tracing.endpoint and not tracing.endpoint.lower().startswith(("http://", "https://")):
        raise Invalid("[tracing] endpoint begins with http:// or https://")
