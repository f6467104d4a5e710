"""The parts of a process whose state is shown at a scrape; each role passes its own parts to `Observed.sees`."""

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
    """The parts of a process; a part that is None or empty is not shown."""

    databases: Mapping[str, Database] = field(default_factory=dict[str, Database])
    """Databases by the name under which they are shown: `region`, a cell's name, `placement`."""
    outboxes: bool = False
    """Whether this process writes notifications, so that some may wait."""
    engine: "Engine | None" = None
    bus: "Bus | None" = None
    hosts: "AgentClient | None" = None
    services: "Sequence[ServiceClient]" = ()
    agents: "Callable[[], Collection[Agent]]" = _none
    rounds: "ReconcileLoop | None" = None
    doors: "Mapping[str, HttpServer]" = field(default_factory=dict)
    proxy: "ConsoleProxy | None" = None
    region: "RegionProcess | None" = None
    """The region's parts, of a process that has them: it may be a conductor, also of cells."""

    @property
    def conductor(self) -> "Conductor | None":
        """The conductor of this process; None: it executes no operations."""
        return None if self.region is None else self.region.conductor

    @property
    def waker(self) -> "Waker | None":
        """What wakes boots that wait for a host, if this process conducts."""
        return None if self.region is None else self.region.waker

    @property
    def cells(self) -> "Sequence[CellConductor]":
        """The conductors of the cells whose hosts report to this process."""
        return () if self.region is None else self.region.cells


def of_region(
    region: "RegionProcess",
    rounds: "ReconcileLoop | None" = None,
    agents: "Callable[[], Collection[Agent]]" = _none,
    proxy: "ConsoleProxy | None" = None,
    doors: "Mapping[str, HttpServer] | None" = None,
) -> Sources:
    """Build the sources of a process that serves the API or executes operations."""
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
