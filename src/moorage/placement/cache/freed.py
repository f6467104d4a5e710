"""What became free in the picture, for whoever waits for it: noted by the same code that takes in what was read.

The picture is a state transfer, so nothing that is freed anywhere is missed: at the latest the next reading shows it.  Without a
listener nothing is noted, and nothing is compared.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from moorage.model.ids import HostId, ProviderId
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.provider_rows import NOT_READ
from moorage.store.region.placement.change_feed import ProviderChanges

NOTED_MAX = 10_000


class Freed:
    """What was freed since somebody took it."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._clear()

    def _clear(self) -> None:
        self.amounts: set[tuple[ProviderId, str]] = set()
        self.groups: set[str] = set()
        self.hosts = False
        self.everything = False

    def amount(self, provider: ProviderId, resource: str) -> None:
        """More of a class is free at a provider."""
        if len(self.amounts) >= NOTED_MAX:
            self.everything = True
        else:
            self.amounts.add((provider, resource))
        self.news.set()

    def host(self) -> None:
        """A host is new, is back, is in service or wired to something, or has other traits, aggregates or portions."""
        self.hosts = True
        self.news.set()

    def group(self, group: str) -> None:
        """A server left a server group."""
        self.groups.add(group)
        self.news.set()

    def all(self) -> None:
        """The whole picture was read anew."""
        self.everything = True
        self.news.set()

    def take(self) -> "Freed":
        """What was noted until now; what comes is noted anew."""
        taken = Freed()
        taken.amounts, taken.groups, taken.hosts, taken.everything = (
            self.amounts,
            self.groups,
            self.hosts,
            self.everything,
        )
        self._clear()
        self.news.clear()
        return taken

    @property
    def keys(self) -> frozenset[str]:
        """As `scheduler/lacks.py` names what a request lacks."""
        keys = {resource for _, resource in self.amounts}
        keys |= {f"{resource}@{provider}" for provider, resource in self.amounts}
        keys |= {f"group:{group}" for group in self.groups}
        return frozenset(keys | ({"hosts"} if self.hosts else set()))


class NotingCache(ProviderCache):
    """The picture, which tells a listener what becomes free."""

    freed: Freed | None = None

    @override
    def take_over(self, before: ProviderCache) -> None:
        super().take_over(before)
        if isinstance(before, NotingCache) and before.freed is not None:
            self.freed = before.freed
            self.freed.all()

    @override
    def apply(self, changes: ProviderChanges) -> None:
        groups = (
            {}
            if self.freed is None
            else {each.server_group: self._members(each.server_group) for each in _groups(changes)}
        )
        super().apply(changes)
        if self.freed is not None:
            for group, before in groups.items():
                now = self._members(group)
                if any(now.get(host, 0) < count for host, count in before.items()):
                    self.freed.group(group)

    def _members(self, group: str) -> Mapping[str, int]:
        known = self.groups.get(group)
        if known is None:
            return {}
        return {**{str(host): count for host, count in known.hosts.items()}, "home": int(known.home is not None)}

    @override
    def _apply_providers(self, changes: ProviderChanges) -> None:
        if self.freed is None:
            super()._apply_providers(changes)
            return
        before = {row.uuid: self._facts(row.uuid) for row in changes.providers}
        super()._apply_providers(changes)
        for uuid, (facts, free) in before.items():
            now_facts, now_free = self._facts(uuid)
            if now_facts != facts:
                self.freed.host()
            for resource, amount in now_free.items():
                if amount > free.get(resource, 0):
                    self.freed.amount(ProviderId(uuid), resource)

    def _facts(self, uuid: str) -> tuple[tuple[Any, ...] | None, dict[str, int]]:
        """What is known of a provider besides amounts, and what of each class is free."""
        rows = self.rows
        place = rows.index.get(ProviderId(uuid))
        if place is None or rows.version[place] == NOT_READ:
            return None, {}
        stocks = list(rows.stocks(place))
        portions = tuple(kind._replace(cap=0) for kind, _ in stocks)
        facts = (
            rows.traits[place],
            rows.aggregates[place],
            rows.parent[place],
            portions,
            self.hosts.get(ProviderId(uuid)),
        )
        return facts, {kind.resource: kind.cap - used for kind, used in stocks}

    @override
    def _apply_used(self, uuid: ProviderId, resource: str, used: int, cap: int, version: int) -> None:
        before = None if self.freed is None else self._free(uuid, resource)
        super()._apply_used(uuid, resource, used, cap, version)
        if self.freed is not None and before is not None and (self._free(uuid, resource) or 0) > before:
            self.freed.amount(uuid, resource)

    def _free(self, uuid: ProviderId, resource: str) -> int | None:
        place = self.rows.index.get(uuid)
        stock = None if place is None else self.rows.stock(place, resource)
        return None if stock is None else stock[0].cap - stock[1]

    @override
    def pend(self, rows: Iterable[tuple[ProviderId, str, int]], sign: int) -> None:
        """A claim that is given up frees what it held in this process alone."""
        parts: Sequence[tuple[ProviderId, str, int]] = list(rows)
        super().pend(parts, sign)
        if self.freed is not None and sign < 0:
            for uuid, resource, _ in parts:
                self.freed.amount(uuid, resource)

    @override
    def set_alive(self, host: str, alive: bool) -> None:
        back = alive and host in self._dead
        super().set_alive(host, alive)
        if back and self.freed is not None:
            self.freed.host()

    @override
    def set_level(self, host: str, level: int) -> None:
        slot = self.slots_by_name.get(host)
        before = None if slot is None else int(self.columns.level[slot])
        super().set_level(host, level)
        if self.freed is not None and slot is not None and int(self.columns.level[slot]) != before:
            self.freed.host()

    @override
    def set_host_aggregates(self, aggregates: Sequence[tuple[str, Mapping[str, str], Sequence[str]]]) -> None:
        before = self.host_aggregates
        super().set_host_aggregates(aggregates)
        if self.freed is not None and self.host_aggregates != before:
            self.freed.host()

    def left_group(self, group: str, host: HostId | None) -> None:
        """A claim of this process took a server of the group away from a host."""
        if self.freed is not None and host is not None:
            self.freed.group(group)


def _groups(changes: ProviderChanges) -> list[Any]:
    return [*changes.group_hosts, *changes.group_homes]
