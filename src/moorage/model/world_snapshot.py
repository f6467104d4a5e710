"""A World as plain data for a file, which `moorage schedule` writes and reads.

A snapshot has the hosts in the order of their slots, without empty slots, and everything that filters and weighers read.  A
World that is built from it ranks like the original: the random choices depend only on the number and order of the hosts that pass.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.image_requirements import HostKind
from moorage.model.resident import Resident
from moorage.model.world import Group, HostAggregate, Mask, Nested, Segment, SharingProvider, Units, World

FORMAT = "moorage-world/1"
INT32_MAX = 2_147_483_647
WORD_BITS = 64


class Amount(msgspec.Struct, frozen=True, omit_defaults=True):
    """One class on one host."""

    free: int
    capacity: int
    min_unit: int = 1
    max_unit: int = INT32_MAX
    step: int = 1


class DevicePhoto(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider below a host."""

    id: ProviderId
    name: str
    parent: ProviderId | None
    amounts: dict[str, Amount] = {}
    traits: tuple[str, ...] = ()


class HostPhoto(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    id: HostId
    name: str
    node: str
    cell: CellId
    zone: str
    enabled: bool = True
    alive: bool = True
    cell_disabled: bool = False
    level: int = 3
    failures: int = 0
    kind: HostKind = HostKind()
    amounts: dict[str, Amount] = {}
    traits: tuple[str, ...] = ()
    physnets: tuple[str, ...] | None = None
    """None: the host never reported its physical networks."""
    devices: tuple[DevicePhoto, ...] = ()


class SegmentPhoto(msgspec.Struct, frozen=True):
    id: ProviderId
    name: str
    free: int
    total: int
    wired: tuple[HostId, ...]


class SharingPhoto(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider that serves hosts of other trees."""

    id: ProviderId
    name: str
    root: ProviderId
    hosts: tuple[HostId, ...]
    above: tuple[ProviderId, ...] = ()
    amounts: dict[str, Amount] = {}
    traits: tuple[str, ...] = ()


class AggregatePhoto(msgspec.Struct, frozen=True):
    name: str
    metadata: dict[str, str]
    hosts: tuple[HostId, ...]


class GroupPhoto(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    hosts: dict[HostId, int] = {}
    home: HostId | None = None


_Some: TypeAlias = Sequence[HostPhoto] | Sequence[DevicePhoto | SharingPhoto]


class WorldSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on which a decision depends, besides the ask."""

    format: str = FORMAT
    hosts: tuple[HostPhoto, ...] = ()
    segments: tuple[SegmentPhoto, ...] = ()
    aggregates: tuple[AggregatePhoto, ...] = ()
    groups: tuple[GroupPhoto, ...] = ()
    residents: tuple[Resident, ...] = ()
    """Its servers, if they were exported too, for questions about failures."""
    sharing: tuple[SharingPhoto, ...] = ()


# ------------------------------------------------------------------------------------------------- taking it


def photo_of(world: World) -> WorldSnapshot:
    """Make a snapshot, which is a copy: the world may change afterwards."""
    return WorldSnapshot(
        hosts=tuple(_host(world, slot) for slot in np.flatnonzero(world.present).tolist()),
        segments=tuple(
            SegmentPhoto(each.id, each.name, int(each.free), int(each.total), _ids(world, each.wired))
            for each in world.segments.values()
        ),
        aggregates=tuple(
            AggregatePhoto(each.name, dict(each.metadata), _ids(world, each.hosts)) for each in world.aggregates
        ),
        groups=tuple(GroupPhoto(key, dict(group.hosts), group.home) for key, group in world.groups.items()),
        sharing=tuple(_sharing(world, each) for each in world.sharing),
    )


def _sharing(world: World, one: SharingProvider) -> SharingPhoto:
    numbers = world.nested if one.nested else world
    amounts, traits = _amounts(numbers, one.slot), _traits(numbers, one.slot)
    return SharingPhoto(one.id, one.name, one.root, _ids(world, one.hosts), one.above, amounts, traits)


def _ids(world: World, mask: Mask) -> tuple[HostId, ...]:
    return tuple(world.host_ids[slot] for slot in np.flatnonzero(mask).tolist())


def _host(world: World, slot: int) -> HostPhoto:
    known = bool(world.physnets_known[slot])
    below = sorted(world.nested.below.get(world.host_ids[slot], ()), key=lambda each: world.nested.ids[each])
    return HostPhoto(
        id=world.host_ids[slot],
        name=world.names[slot],
        node=world.nodes[slot],
        cell=world.cell_names[int(world.cell[slot])],
        zone=world.zone_names[int(world.zone[slot])],
        enabled=bool(world.enabled[slot]),
        alive=bool(world.alive[slot]),
        cell_disabled=bool(world.cell_disabled[slot]),
        level=int(world.level[slot]),
        failures=int(world.failures[slot]),
        kind=world.kinds[int(world.kind[slot])] if len(world.kind) else HostKind(),
        amounts=_amounts(world, slot),
        traits=_traits(world, slot),
        physnets=tuple(sorted(name for name, mask in world.physnets.items() if mask[slot])) if known else None,
        devices=tuple(_device(world.nested, each) for each in below),
    )


def _device(nested: Nested, slot: int) -> DevicePhoto:
    return DevicePhoto(
        nested.ids[slot], nested.names[slot], nested.parents[slot], _amounts(nested, slot), _traits(nested, slot)
    )


def _amounts(numbers: World | Nested, slot: int) -> dict[str, Amount]:
    return {
        name: Amount(
            int(numbers.free[name][slot]),
            int(numbers.capacity[name][slot]),
            int(numbers.units[name].minimum[slot]),
            int(numbers.units[name].maximum[slot]),
            int(numbers.units[name].step[slot]),
        )
        for name in sorted(numbers.free)
        if numbers.capacity[name][slot] or numbers.free[name][slot]
    }


def _traits(numbers: World | Nested, slot: int) -> tuple[str, ...]:
    words = [int(word) for word in numbers.trait_bitmap[:, slot]]
    return tuple(
        sorted(name for name, bit in numbers.trait_bits.items() if words[bit // WORD_BITS] >> (bit % WORD_BITS) & 1)
    )


# ---------------------------------------------------------------------------------------------- developing it


def world_of(photo: WorldSnapshot) -> World:
    """Build a World; the hosts' slots are their positions in the snapshot."""
    hosts = photo.hosts
    slots = {host.id: slot for slot, host in enumerate(hosts)}
    below = {device.id for host in hosts for device in host.devices}
    others = [each for each in photo.sharing if each.id not in below and HostId(each.id) not in slots]
    owned = (device.id for host in hosts for device in host.devices)
    devices = {uuid: place for place, uuid in enumerate((*owned, *(each.id for each in others)))}
    zones = list(dict.fromkeys(host.zone for host in hosts))
    cells = list(dict.fromkeys(host.cell for host in hosts))
    kinds = list(dict.fromkeys(host.kind for host in hosts))
    classes, traits = _classes(hosts), _bits(hosts)
    physnets = sorted({name for host in hosts for name in host.physnets or ()})
    return World(
        host_ids=[host.id for host in hosts],
        names=[host.name for host in hosts],
        nodes=[host.node for host in hosts],
        present=np.ones(len(hosts), dtype=np.bool_),
        enabled=np.array([host.enabled for host in hosts], dtype=np.bool_),
        alive=np.array([host.alive for host in hosts], dtype=np.bool_),
        level=np.array([host.level for host in hosts], dtype=np.int8),
        zone=np.array([zones.index(host.zone) for host in hosts], dtype=np.int16),
        zone_names=zones,
        cell=np.array([cells.index(host.cell) for host in hosts], dtype=np.int16),
        cell_names=cells,
        kind=np.array([kinds.index(host.kind) for host in hosts], dtype=np.int16),
        kinds=kinds,
        cell_disabled=np.array([host.cell_disabled for host in hosts], dtype=np.bool_),
        free={name: _column(hosts, name, "free", 0) for name in classes},
        capacity={name: _column(hosts, name, "capacity", 0) for name in classes},
        units={name: _units(hosts, name) for name in classes},
        trait_bits=traits,
        trait_bitmap=_trait_bits(hosts, traits),
        slots=slots,
        slots_by_name={host.name: slot for slot, host in enumerate(hosts)},
        segments={
            each.id: Segment(each.id, each.name, each.free, each.total, _mask(slots, each.wired))
            for each in photo.segments
        },
        physnets={name: np.array([name in (h.physnets or ()) for h in hosts], dtype=np.bool_) for name in physnets},
        physnets_known=np.array([host.physnets is not None for host in hosts], dtype=np.bool_),
        aggregates=[HostAggregate(each.name, each.metadata, _mask(slots, each.hosts)) for each in photo.aggregates],
        groups={each.id: Group(dict(each.hosts), each.home) for each in photo.groups},
        failures=np.array([host.failures for host in hosts], dtype=np.int16),
        nested=_nested(hosts, others),
        sharing=[_shared(slots, devices, each) for each in photo.sharing],
    )


def _shared(slots: dict[HostId, int], devices: dict[ProviderId, int], one: SharingPhoto) -> SharingProvider:
    nested, host = one.id in devices, HostId(one.id)
    slot = devices[one.id] if nested else slots[host]
    return SharingProvider(one.id, one.name, one.root, one.above, nested, slot, _mask(slots, one.hosts))


def _nested(hosts: Sequence[HostPhoto], others: Sequence[SharingPhoto]) -> Nested:
    """The providers below hosts, followed by sharing providers that are below none."""
    devices: list[DevicePhoto | SharingPhoto] = [device for host in hosts for device in host.devices]
    devices += others
    classes, traits = _classes(devices), _bits(devices)
    below: dict[HostId, list[int]] = {}
    for index, owner in enumerate(host.id for host in hosts for _ in host.devices):
        below.setdefault(owner, []).append(index)
    return Nested(
        ids=[device.id for device in devices],
        names=[device.name for device in devices],
        parents=[each.parent if isinstance(each, DevicePhoto) else next(iter(each.above), None) for each in devices],
        host=np.array(
            [slot for slot, host in enumerate(hosts) for _ in host.devices] + [-1 for _ in others], dtype=np.intp
        ),
        free={name: _column(devices, name, "free", 0) for name in classes},
        capacity={name: _column(devices, name, "capacity", 0) for name in classes},
        units={name: _units(devices, name) for name in classes},
        trait_bits=traits,
        trait_bitmap=_trait_bits(devices, traits),
        below=below,
    )


def _classes(of: _Some) -> list[str]:
    return sorted({name for each in of for name in each.amounts})


def _bits(of: _Some) -> dict[str, int]:
    return {name: bit for bit, name in enumerate(sorted({name for each in of for name in each.traits}))}


def _column(hosts: _Some, name: str, part: str, absent: int) -> Any:
    values = [getattr(host.amounts[name], part) if name in host.amounts else absent for host in hosts]
    return np.array(values, dtype=np.int32)


def _units(hosts: _Some, name: str) -> Units:
    minimum = _column(hosts, name, "min_unit", 1)
    maximum = _column(hosts, name, "max_unit", INT32_MAX)
    step = _column(hosts, name, "step", 1)
    return Units(minimum, maximum, step, int(minimum.max()), int(maximum.min()), int(step.max()))


def _trait_bits(hosts: _Some, bits: dict[str, int]) -> Any:
    words = np.zeros((len(bits) // WORD_BITS + 1, len(hosts)), dtype=np.uint64)
    for slot, traits in enumerate([each.traits for each in hosts]):
        for name in traits:
            words[bits[name] // WORD_BITS, slot] |= np.uint64(1 << (bits[name] % WORD_BITS))
    return words


def _mask(slots: dict[HostId, int], hosts: Sequence[HostId]) -> Mask:
    mask = np.zeros(len(slots), dtype=np.bool_)
    mask[[slots[host] for host in hosts if host in slots]] = True
    return mask
