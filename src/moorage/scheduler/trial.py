"""Trial claims: a copy of the world from which one decision after another takes what it chose; nothing is written to SQL.

It tells whether all of several servers would find a place, and how many servers a fleet can hold.
"""

from collections.abc import Callable
from dataclasses import replace

from moorage.model.ids import ProviderId
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, Choice, Group, World


class Trial:
    """A copy of a World, reduced by the trial claims."""

    def __init__(self, world: World, rank: Callable[[Ask, World], Verdict]) -> None:
        nested = replace(world.nested, free={name: column.copy() for name, column in world.nested.free.items()})
        self.world = replace(
            world,
            free={name: column.copy() for name, column in world.free.items()},
            segments={id: replace(segment) for id, segment in world.segments.items()},
            groups={id: Group(dict(group.hosts), group.home) for id, group in world.groups.items()},
            enabled=world.enabled.copy(),
            nested=nested,
        )
        self._rank = rank

    def place(self, ask: Ask) -> Verdict:
        """Decide, and claim the best choice."""
        verdict = self.decide(ask)
        if verdict.best:
            self.take(ask, verdict.best[0])
        return verdict

    def decide(self, ask: Ask) -> Verdict:
        """Decide, and claim nothing yet."""
        return self._rank(ask, self.world)

    def disable(self, host: str) -> None:
        """Let no further server go to this host."""
        if (slot := self.world.slots_by_name.get(host)) is not None:
            self.world.enabled[slot] = False

    def take(self, ask: Ask, choice: Choice) -> None:
        """Take what a claim would take: compute, addresses, the groups' amounts, and a place in the server group."""
        world = self.world
        slot = world.slots[choice.host]
        for name, amount in ask.resources.items():
            if name in world.free:
                world.free[name][slot] -= amount
        for nic, segment in zip(ask.nics, choice.segments, strict=False):
            if segment is not None and segment in world.segments:
                world.segments[segment].free -= nic.addresses
        for group in ask.groups:
            self._give(slot, choice.providers.get(group.id), group.resources)
        if ask.group is not None:
            known = world.groups
            assert isinstance(known, dict)
            group_of = known.setdefault(ask.group.id, Group())
            group_of.hosts[choice.host] = group_of.hosts.get(choice.host, 0) + 1
            group_of.home = group_of.home or choice.host

    def _give(self, slot: int, provider: ProviderId | None, resources: dict[str, int]) -> None:
        if provider is None:
            return
        nested, host = self.world.nested, self.world.host_ids[slot]
        place = next((each for each in nested.below.get(host, ()) if nested.ids[each] == provider), None)
        free, at = (self.world.free, slot) if place is None else (nested.free, place)
        if (shared := next((each for each in self.world.sharing if each.id == provider), None)) is not None:
            free, at = (nested.free if shared.nested else self.world.free), shared.slot
        for name, amount in resources.items():
            if name in free:
                free[name][at] -= amount
