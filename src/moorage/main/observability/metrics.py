"""The metrics of one process, and its listener."""

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, disable_created_metrics

from moorage.main.http_servers import HttpServer
from moorage.main.observability.database_reads import CachedReads
from moorage.main.observability.listener import MetricsListener
from moorage.main.observability.process_metrics import ProcessMetricsCollector, unanswered
from moorage.main.observability.sources import Sources
from moorage.main.observability.timings import Timings
from moorage.model.tracing import watch

PICTURE_OLD_S = 30.0
"""A process whose provider cache is older than this works with outdated values."""


class MetricsSet:
    """Metrics of one process, and the listener that shows them (see `observe`)."""

    def __init__(self, role: str, door: HttpServer, *, kept_s: float) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._door = door
        self._serves = False
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.reads = CachedReads(kept_s)
        self._state = ProcessMetricsCollector(role, self.reads, lambda: not self.troubles())
        self.registry.register(self._state)
        self._leave = watch(Timings(self.registry))

    async def open(self) -> None:
        await self._door.open(MetricsListener(self.registry, self.reads.refresh, self.troubles))

    def sees(self, sources: Sources) -> None:
        self._state.sources = sources
        self.reads.at(sources.databases, conducts=sources.conductor is not None, outboxes=sources.outboxes)
        self._serves = True

    def troubles(self) -> list[str]:
        """Return why this process is not ready, a line each; none: it is ready."""
        if not self._serves:
            return ["it is starting"]
        sources = self._state.sources
        lines = [
            f"the {name} database does not answer"
            for name in unanswered(self.reads.of)
            if name in {"region", "placement"}
        ]
        if sources.bus is not None and not sources.bus.healthy:
            lines.append("the message bus is out")
        if sources.conductor is not None and not sources.conductor.alive:
            lines.append("the conductor's lease does not hold")
        if sources.engine is not None and sources.engine.age_s > PICTURE_OLD_S:
            lines.append(f"the provider cache is {sources.engine.age_s:.0f} s old")
        agents = sources.agents()
        if agents and not any(agent.home.is_set() for agent in agents):
            lines.append("no agent of this process is home")
        return lines

    async def close(self) -> None:
        self._leave()
        await self._door.close()
        await self.reads.close()
