"""What a request that found no host lacks: by which events it may find one.

A host is refused for every reason that holds there, so it can serve only after all of them are gone, and the last one goes with an
event of its own kind.  All filters that refuse any host are looked at, not only the first, and so no such event is missed; whether the
host serves then is for the search.  Keys are what `Freed.keys` says of events:

    VCPU, NET_BW_EGR_KILOBIT_PER_SEC …   more of a class is free at some provider
    IPV4_ADDRESS@segment                 an address of this segment
    group:id                             a server left this server group
    hosts                                a host is new, back, in service, or has other wires, traits, aggregates or portions
"""

import hashlib
import re
from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from moorage.model.resources import IPV4_ADDRESS
from moorage.model.world import Ask, Filter, World
from moorage.scheduler.columns import short
from moorage.scheduler.filters.devices import device_room, devices_in_all
from moorage.scheduler.filters.network import segment_addresses
from moorage.scheduler.filters.resource_fit import fits
from moorage.scheduler.filters.server_group import server_group
from moorage.scheduler.profile import Profile

HOSTS = "hosts"
CAUSES = (
    "addresses",
    "bandwidth",
    "devices",
    "disk",
    "hosts",
    "memory",
    "other",
    "packet_rate",
    "server_group",
    "vcpu",
)
"""What metrics and lists call them; `hosts` stands for a server that lacks nothing that could be counted."""
_CAUSE_OF = (
    (re.compile(r"IPV4_ADDRESS"), "addresses"),
    (re.compile(r"NET_BW_"), "bandwidth"),
    (re.compile(r"NET_PACKET_RATE"), "packet_rate"),
    (re.compile(r"VCPU|PCPU"), "vcpu"),
    (re.compile(r"MEMORY_MB"), "memory"),
    (re.compile(r"DISK_GB"), "disk"),
    (re.compile(r"SRIOV_NET_VF|PCI_|PGPU|VGPU|CUSTOM_"), "devices"),
    (re.compile(r"group:"), "server_group"),
)


def lacks(ask: Ask, world: World, profile: Profile | None = None) -> frozenset[str]:
    """The keys of what would have to change somewhere.  A new host is always one of them."""
    lacking = {HOSTS}
    for judge in (profile or Profile()).judges(ask):
        keys = _KEYS.get(judge)
        if keys is None:
            continue
        refusals = judge(ask, world)
        if refusals is not None and np.any(refusals.where & world.present):
            lacking.update(keys(ask, world))
    if ask.groups:  # whether all have a place together is searched on the best hosts only
        lacking.update(_classes_of_groups(ask, world))
    return frozenset(lacking)


def _amounts(ask: Ask, world: World) -> Iterable[str]:
    return (name for name, amount in ask.resources.items() if np.any(short(world, name, amount) & world.present))


def _classes_of_groups(ask: Ask, _world: World) -> Iterable[str]:
    return (name for group in ask.groups for name in group.resources)


def _addresses(ask: Ask, _world: World) -> Iterable[str]:
    return (f"{IPV4_ADDRESS}@{segment}" for nic in ask.nics if nic.addresses for segment in nic.segments)


def _group(ask: Ask, _world: World) -> Iterable[str]:
    return () if ask.group is None else (f"group:{ask.group.id}",)


_KEYS: dict[Filter, Callable[[Ask, World], Iterable[str]]] = {
    fits: _amounts,
    device_room: _classes_of_groups,
    devices_in_all: _classes_of_groups,
    segment_addresses: _addresses,
    server_group: _group,
}
"""Each filter that is not one of the profile's `HOSTS_ONLY`."""


def causes_of(keys: Iterable[str]) -> tuple[str, ...]:
    """The words for them, for metrics and lists."""
    causes = {_cause(key) for key in keys if key != HOSTS}
    return tuple(sorted(causes)) or (HOSTS,)


def _cause(key: str) -> str:
    return next((cause for pattern, cause in _CAUSE_OF if pattern.match(key)), "other")


def kind_of(ask: Ask) -> str:
    """The same for requests that every host answers alike: names of ports and the dice do not count."""
    names = {group.id: str(number) for number, group in enumerate(ask.groups)}
    same = msgspec.structs.replace(
        ask,
        seed=0,
        cells_out=(),
        nics=tuple(msgspec.structs.replace(nic, name="") for nic in ask.nics),
        groups=tuple(msgspec.structs.replace(group, id=names[group.id], port="") for group in ask.groups),
        same_subtree=tuple(tuple(names.get(each, each) for each in tree) for tree in ask.same_subtree),
        same_device=tuple(tuple(names.get(each, each) for each in tree) for tree in ask.same_device),
    )
    return hashlib.sha256(msgspec.json.encode(same, order="deterministic")).hexdigest()[:32]
