"""Which classes of resources the servers of a flavor use, as limits of the identity service name them."""

from collections.abc import Mapping
from typing import Protocol

from moorage.model import guest_requests
from moorage.model.errors import Invalid
from moorage.model.resources import needs_of
from moorage.model.server import Server
from moorage.model.unified_limits import CLASS, COUNTED_CLASSES

MIB_PER_GIB = 1024


class FlavorSize(Protocol):
    """A flavor, or a server's copy of one."""

    @property
    def vcpus(self) -> int: ...
    @property
    def ram_mib(self) -> int: ...
    @property
    def disk_gib(self) -> int: ...
    @property
    def ephemeral_gib(self) -> int: ...
    @property
    def swap_mib(self) -> int: ...
    @property
    def extra_specs(self) -> dict[str, str]: ...


def classes_of(flavor: FlavorSize, *, local_root: bool) -> dict[str, int]:
    """`class:NAME` → amount, without processors and memory, which have counters of their own.

    Extra specs that are not allowed any more count nothing beyond the disk: the server that has them exists.
    """
    disk_gib = (flavor.disk_gib if local_root else 0) + flavor.ephemeral_gib - (-flavor.swap_mib // MIB_PER_GIB)
    if not flavor.extra_specs:
        return {f"{CLASS}DISK_GB": disk_gib} if disk_gib else {}
    try:
        needs = needs_of(
            vcpus=flavor.vcpus,
            memory_mb=flavor.ram_mib,
            disk_gb=disk_gib,
            extra_specs=guest_requests.settled(flavor.extra_specs),
        )
    except Invalid:
        return {f"{CLASS}DISK_GB": disk_gib} if disk_gib else {}
    total: dict[str, int] = {}
    for amounts in (needs.resources, *(group.resources for group in needs.groups)):
        _add(total, amounts)
    return {name: amount for name, amount in total.items() if name not in COUNTED_CLASSES}


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[f"{CLASS}{name}"] = total.get(f"{CLASS}{name}", 0) + amount


def charged_of(server: Server) -> dict[str, int]:
    """All amounts that count for its project: while a move can be reverted, those of the larger flavor."""
    flavors = (server.flavor,) if server.moved is None else (server.flavor, server.moved.flavor)
    classes: dict[str, int] = {}
    for flavor in flavors:
        for name, amount in classes_of(flavor, local_root=not server.volume_backed).items():
            classes[name] = max(classes.get(name, 0), amount)
    return {**server.charged, **classes}
