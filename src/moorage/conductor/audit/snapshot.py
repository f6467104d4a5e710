"""The data that an audit compares: one page of servers, and the state of the services around them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from moorage.model.guest_devices import GuestDevices
from moorage.model.ids import CellId, HostId, ProviderId, ServerId
from moorage.model.migration import Migration
from moorage.model.network import Port
from moorage.model.server import Server
from moorage.model.volume import Attachment, Volume
from moorage.store.cell.migrations import MoveState
from moorage.store.region.audit_reads import ConsumerHoldings, Mapped


@dataclass
class SnapshotPage:
    """Servers and claims whose ids are in one range, or that were requested."""

    mapped: dict[ServerId, Mapped] = field(default_factory=dict[ServerId, Mapped])
    records: dict[ServerId, list[tuple[CellId, Server]]] = field(
        default_factory=dict[ServerId, list[tuple[CellId, Server]]]
    )
    gone: dict[ServerId, list[tuple[CellId, int]]] = field(default_factory=dict[ServerId, list[tuple[CellId, int]]])
    """Deleted records: the cell, and the time."""
    hidden: Mapping[ServerId, frozenset[CellId]] = field(default_factory=dict[ServerId, frozenset[CellId]])
    """The cells that have, or may have, a hidden record; `records` has none of those."""
    second: dict[ServerId, list[tuple[CellId, Server]]] = field(
        default_factory=dict[ServerId, list[tuple[CellId, Server]]]
    )
    """Hidden records that are not deleted."""
    sealed: dict[ServerId, list[CellId]] = field(default_factory=dict[ServerId, list[CellId]])
    """Cells with a sealed row, shown or hidden."""
    held: dict[str, ConsumerHoldings] = field(default_factory=dict[str, ConsumerHoldings])
    """By consumer: servers, and moves."""
    moves: dict[ServerId, list[Migration]] = field(default_factory=dict[ServerId, list[Migration]])
    """Open migrations."""
    move_states: dict[str, MoveState] = field(default_factory=dict[str, MoveState])
    """The cells' state of the moves among the consumers."""
    devices: tuple[str, ...] = ()
    """Devices of ports, in this range."""
    guests: Mapping[ServerId, list[str]] = field(default_factory=dict[ServerId, list[str]])
    """Guests in this range, known or not → the hosts that reported them."""

    def free(self, server: ServerId) -> Mapped | None:
        """The region's row of a server that no operation holds; None: it is held, or unknown."""
        where = self.mapped.get(server)
        return None if where is None or where.operation is not None else where

    def record(self, server: ServerId) -> Server | None:
        """The authoritative record: that of the cell that the region names."""
        where = self.mapped.get(server)
        rows = self.records.get(server, [])
        return next((row for cell, row in rows if where is not None and where.cell == cell), None)

    @property
    def settled(self) -> list[tuple[Mapped, Server]]:
        """Servers with one record, in their cell, that no operation holds."""
        pairs: list[tuple[Mapped, Server]] = []
        for id, where in self.mapped.items():
            row = self.record(id)
            if row is not None and where.operation is None and not where.deleted:
                pairs.append((where, row))
        return pairs


@dataclass
class ServicesSnapshot:
    """The state of the services; None: it was not read."""

    out: dict[str, str] = field(default_factory=dict[str, str])
    """Cells and services that were not read → the reason."""
    cells: frozenset[CellId] = frozenset()
    """The cells that answered."""
    ports: Mapping[str, Mapping[str, Port]] | None = None
    """Device → its ports."""
    segments: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Subnet → its segment."""
    attachments: Mapping[str, list[Attachment]] | None = None
    """Server → its attachments."""
    going: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Server → its volumes with the status `detaching`."""
    hosts: Mapping[HostId, str] = field(default_factory=dict[HostId, str])
    """Provider → the host's name."""
    below: Mapping[HostId, Collection[ProviderId]] = field(default_factory=dict[HostId, Collection[ProviderId]])
    """Host → the providers that may serve request groups there: those below it, and those that share with it."""
    guests: Mapping[str, Collection[ServerId]] = field(default_factory=dict[str, Collection[ServerId]])
    """Host → the guests that it reported; a host that has not reported is missing."""
    differing: Mapping[str, Mapping[ServerId, GuestDevices]] = field(
        default_factory=dict[str, Mapping[ServerId, GuestDevices]]
    )
    """Host → guests whose devices are not those of their records, with what they have."""
    volumes: Mapping[str, Volume | None] = field(default_factory=dict[str, Volume | None])
    """Volumes of those guests, as the volume service shows them; None: it does not know the volume."""
    exported: Mapping[str, str] = field(default_factory=dict[str, str])
    """Attachment → the host that it is exported to, as far as it was read."""
    wired: int = 0
    """The number of servers with ports in the first read."""
    inactive: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Port → the hosts of its inactive bindings, for servers that moved recently and some of the others."""
    moved: frozenset[ServerId] = frozenset()
    """Servers whose inactive bindings are of a move, and may be deleted."""

    @property
    def cells_complete(self) -> bool:
        """Whether every cell answered: then a server without a record has none."""
        return not any(each.startswith("cell ") for each in self.out)
