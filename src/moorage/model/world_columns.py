"""A World as named columns, lists and small facts, that can be compared with an earlier state, changed, and made a World again.

Whoever records decisions keeps one beside the World that is decided on and writes what differs; whoever replays them begins with
a whole state and makes the same changes.  Slots stay what they were, so the World that comes back ranks, and words its refusals, as
the one that was recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from moorage.model.column_changes import Column, ColumnChanges, changed_column, changed_list, column_change, list_change
from moorage.model.ids import HostId, ProviderId
from moorage.model.image_requirements import HostKind
from moorage.model.world import Group, HostAggregate, Mask, Nested, Segment, SharingProvider, Units, World

NESTED = "nested."
"""Begins the names of what is below hosts."""
MASKS = ("present", "enabled", "alive", "cell_disabled", "physnets_known")
NUMBERS = ("level", "zone", "cell", "failures", "kind")
PORTIONS = ("minimum", "maximum", "step")
REBUILT = frozenset({*PORTIONS, "traits"})
"""Columns from which something else is worked out when a World is made."""
SEGMENT_FREE, SEGMENT_TOTAL = "segment_free", "segment_total"
DEVICE_LISTS = tuple(NESTED + name for name in ("ids", "names", "parents"))


class WorldColumns:
    """The state that was recorded last, or replayed so far."""

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}
        self.lists: dict[str, list[Any]] = {}
        self.facts: dict[str, Any] = {}
        self.groups: dict[str, Group] = {}
        """Server groups, which a decision carries with it."""
        self.pending: dict[tuple[ProviderId, str], int] = {}
        """What claims under way held of devices; the same."""
        self._world: World | None = None

    # ----------------------------------------------------------------------------------------------- recording

    def follow_amounts(self, world: World) -> ColumnChanges:
        """Become what the world is, where nothing but free amounts has changed; what differed."""
        return ColumnChanges(columns=self._follow(amounts_of(world)))

    def follow(self, world: World, *, names: bool, devices: bool) -> ColumnChanges:
        """The same of all columns; `names`: of what hosts and segments are called and tied to; `devices`: of what devices are called."""
        now = columns_of(world)
        gone = [name for name in self.columns if name not in now]
        for name in gone:
            del self.columns[name]
        columns = self._follow(now)
        lists = (_lists_of(world) if names else {}) | (_device_lists_of(world) if devices else {})
        changed = {name: change for name, new in lists.items() if (change := list_change(self.lists.get(name), new))}
        self.lists |= lists
        facts_now = _facts_of(world) if names else {}
        facts = {name: new for name, new in facts_now.items() if self.facts.get(name) != new}
        self.facts |= facts
        return ColumnChanges(columns=columns, lists=changed, facts=facts, dropped=tuple(gone))

    def _follow(self, now: Mapping[str, Column]) -> dict[str, Any]:
        changes = {}
        for name, new in now.items():
            if (change := column_change(old := self.columns.get(name), new)) is None:
                continue
            changes[name] = change
            if change.at is None or old is None:
                self.columns[name] = new.copy()
            else:
                old[:] = new
        return changes

    def everything(self) -> ColumnChanges:
        """All of it, as a change from nothing."""
        columns = {name: column_change(None, column) for name, column in self.columns.items()}
        return ColumnChanges(
            full=True,
            columns={name: change for name, change in columns.items() if change is not None},
            lists={name: change for name, each in self.lists.items() if (change := list_change(None, each))},
            facts=dict(self.facts),
        )

    # ----------------------------------------------------------------------------------------------- replaying

    def apply(self, changes: ColumnChanges) -> None:
        """Make the same changes. Raises ValueError for what cannot be."""
        if changes.full:
            self.columns, self.lists, self.facts, self._world = {}, {}, {}, None
        for name in changes.dropped:
            self.columns.pop(name, None)
        for name, change in changes.columns.items():
            old = self.columns.get(name)
            self.columns[name] = now = changed_column(old, change)
            if now is not old or _kind(name) in REBUILT:
                self._world = None
        for name, listed in changes.lists.items():
            self.lists[name] = changed_list(self.lists.get(name), listed)
        self.facts |= changes.facts
        if changes.lists or changes.facts or changes.dropped:
            self._world = None
        if self._world is not None and SEGMENT_FREE in changes.columns:
            for segment, free in zip(self._world.segments.values(), self.columns[SEGMENT_FREE].tolist(), strict=True):
                segment.free = free

    def world(self) -> World:
        """The World; it moves on with the next change. Raises ValueError, KeyError or IndexError for a state that is not whole."""
        if self._world is None:
            self._world = _world_of(self)
        return self._world


# ------------------------------------------------------------------------------------------------ what a World is


def amounts_of(world: World) -> dict[str, Column]:
    """What claims change; not copied."""
    columns: dict[str, Column] = {f"free:{name}": column for name, column in world.free.items()}
    columns |= {f"{NESTED}free:{name}": column for name, column in world.nested.free.items()}
    segments = world.segments
    columns[SEGMENT_FREE] = np.array([each.free for each in segments.values()], dtype=np.int64)
    return columns


def columns_of(world: World) -> dict[str, Column]:
    """All columns; not copied. Portions that are the same everywhere are one number."""
    nested, size, below = world.nested, world.size, world.nested.size
    columns = amounts_of(world)
    columns |= {name: getattr(world, name) for name in (*MASKS, *NUMBERS)}
    columns |= {f"capacity:{name}": column for name, column in world.capacity.items()}
    columns |= {f"physnet:{name}": mask for name, mask in world.physnets.items()}
    columns |= {f"traits:{word}": column for word, column in enumerate(world.trait_bitmap)}
    columns |= {f"{NESTED}capacity:{name}": column for name, column in nested.capacity.items()}
    columns |= {f"{NESTED}traits:{word}": column for word, column in enumerate(nested.trait_bitmap)}
    columns[f"{NESTED}host"] = nested.host
    for start, units, room in (("", world.units, size), (NESTED, nested.units, below)):
        for name, each in units.items():
            for part in PORTIONS:
                column = getattr(each, part)
                columns[f"{start}{part}:{name}"] = column[:room] if column.strides[0] else column[:1]
    segments = world.segments
    columns[SEGMENT_TOTAL] = np.array([each.total for each in segments.values()], dtype=np.int64)
    return columns


def _lists_of(world: World) -> dict[str, list[Any]]:
    slots = world.slots
    return {
        "host_ids": [host if slots.get(host) == slot else "" for slot, host in enumerate(world.host_ids)],
        "names": list(world.names),
        "nodes": list(world.nodes),
        "segment_ids": list(world.segments),
        "segment_names": [each.name for each in world.segments.values()],
        "segment_wired": [_packed(each.wired) for each in world.segments.values()],
    }


def _device_lists_of(world: World) -> dict[str, list[Any]]:
    nested = world.nested
    return dict(zip(DEVICE_LISTS, (list(nested.ids), list(nested.names), list(nested.parents)), strict=True))


def _facts_of(world: World) -> dict[str, Any]:
    return {
        "zone_names": list(world.zone_names),
        "cell_names": list(world.cell_names),
        "kinds": [list(msgspec.structs.astuple(each)) for each in world.kinds],
        "trait_bits": dict(world.trait_bits),
        f"{NESTED}trait_bits": dict(world.nested.trait_bits),
        "aggregates": [[each.name, dict(each.metadata), _packed(each.hosts)] for each in world.aggregates],
        "sharing": [
            [each.id, each.name, each.root, list(each.above), each.nested, int(each.slot), _packed(each.hosts)]
            for each in world.sharing
        ],
    }


def _kind(name: str) -> str:
    return name.rpartition(":")[0].removeprefix(NESTED)


def _packed(mask: Mask) -> bytes:
    return np.packbits(mask).tobytes()


# ------------------------------------------------------------------------------------------------ a World again


def _world_of(state: WorldColumns) -> World:
    columns, lists, facts = state.columns, state.lists, state.facts
    size = len(columns["present"])
    host_ids = [HostId(each) for each in lists["host_ids"]]
    names = lists["names"]
    if not len(host_ids) == len(names) == len(lists["nodes"]) == size:
        raise ValueError("the columns of a state differ in length")
    slots = {host: slot for slot, host in enumerate(host_ids) if host}
    own = {name: column for name, column in columns.items() if not name.startswith(NESTED)}
    return World(
        host_ids=host_ids,
        names=names,
        nodes=lists["nodes"],
        present=columns["present"],
        enabled=columns["enabled"],
        alive=columns["alive"],
        level=columns["level"],
        zone=columns["zone"],
        cell=columns["cell"],
        cell_disabled=columns["cell_disabled"],
        physnets_known=columns["physnets_known"],
        failures=columns["failures"],
        zone_names=facts["zone_names"],
        cell_names=facts["cell_names"],
        kind=columns["kind"] if "kinds" in facts else np.zeros(size, dtype=np.int16),
        kinds=[HostKind(*each) for each in facts.get("kinds", [["", 0, "{}"]])],  # an earlier release recorded none
        free=_named(own, "free"),
        capacity=_named(own, "capacity"),
        units=_units(own, size),
        trait_bits=facts["trait_bits"],
        trait_bitmap=_bitmap(own, size),
        slots=slots,
        slots_by_name={names[slot]: slot for slot in np.flatnonzero(columns["present"]).tolist()},
        segments=_segments(state, size),
        physnets=_named(own, "physnet"),
        aggregates=[
            HostAggregate(name, metadata, _unpacked(hosts, size)) for name, metadata, hosts in facts["aggregates"]
        ],
        groups=state.groups,
        nested=_nested(state, host_ids),
        sharing=[
            SharingProvider(id, name, root, tuple(above), nested, slot, _unpacked(hosts, size))
            for id, name, root, above, nested, slot, hosts in facts["sharing"]
        ],
    )


def _nested(state: WorldColumns, host_ids: Sequence[HostId]) -> Nested:
    columns = {n.removeprefix(NESTED): each for n, each in state.columns.items() if n.startswith(NESTED)}
    host = columns["host"]
    ids, names, parents = (_padded(state.lists.get(name, []), len(host)) for name in DEVICE_LISTS)
    below: dict[HostId, list[int]] = {}
    for place in np.flatnonzero(host >= 0).tolist():
        below.setdefault(host_ids[int(host[place])], []).append(place)
    return Nested(
        ids=[each or ProviderId("") for each in ids],
        names=[each or "" for each in names],
        parents=parents,
        host=host,
        free=_named(columns, "free"),
        capacity=_named(columns, "capacity"),
        units=_units(columns, len(host)),
        trait_bits=state.facts[f"{NESTED}trait_bits"],
        trait_bitmap=_bitmap(columns, len(host)),
        below=below,
        pending=state.pending,
    )


def _padded(values: list[Any], size: int) -> list[Any]:
    """Devices that came since anybody asked for one: no decision up to here has looked at what they are called."""
    return values[:size] + [None] * (size - len(values))


def _named(columns: Mapping[str, Column], kind: str) -> dict[str, Column]:
    return {name.removeprefix(f"{kind}:"): each for name, each in columns.items() if name.startswith(f"{kind}:")}


def _units(columns: Mapping[str, Column], size: int) -> dict[str, Units]:
    units: dict[str, Units] = {}
    for name in _named(columns, "free"):
        least, most, step = (_everywhere(columns[f"{part}:{name}"], size) for part in PORTIONS)
        bounds = (int(least.max()), int(most.min()), int(step.max())) if size else (1, 0, 1)
        units[name] = Units(least, most, step, *bounds)
    return units


def _everywhere(column: Column, size: int) -> Column:
    return np.broadcast_to(column, (size,)) if len(column) == 1 != size else column


def _bitmap(columns: Mapping[str, Column], size: int) -> Column:
    words = _named(columns, "traits")
    bitmap = np.zeros((max(1, len(words)), size), dtype=np.uint64)
    for word, column in words.items():
        bitmap[int(word)] = column
    return bitmap


def _segments(state: WorldColumns, size: int) -> dict[ProviderId, Segment]:
    parts = (state.lists["segment_ids"], state.lists["segment_names"], state.columns[SEGMENT_FREE].tolist())
    more = (state.columns[SEGMENT_TOTAL].tolist(), state.lists["segment_wired"])
    return {
        id: Segment(id, name, free, total, _unpacked(wired, size))
        for id, name, free, total, wired in zip(*parts, *more, strict=True)
    }


def _unpacked(packed: bytes, size: int) -> Mask:
    mask: Mask = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=size).astype(np.bool_)
    return mask
