"""Checks each request group by itself: one provider of the host's tree, or a sharing one, has the right kind and enough free.

This cheap check is made on all hosts.  Whether all groups have a place *together* is searched only on the best hosts
(`model/tree_search.py`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moorage.model.request_groups import SRIOV_NET_VF, RequestGroup
from moorage.model.world import Ask, Ints, Mask, Refusals, SharingProvider, World
from moorage.scheduler.columns import Numbers, has_trait, short

INT32_MAX = 2_147_483_647
TOGETHER = "not enough on its devices for all groups together"
_PHYSNET = re.compile(r"^CUSTOM_PHYSNET_(.+)$")
_VNIC_TYPE = re.compile(r"^CUSTOM_VNIC_TYPE_(.+)$")
_WORDS = (
    (re.compile("^NET_BW_"), "guaranteed bandwidth"),
    (re.compile("^NET_PACKET_RATE"), "guaranteed packet rate"),
    (re.compile("^SRIOV_NET_VF$"), "virtual functions"),
)


def _kinds(ask: Ask) -> list[RequestGroup]:
    """The different groups: equal groups are checked once."""
    kinds: dict[object, RequestGroup] = {}
    for group in ask.groups:
        key = (tuple(sorted(group.resources.items())), group.required, group.forbidden)
        kinds.setdefault(key, group)
    return list(kinds.values())


def right_kind(numbers: Numbers, group: RequestGroup) -> Mask:
    """Return the providers that have the group's traits, and inventories of its resource classes."""
    mask = np.ones(numbers.size, dtype=np.bool_)
    for trait in group.required:
        mask &= has_trait(numbers, trait)
    for trait in group.forbidden:
        mask &= ~has_trait(numbers, trait)
    for resource in group.resources:
        capacity = numbers.capacity.get(resource)
        mask &= np.zeros(numbers.size, dtype=np.bool_) if capacity is None else capacity > 0
    return mask


def _room(numbers: Numbers, group: RequestGroup) -> Mask:
    mask = np.ones(numbers.size, dtype=np.bool_)
    for name, amount in group.resources.items():
        mask &= ~short(numbers, name, amount)
    return mask


def _anywhere(world: World, group: RequestGroup, on_hosts: Mask, on_devices: Mask) -> Mask:
    """Hosts that are such a provider themselves, have one below them, or can use a sharing one."""
    hosts = world.nested.host[on_devices]
    mask = on_hosts.copy()
    mask[hosts[hosts >= 0]] = True
    for each in _sharing(world, group, on_hosts, on_devices):
        mask |= each.hosts
    return mask


def _sharing(world: World, group: RequestGroup, on_hosts: Mask, on_devices: Mask) -> list[SharingProvider]:
    """The sharing providers among these; none for a virtual function, which must be the host's own."""
    if SRIOV_NET_VF in group.resources:
        return []
    return [each for each in world.sharing if (on_devices if each.nested else on_hosts)[each.slot]]


def device_kinds(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts that lack a provider with the traits and classes of a group."""
    lacking: list[tuple[RequestGroup, Mask]] = []
    for group in _kinds(ask):
        available = _anywhere(world, group, right_kind(world, group), right_kind(world.nested, group))
        lacking.append((group, ~available))
    if not lacking:
        return None

    def why(slot: int) -> str:
        return "; ".join(_describe_kind(group) for group, mask in lacking if mask[slot])

    groups = [group for group, mask in lacking if (mask & world.present).any()]
    cause = "no device of the kind that the flavor asks for"
    if any(group.port for group in groups):
        functions = any(SRIOV_NET_VF in group.resources for group in groups)
        cause = "no virtual function for a port" if functions else "no device for a port with a guarantee"
    return Refusals(np.logical_or.reduce([mask for _, mask in lacking]), why, cause)


def _describe_kind(group: RequestGroup) -> str:
    physnets = [match[1] for name in group.required if (match := _PHYSNET.match(name))]
    vnics = [match[1].lower() for name in group.required if (match := _VNIC_TYPE.match(name))]
    others = [name for name in group.required if not _PHYSNET.match(name) and not _VNIC_TYPE.match(name)]
    words = ["no device"]
    words += [f"on physical network {' and '.join(physnets)}"] if physnets else []
    words += [f"for vnic type {' and '.join(vnics)}"] if vnics else []
    words += [f"with trait {', '.join(others)}"] if others else []
    words += [f"without trait {', '.join(group.forbidden)}"] if group.forbidden else []
    words += [f"that offers {' and '.join(group.resources)}"] if group.resources else []
    return " ".join(words)


@dataclass(frozen=True)
class _Lack:
    """One group: the hosts on which it has no place by itself, and the providers of the right kind."""

    group: RequestGroup
    where: Mask
    hosts: Mask
    devices: Mask


def device_room(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts on which no single provider of the right kind can give all amounts of a group."""
    lacks: list[_Lack] = []
    for group in _kinds(ask):
        if group.resources:
            hosts, devices = right_kind(world, group), right_kind(world.nested, group)
            available = _anywhere(world, group, hosts & _room(world, group), devices & _room(world.nested, group))
            lacks.append(_Lack(group, ~available, hosts, devices))
    if not lacks:
        return None

    def why(slot: int) -> str:
        return "; ".join(_describe_room(world, slot, lack) for lack in lacks if lack.where[slot])

    short_of = [lack.group for lack in lacks if (lack.where & world.present).any()]
    cause = (
        f"not enough {_describe_classes(short_of)} on any one device" if short_of else "not enough on any one device"
    )
    return Refusals(np.logical_or.reduce([lack.where for lack in lacks]), why, cause)


def devices_in_all(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts on which groups of one kind ask more together than all providers of that kind have free.

    A host that passes may still not fit device by device; this is searched on the best hosts.
    """
    lacking: list[tuple[str, int, Ints, Mask]] = []
    for kind in _together(ask):
        on_hosts, on_devices = right_kind(world, kind), right_kind(world.nested, kind)
        for resource, amount in kind.resources.items():
            free = _summed(world, kind, resource, on_hosts, on_devices)
            lacking.append((resource, amount, free, free < amount))
    if not lacking:
        return None

    def why(slot: int) -> str:
        return "; ".join(
            f"{resource}: {amount} asked in all, {int(free[slot])} free on all its devices"
            for resource, amount, free, mask in lacking
            if mask[slot]
        )

    return Refusals(np.logical_or.reduce([mask for *_, mask in lacking]), why, TOGETHER)


def _together(ask: Ask) -> list[RequestGroup]:
    """Sum up groups of one kind into one group; kinds with a single group were checked before."""
    kinds: dict[object, list[RequestGroup]] = {}
    for group in ask.groups:
        kinds.setdefault((group.required, group.forbidden, frozenset(group.resources)), []).append(group)
    return [
        RequestGroup(
            "", {name: sum(each.resources[name] for each in same) for name in same[0].resources},
            same[0].required, same[0].forbidden,
        )
        for same in kinds.values()
        if len(same) > 1
    ]  # fmt: skip


def _summed(world: World, kind: RequestGroup, resource: str, on_hosts: Mask, on_devices: Mask) -> Ints:
    """The free amount of a class on each host, summed over all its providers of the right kind."""
    nested = world.nested
    right = np.flatnonzero(on_devices & (nested.host >= 0))
    total: NDArray[np.float64] = np.zeros(world.size)
    if right.size:
        free = np.maximum(nested.free[resource][right], 0)
        total = np.bincount(nested.host[right], weights=free, minlength=world.size).astype(np.float64)
    if on_hosts.any():
        total = total + np.where(on_hosts, np.maximum(world.free[resource], 0), 0)
    for each in _sharing(world, kind, on_hosts, on_devices):
        numbers: Numbers = nested if each.nested else world
        total = total + np.where(each.hosts, max(0, int(numbers.free[resource][each.slot])), 0)
    totals: Ints = np.minimum(total, INT32_MAX).astype(np.int32)
    return totals


def _describe_classes(groups: Sequence[RequestGroup]) -> str:
    names = dict.fromkeys(name for group in groups for name in group.resources)
    words = (next((words for pattern, words in _WORDS if pattern.match(name)), name) for name in names)
    return " or ".join(dict.fromkeys(words))


def _describe_room(world: World, slot: int, lack: _Lack) -> str:
    """The greatest free amount of each class on any one provider of the right kind."""
    nested, group = world.nested, lack.group
    below = [each for each in nested.below.get(world.host_ids[slot], ()) if lack.devices[each]]
    parts: list[str] = []
    for resource, amount in group.resources.items():
        free = [int(nested.free[resource][each]) for each in below]
        if lack.hosts[slot]:
            free.append(int(world.free[resource][slot]))
        sharing = [each for each in _sharing(world, group, lack.hosts, lack.devices) if each.hosts[slot]]
        free += [int((nested if each.nested else world).free[resource][each.slot]) for each in sharing]
        if (most := max(free, default=0)) < amount:
            held = max((nested.pending.get((nested.ids[each], resource), 0) for each in below), default=0)
            wait = f", {held} held by claims under way" if held else ""
            parts.append(f"{resource}: {amount} asked, at most {max(0, most)} free on one device{wait}")
    if parts:
        return "; ".join(parts)
    amounts = " and ".join(f"{amount} {resource}" for resource, amount in group.resources.items())
    return f"no one device has {amounts} free, in portions it gives away"
