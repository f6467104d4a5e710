"""Metrics, health checks and traces of a process, each if it is configured.  What is not configured is neither imported nor made.

observed = await observe(config, "api")              # first: /healthz answers from now on
await doors["compute"].open(observed.app("compute", make_compute_app(region)))
observed.sees(of_region(region))                     # when all is there: /readyz may say 200
…
await observed.close()                               # last
"""

import platform
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from moorage.main.config import Config, Listen
from moorage.main.http_servers import HttpServer
from moorage.main.observability.requests import RequestMetrics
from moorage.main.observability.sources import Sources, of_region
from moorage.model.errors import Invalid
from moorage.model.tracing import watch

__all__ = ["Observed", "Sources", "observe", "of_region"]


class Watching(Protocol):
    """An observer that is given the process's parts, and is closed at the end."""

    def sees(self, sources: Sources) -> None: ...

    async def close(self) -> None: ...


class Sending(Protocol):
    """An observer that sends spans."""

    async def flush(self) -> None: ...


class Observed:
    """The observers of one process; often there are none."""

    tracing: Sending | None = None

    def __init__(self, *, wraps: bool = False, trust_callers: bool = False) -> None:
        self._wraps = wraps
        self._trust_callers = trust_callers
        self._metrics: Watching | None = None
        self._endings: list[Callable[[], Awaitable[None]]] = []

    def app(self, service: str, app: Any) -> Any:
        """Return the application; its requests are observed if metrics or traces are configured."""
        return RequestMetrics(service, app, trust_callers=self._trust_callers) if self._wraps else app

    def sees(self, sources: Sources) -> None:
        """Give the observers the parts of the process. The process serves from now on."""
        if self._metrics is not None:
            self._metrics.sees(sources)

    async def close(self) -> None:
        for end in reversed(self._endings):
            await end()

    async def begin(self, config: Config, role: str) -> None:
        """Start the configured observers. Raises Invalid when the port is in use, or when the libraries for tracing are missing."""
        if config.metrics.port:
            from moorage.main.observability.metrics import MetricsSet

            door = HttpServer("metrics", Listen(config.metrics.host, config.metrics.port), config)
            metrics = MetricsSet(role, door, kept_s=config.metrics.kept_s)
            await metrics.open()
            self._metrics = metrics
            self._endings.append(metrics.close)
        if config.tracing.endpoint:
            try:
                from moorage.main.observability.tracing import OtelWatcher
            except ImportError as missing:
                raise Invalid(
                    "[tracing] endpoint needs OpenTelemetry, which is not installed: pip install -c constraints.txt -e '.[tracing]' in the directory of Moorage's repository"
                    f" ({missing.name})"
                ) from missing
            name = config.agent.host if role == "agent" else f"{platform.node()}-{uuid.uuid4().hex[:8]}"
            tracing = OtelWatcher(config.tracing.endpoint, role=role, name=name, sample=config.tracing.sample)
            leave = watch(tracing)
            self.tracing = tracing

            async def end() -> None:
                leave()
                await tracing.close()

            self._endings.append(end)


async def observe(config: Config, role: str) -> Observed:
    """Start to observe this process, as `[metrics]` and `[tracing]` say.

    Raises Invalid when the port is in use, or when the libraries for tracing are missing.
    """
    observed = Observed(
        wraps=bool(config.metrics.port or config.tracing.endpoint), trust_callers=config.tracing.trust_callers
    )
    try:
        await observed.begin(config, role)
    except BaseException:
        await observed.close()
        raise
    return observed
