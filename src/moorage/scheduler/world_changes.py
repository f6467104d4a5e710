"""Builds a world with parts removed or added, for questions such as: what if a rack is off, or a cell has a twin?

The original world is not changed.  An added part is an empty copy of an existing one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from moorage.model.errors import Invalid
from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.world import Ask, Group, HostAggregate, Mask, Nested, Segment, Slots, Units, World

NAMES_MAX = 10_000
"""Limit of names in one list of removed parts."""
ADDED_HOSTS_MAX = 20_000
"""Limit of hosts that one question adds."""
KINDS_MAX = 100
"""Limit of entries in one list of added parts."""
INT32_MAX = 2_147_483_647

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Names = Annotated[tuple[Name, ...], Meta(max_length=NAMES_MAX)]


class Without(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parts to remove, by name; a segment also by its id, an uplink also by the name of its interface on every host."""

    hosts: Names = ()
    aggregates: Names = ()
    segments: Names = ()
    uplinks: Names = ()
    cells: Names = ()


class Like(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This many empty copies of an existing part."""

    like: Name
    count: Annotated[int, Meta(ge=1, le=ADDED_HOSTS_MAX)] = 1


class LikeSegment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A further segment of the same networks, with the same hosts."""

    like: Name
    addresses: Annotated[int, Meta(ge=0, le=INT32_MAX)]


class Added(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parts to add. `cells`: copies of all hosts of a cell in a new cell, on the same segments."""

    hosts: Annotated[tuple[Like, ...], Meta(max_length=KINDS_MAX)] = ()
    segments: Annotated[tuple[LikeSegment, ...], Meta(max_length=KINDS_MAX)] = ()
    uplinks: Annotated[tuple[Like, ...], Meta(max_length=KINDS_MAX)] = ()
    cells: Annotated[tuple[Like, ...], Meta(max_length=KINDS_MAX)] = ()


NOTHING_AWAY, NOTHING_MORE = Without(), Added()


def changed(world: World, without: Without = NOTHING_AWAY, added: Added = NOTHING_MORE) -> World:
    """Build the world with parts removed and added. Raises Invalid when a name is unknown, or too much is added."""
    after = reduced(world, without)
    copies = [(hosts_of(world, "host", each.like), each.count, "") for each in added.hosts]
    copies += [(hosts_of(world, "cell", each.like), each.count, each.like) for each in added.cells]
    if sum(int(np.count_nonzero(mask)) * times for mask, times, _ in copies) > ADDED_HOSTS_MAX:
        raise Invalid(f"At most {ADDED_HOSTS_MAX} hosts may be added in one question.")
    for uplink in added.uplinks:
        for number in range(1, uplink.count + 1):
            after = _with_devices(after, _uplinks(after, uplink.like), f"+{number}")
    for mask, times, cell in copies:
        for number in range(1, times + 1):
            suffix = f"+{number}"
            after = _with_hosts(after, np.flatnonzero(mask), suffix, CellId(cell + suffix) if cell else None)
    segments = dict(after.segments)
    for more in added.segments:
        like = segments[segment_of(after, more.like)]
        twin = twin_of(like.id, sum(each.startswith(f"{like.id}+") for each in segments) + 1)
        segments[twin] = Segment(twin, twin.replace(like.id, like.name), more.addresses, more.addresses, like.wired)
    return replace(after, segments=segments, reaches={}, rolls=[])


def twin_of(segment: ProviderId, number: int) -> ProviderId:
    return ProviderId(f"{segment}+{number}")


def with_twins(ask: Ask, world: World) -> Ask:
    """Return the ask with the added segments of its networks."""
    twins = [each for each in world.segments if "+" in each]
    if not twins:
        return ask
    nics = tuple(
        msgspec.structs.replace(
            nic,
            segments=(*nic.segments, *(each for each in twins if each.rpartition("+")[0] in nic.segments)),
        )
        for nic in ask.nics
    )
    return msgspec.structs.replace(ask, nics=nics)


def reduced(world: World, without: Without) -> World:
    """Build the world with parts removed. Raises Invalid when a name is unknown."""
    gone = np.zeros(world.size, dtype=np.bool_)
    for kind, names in (("host", without.hosts), ("aggregate", without.aggregates), ("cell", without.cells)):
        for name in names:
            gone |= hosts_of(world, kind, name)
    segments = {segment_of(world, name) for name in without.segments}
    rest = replace(
        world,
        present=world.present & ~gone,
        segments={id: replace(each) for id, each in world.segments.items() if id not in segments},
        reaches={},
        rolls=[],
    )
    uplinks = [at for name in without.uplinks for at in _uplinks(world, name).tolist()]
    return replace(rest, nested=_emptied(world.nested, uplinks)) if uplinks else rest


def hosts_of(world: World, kind: str, name: str) -> Mask:
    """Return which hosts belong to a host's name, an aggregate or a cell. Raises Invalid when there is none of that name."""
    mask = np.zeros(world.size, dtype=np.bool_)
    if kind == "host" and name in world.slots_by_name:
        mask[world.slots_by_name[name]] = True
    elif kind == "cell" and name in world.cell_names:
        mask = world.present & (world.cell == list(world.cell_names).index(CellId(name)))
    elif kind == "aggregate":
        mask = np.logical_or.reduce([mask, *(each.hosts for each in world.aggregates if each.name == name)])
        if all(each.name != name for each in world.aggregates):
            raise Invalid(f"There is no {kind} {name}.")
        matching: Mask = mask & world.present
        return matching
    if not mask.any():
        raise Invalid(f"There is no {kind} {name}.")
    return mask


def segment_of(world: World, name: str) -> ProviderId:
    """Find a segment by its id or name. Raises Invalid when there is none, or several have that name."""
    if name in world.segments:
        return ProviderId(name)
    ids = [id for id, each in world.segments.items() if each.name == name]
    if len(ids) != 1:
        raise Invalid(f"There is no segment {name}." if not ids else f"Several segments are called {name}; say the id.")
    return ids[0]


def _uplinks(world: World, name: str) -> Slots:
    """The devices with this name, or with an interface of this name."""
    nested = world.nested
    slots = [
        at
        for at, each in enumerate(nested.names)
        if (each == name or each.rpartition(":")[2] == name) and nested.host[at] >= 0
    ]
    if not slots:
        raise Invalid(f"There is no uplink {name}.")
    return np.array(slots, dtype=np.intp)


def _emptied(nested: Nested, at: Sequence[int]) -> Nested:
    free = {name: column.copy() for name, column in nested.free.items()}
    capacity = {name: column.copy() for name, column in nested.capacity.items()}
    for column in (*free.values(), *capacity.values()):
        column[list(at)] = 0
    return replace(nested, free=free, capacity=capacity)


# --------------------------------------------------------------------------------------------------- more of it


def _more(column: Any, at: Slots) -> Any:
    return np.concatenate([column, column[..., at]], axis=-1)


def _units(units: Mapping[str, Units], size: int, at: Slots) -> dict[str, Units]:
    return {
        name: replace(
            each,
            minimum=_more(each.minimum[:size], at),
            maximum=_more(each.maximum[:size], at),
            step=_more(each.step[:size], at),
        )
        for name, each in units.items()
    }


def _with_hosts(world: World, at: Slots, suffix: str, cell: CellId | None) -> World:
    """Add empty copies of these hosts, with copies of their devices."""
    size, slots = world.size, at.tolist()
    ids = [HostId(world.host_ids[slot] + suffix) for slot in slots]
    names = [f"{world.names[slot]}{suffix}" for slot in slots]
    if any(name in world.slots_by_name for name in names):  # another entry added it already
        return _with_hosts(world, at, suffix + "+", cell)
    cells = [*world.cell_names] if cell is None or cell in world.cell_names else [*world.cell_names, cell]
    cell_column = _more(world.cell, at)
    if cell is not None:
        cell_column[size:] = cells.index(cell)
    capacity = {name: _more(column, at) for name, column in world.capacity.items()}
    free = {name: np.concatenate([column, capacity[name][size:]]) for name, column in world.free.items()}
    grown = replace(
        world,
        host_ids=[*world.host_ids, *ids],
        names=[*world.names, *names],
        nodes=[*world.nodes, *(f"{world.nodes[slot]}{suffix}" for slot in slots)],
        present=_more(world.present, at),
        enabled=_more(world.enabled, at),
        alive=_more(world.alive, at),
        level=_more(world.level, at),
        zone=_more(world.zone, at),
        cell=cell_column,
        kind=_more(world.kind, at) if len(world.kind) else world.kind,
        cell_names=cells,
        cell_disabled=_more(world.cell_disabled, at),
        free=free,
        capacity=capacity,
        units=_units(world.units, size, at),
        trait_bitmap=_more(world.trait_bitmap, at),
        slots={**world.slots, **{id: size + place for place, id in enumerate(ids)}},
        slots_by_name={**world.slots_by_name, **{name: size + place for place, name in enumerate(names)}},
        segments={id: replace(each, wired=_more(each.wired, at)) for id, each in world.segments.items()},
        physnets={name: _more(mask, at) for name, mask in world.physnets.items()},
        physnets_known=_more(world.physnets_known, at),
        aggregates=[HostAggregate(each.name, each.metadata, _more(each.hosts, at)) for each in world.aggregates],
        failures=_more(world.failures, at),
        reaches={},
        rolls=[],
    )
    devices = [each for slot in slots for each in world.nested.below.get(world.host_ids[slot], ())]
    return _with_devices(grown, np.array(devices, dtype=np.intp), suffix, on={world.host_ids[s]: s for s in slots})


def _with_devices(world: World, at: Slots, suffix: str, on: Mapping[HostId, int] | None = None) -> World:
    """Add empty copies of these devices; `on`: below the copies of their hosts, else beside the originals."""
    nested, size = world.nested, world.nested.size
    if not len(at):
        return world
    hosts = {slot: slot for slot in nested.host[at].tolist()}
    if on is not None:
        hosts = {slot: world.slots[HostId(id + suffix)] for id, slot in on.items()}
    copied = {nested.ids[each]: ProviderId(nested.ids[each] + suffix) for each in at.tolist()}
    if on is not None:
        copied |= {ProviderId(id): ProviderId(id + suffix) for id in on}
    parents = [nested.parents[each] for each in at.tolist()]
    capacity = {name: _more(column, at) for name, column in nested.capacity.items()}
    placed = [hosts[slot] for slot in nested.host[at].tolist()]
    below = {id: list(nested.below.get(id, ())) for id in world.host_ids}
    for place, slot in enumerate(placed):
        below[world.host_ids[slot]].append(size + place)
    grown = Nested(
        ids=[*nested.ids, *(copied[nested.ids[each]] for each in at.tolist())],
        names=[*nested.names, *(f"{nested.names[each]}{suffix}" for each in at.tolist())],
        parents=[*nested.parents, *(None if each is None else copied.get(each, each) for each in parents)],
        host=np.concatenate([nested.host, np.array(placed, dtype=np.intp)]),
        free={name: np.concatenate([column, capacity[name][size:]]) for name, column in nested.free.items()},
        capacity=capacity,
        units=_units(nested.units, size, at),
        trait_bits=nested.trait_bits,
        trait_bitmap=_more(nested.trait_bitmap, at),
        below=below,
        pending=nested.pending,
    )
    return replace(world, nested=grown)


def copied(world: World) -> World:
    """Return a copy of the world's present state, for a caller that uses it longer than until the next `await`."""
    nested = world.nested
    return replace(
        world,
        present=world.present.copy(),
        enabled=world.enabled.copy(),
        alive=world.alive.copy(),
        level=world.level.copy(),
        zone=world.zone.copy(),
        zone_names=list(world.zone_names),
        cell=world.cell.copy(),
        kind=world.kind.copy(),
        kinds=list(world.kinds),
        cell_names=list(world.cell_names),
        cell_disabled=world.cell_disabled.copy(),
        host_ids=list(world.host_ids),
        names=list(world.names),
        nodes=list(world.nodes),
        slots=dict(world.slots),
        slots_by_name=dict(world.slots_by_name),
        free=_columns(world.free),
        capacity=_columns(world.capacity),
        units={name: replace(each) for name, each in world.units.items()},
        trait_bits=dict(world.trait_bits),
        trait_bitmap=world.trait_bitmap.copy(),
        segments={id: replace(each, wired=each.wired.copy()) for id, each in world.segments.items()},
        physnets=_columns(world.physnets),
        physnets_known=world.physnets_known.copy(),
        aggregates=[HostAggregate(each.name, each.metadata, each.hosts.copy()) for each in world.aggregates],
        groups={id: Group(dict(each.hosts), each.home) for id, each in world.groups.items()},
        failures=world.failures.copy(),
        nested=replace(
            nested,
            ids=list(nested.ids),
            names=list(nested.names),
            parents=list(nested.parents),
            host=nested.host.copy(),
            free=_columns(nested.free),
            capacity=_columns(nested.capacity),
            units={name: replace(each) for name, each in nested.units.items()},
            trait_bits=dict(nested.trait_bits),
            trait_bitmap=nested.trait_bitmap.copy(),
            below={id: tuple(nested.below.get(id, ())) for id in world.host_ids},
            pending=dict(nested.pending),
        ),
        reaches={},
        rolls=[],
    )


def _columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: column.copy() for name, column in columns.items()}
