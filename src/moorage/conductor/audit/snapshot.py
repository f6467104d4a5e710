"""What an audit compares: one page of servers, and what the services around them hold."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from moorage.model.ids import CellId, HostId, ProviderId, ServerId
from moorage.model.migration import Migration
from moorage.model.network import Port
from moorage.model.server import Server
from moorage.model.volume import Attachment
from moorage.store.cell.migrations import MoveState
from moorage.store.region.audit_reads import Held, Mapped


@dataclass
class SnapshotPage:
    """Servers and claims whose ids lie in one range, or that were asked for."""

    mapped: dict[ServerId, Mapped] = field(default_factory=dict[ServerId, Mapped])
    records: dict[ServerId, list[tuple[CellId, Server]]] = field(
        default_factory=dict[ServerId, list[tuple[CellId, Server]]]
    )
    gone: dict[ServerId, list[tuple[CellId, int]]] = field(default_factory=dict[ServerId, list[tuple[CellId, int]]])
    """Deleted records: the cell, and when."""
    hidden: Mapping[ServerId, frozenset[CellId]] = field(default_factory=dict[ServerId, frozenset[CellId]])
    """The cells that have, or may have, a record that is not shown; of those, `records` has none."""
    second: dict[ServerId, list[tuple[CellId, Server]]] = field(
        default_factory=dict[ServerId, list[tuple[CellId, Server]]]
    )
    """Living records that are not shown."""
    sealed: dict[ServerId, list[CellId]] = field(default_factory=dict[ServerId, list[CellId]])
    """Where the row of a record is sealed, shown or not."""
    held: dict[str, Held] = field(default_factory=dict[str, Held])
    """By consumer: servers, and moves."""
    moves: dict[ServerId, list[Migration]] = field(default_factory=dict[ServerId, list[Migration]])
    """Migrations that are open."""
    told: dict[str, MoveState] = field(default_factory=dict[str, MoveState])
    """What the cells say of the moves among the consumers."""
    devices: tuple[str, ...] = ()
    """Of ports, in this range."""
    guests: Mapping[ServerId, list[str]] = field(default_factory=dict[ServerId, list[str]])
    """Guests in this range, known or not: the hosts that reported them."""

    def free(self, server: ServerId) -> Mapped | None:
        """What the region knows of a server that no operation holds; None: it is held, or unknown."""
        where = self.mapped.get(server)
        return None if where is None or where.operation is not None else where

    def record(self, server: ServerId) -> Server | None:
        """The record that counts: in the cell that the region names."""
        where = self.mapped.get(server)
        rows = self.records.get(server, [])
        return next((row for cell, row in rows if where is not None and where.cell == cell), None)

    @property
    def settled(self) -> list[tuple[Mapped, Server]]:
        """Servers with one record in their cell, that no operation holds."""
        found: list[tuple[Mapped, Server]] = []
        for id, where in self.mapped.items():
            row = self.record(id)
            if row is not None and where.operation is None and not where.deleted:
                found.append((where, row))
        return found


@dataclass
class ServicesSnapshot:
    """What is around the servers; None: it was not looked at."""

    out: dict[str, str] = field(default_factory=dict[str, str])
    """Cells and services → why they were not looked at."""
    cells: frozenset[CellId] = frozenset()
    """Those that answered."""
    ports: Mapping[str, Mapping[str, Port]] | None = None
    """Device → its ports."""
    segments: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Subnet → its segment."""
    attachments: Mapping[str, list[Attachment]] | None = None
    """By server."""
    going: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Server → its volumes that are said to be going."""
    hosts: Mapping[HostId, str] = field(default_factory=dict[HostId, str])
    """Provider → the host's name."""
    below: Mapping[HostId, Collection[ProviderId]] = field(default_factory=dict[HostId, Collection[ProviderId]])
    """Host → the providers that may serve groups there: those below it, and those that share with it."""
    guests: Mapping[str, Collection[ServerId]] = field(default_factory=dict[str, Collection[ServerId]])
    """Host → the guests that it reported; a host that has not reported is not there."""
    wired: int = 0
    """Servers with ports that the first look saw."""
    inactive: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Port → the hosts of its inactive bindings, of servers that were moved lately."""

    @property
    def cells_complete(self) -> bool:
        """Every cell answered: a server that none of them has is in none."""
        return not any(each.startswith("cell ") for each in self.out)
