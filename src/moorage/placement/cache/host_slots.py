"""The slot of each root in the columns, and the facts of hosts there."""

from array import array
from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.image_requirements import HostKind
from moorage.placement.cache.columns import Columns
from moorage.placement.cache.device_columns import DeviceColumns
from moorage.placement.cache.provider import NO_SLOT, HostFacts
from moorage.placement.cache.provider_rows import NOWHERE, Rows

LEVEL_MAX = 100
"""What a column of small numbers holds; no agent speaks a higher one."""
FAILURES_MAX = 1000
KINDS_MAX = 10_000
"""Limit of kinds of hosts, which a column of numbers holds."""
DEFAULT_ZONE = "nova"


class HostSlots:
    """The slots of all roots, by id and by the host's name."""

    def __init__(self, rows: Rows, columns: Columns, devices: DeviceColumns) -> None:
        self.rows, self.columns, self.devices = rows, columns, devices
        self.slots: dict[HostId, int] = {}
        self.slots_by_name: dict[str, int] = {}
        self.host_ids: list[HostId] = []
        self.root_places = array("i")
        """Slot → the root's place; NOWHERE: the slot is free."""
        self.names: list[str] = []
        self.nodes: list[str] = []
        self.zones: dict[str, int] = {DEFAULT_ZONE: 0}
        self.cells: dict[CellId, int] = {}
        self.kinds: dict[HostKind, int] = {HostKind(): 0}
        self._anchors: NDArray[np.int32] | None = None

    def take(self, host: HostId, place: int) -> int:
        """Take a slot for a root that has none."""
        slot = self.slots[host] = self.columns.take_slot()
        if slot == len(self.host_ids):
            self.host_ids.append(host)
            self.names.append("")
            self.nodes.append("")
            self.root_places.append(place)
        self.host_ids[slot], self.root_places[slot] = host, place
        self.devices.put(host, slot)
        self.columns.masks["alive"][slot] = True
        self._anchors = None
        return slot

    def take_all(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """New slots for roots that were read all at once."""
        first, rows = self.columns.take_slots(len(places)), self.rows
        hosts = [HostId(rows.ids[place]) for place in places.tolist()]
        names = [rows.names[place] for place in places.tolist()]
        self.host_ids += hosts
        self.names += names
        self.nodes += names
        self.root_places.frombytes(places.astype(np.int32).tobytes())
        slots = range(first, first + len(places))
        self.slots.update(zip(hosts, slots, strict=True))
        self.columns.masks["alive"][first : slots.stop] = True
        self._anchors = None
        return np.arange(first, slots.stop)

    def give(self, host: HostId) -> None:
        """Free the slot for another root."""
        slot = self.slots.pop(host)
        if self.slots_by_name.get(self.names[slot]) == slot:
            del self.slots_by_name[self.names[slot]]
        self.columns.give_slot(slot)
        self.root_places[slot] = NOWHERE
        self.devices.put(host, NO_SLOT)
        self._anchors = None

    def draw_unknown(self, place: int, slot: int) -> None:
        """Write a root that is no host, or a host that has not reported."""
        self.columns.masks["present"][slot] = False
        self.names[slot] = self.nodes[slot] = self.rows.names[place]

    def draw(self, slot: int, facts: HostFacts, zone: str, dead: bool) -> None:
        """Write a host's facts; `zone`: its zone, also by its aggregates; `dead`: it is silent."""
        columns = self.columns
        columns.masks["present"][slot] = True
        self.names[slot], self.nodes[slot] = facts.host, facts.node
        self.slots_by_name[facts.host] = slot
        columns.level[slot] = min(max(facts.level, 0), LEVEL_MAX)  # an earlier release accepted any level
        columns.zone[slot] = self.zones.setdefault(zone, len(self.zones))
        columns.kind[slot] = self._kind(facts.kind)
        columns.cell[slot] = self.cells.setdefault(facts.cell, len(self.cells))
        columns.masks["alive"][slot] = not dead and not facts.forced_down
        columns.masks["physnets_known"][slot] = facts.physnets is not None
        columns.masks["cell_disabled"][slot] = facts.cell_disabled
        for name in facts.physnets or ():
            columns.mask("physnet:" + name)[slot] = True
        for name, mask in columns.masks.items():
            if name.startswith("physnet:") and name[8:] not in (facts.physnets or ()):
                mask[slot] = False

    def _kind(self, kind: HostKind) -> int:
        """Its place; hosts of one kind too many are as if they had not reported what they are."""
        at = self.kinds.get(kind)
        if at is None:
            at = self.kinds[kind] = len(self.kinds) if len(self.kinds) < KINDS_MAX else 0
        return at

    def set_alive(self, host: str, alive: bool, forced_down: Container[ProviderId]) -> bool:
        """Of a host by its name; whether that is a change."""
        slot, column = self.slots_by_name.get(host), self.columns.masks["alive"]
        if slot is None:
            return False
        before, now = bool(column[slot]), alive and ProviderId(self.host_ids[slot]) not in forced_down
        column[slot] = now
        return before != now

    def set_level(self, host: str, level: int) -> bool:
        """The same of the protocol level of its agent."""
        if (slot := self.slots_by_name.get(host)) is None:
            return False
        before, now = int(self.columns.level[slot]), min(max(level, 0), LEVEL_MAX)
        self.columns.level[slot] = now
        return before != now

    def count_failure(self, host: HostId, *, failed: bool) -> bool:
        """One more build that failed there, or none any more."""
        if (slot := self.slots.get(host)) is None:
            return False
        before = int(self.columns.failures[slot])
        self.columns.failures[slot] = now = min(before + 1, FAILURES_MAX) if failed else 0
        return before != now

    def anchors(self) -> NDArray[np.int32]:
        """The slots of all roots; cached until a tree is added or removed. Do not change it."""
        if self._anchors is None:
            self._anchors = np.flatnonzero(np.array(self.root_places, dtype=np.int32) != NOWHERE).astype(np.int32)
        return self._anchors

    def drop_anchors(self) -> None:
        """A tree was added or removed."""
        self._anchors = None
