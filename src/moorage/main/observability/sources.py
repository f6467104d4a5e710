"""What of a process is looked at when somebody scrapes it: each role says what it has (`Observed.sees`)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moorage.sql import Database

if TYPE_CHECKING:  # a process that has little of this should not have to load the rest
    from moorage.agent.agent import Agent
    from moorage.api.console.app import ConsoleProxy
    from moorage.bus.agent_rpc import AgentClient
    from moorage.bus.transport import Bus
    from moorage.clients.http import ServiceClient
    from moorage.conductor.cell_conductor import CellConductor
    from moorage.conductor.reconcile_loop import ReconcileLoop
    from moorage.conductor.waking import Waker
    from moorage.conductor.worker import Conductor
    from moorage.main.composition import RegionProcess
    from moorage.main.http_servers import HttpServer
    from moorage.placement.engine import Engine


def _none() -> "tuple[Agent, ...]":
    return ()


@dataclass(frozen=True)
class Sources:
    """What there is; what is None or empty is not shown."""

    databases: Mapping[str, Database] = field(default_factory=dict[str, Database])
    """By the name that they are shown under: `region`, cells, `placement`."""
    outboxes: bool = False
    """Whether notifications are written, so that they may wait."""
    engine: "Engine | None" = None
    bus: "Bus | None" = None
    hosts: "AgentClient | None" = None
    services: "Sequence[ServiceClient]" = ()
    agents: "Callable[[], Collection[Agent]]" = _none
    rounds: "ReconcileLoop | None" = None
    doors: "Mapping[str, HttpServer]" = field(default_factory=dict)
    proxy: "ConsoleProxy | None" = None
    region: "RegionProcess | None" = None
    """Of a process that has one: it may be a conductor, and of cells."""

    @property
    def conductor(self) -> "Conductor | None":
        """None: this process tells nothing."""
        return None if self.region is None else self.region.conductor

    @property
    def waker(self) -> "Waker | None":
        """What wakes boots that wait for a host, if this process conducts."""
        return None if self.region is None else self.region.waker

    @property
    def cells(self) -> "Sequence[CellConductor]":
        """Those whose hosts this process listens to."""
        return () if self.region is None else self.region.cells


def of_region(
    region: "RegionProcess",
    rounds: "ReconcileLoop | None" = None,
    agents: "Callable[[], Collection[Agent]]" = _none,
    proxy: "ConsoleProxy | None" = None,
    doors: "Mapping[str, HttpServer] | None" = None,
) -> Sources:
    """Of a process that serves the API or executes operations."""
    return Sources(
        databases=region.databases.by_name,
        outboxes=region.notifications is not None,
        engine=region.engine,
        bus=region.bus,
        hosts=region.context.hosts,
        services=region.clients.services,
        agents=agents,
        rounds=rounds,
        proxy=proxy,
        doors=doors or {},
        region=region,
    )
