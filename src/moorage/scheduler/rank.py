"""(Ask, World, Profile) → Verdict: who is willing, who of them is best, and why the others were refused."""

from collections.abc import Iterator, Sequence

import numpy as np

from moorage.model.verdict import Ledger, Miss, Verdict, fitted
from moorage.model.world import Ask, Choice, Mask, Refusals, Scores, Slots, World
from moorage.scheduler.filters.network import choose_segments
from moorage.scheduler.placed import place
from moorage.scheduler.profile import Profile

NAMED_HOSTS_MAX = 1000

Refused = tuple[str, Refusals, Mask]


def rank(ask: Ask, world: World, profile: Profile) -> Verdict:
    """At most `profile.best` hosts, best first; ties are broken by dice seeded with the ask, so the answer can be replayed."""
    willing = world.present.copy()
    considered = int(np.count_nonzero(willing))
    refused: list[Refused] = []
    for judge in profile.judges(ask):
        if (refusals := judge(ask, world)) is None:
            continue
        here = refusals.where & willing
        if here.any():
            refused.append((_name(judge), refusals, here))
            willing &= ~refusals.where
    dice = np.random.default_rng(ask.seed & 0xFFFF_FFFF_FFFF_FFFF)
    slots = np.flatnonzero(willing)
    if not ask.groups:
        best = _best(ask, world, profile, slots, dice)
        return Verdict(best, _ledger(world, profile, considered, len(slots), refused, nobody=not best))
    placed = place(ask, world, _runs(ask, world, profile, slots, dice), profile.placed)
    in_vain = list(placed.refusals(ask, world))
    would_do = len(slots) - sum(int(np.count_nonzero(here)) for _, _, here in in_vain)
    best = tuple(placed.best)
    return Verdict(best, _ledger(world, profile, considered, would_do, [*refused, *in_vain], nobody=not best))


def _runs(ask: Ask, world: World, profile: Profile, slots: Slots, dice: np.random.Generator) -> Iterator[Slots]:
    """All willing hosts, from a random one on, `scored_max` at a time, the best of each run first."""
    if len(slots) > profile.scored_max:
        slots = np.roll(slots, -int(dice.integers(len(slots))))
    for start in range(0, len(slots), profile.scored_max):
        run = slots[start : start + profile.scored_max]
        yield run[best_k(profile.score(ask, world, run), len(run), dice)]


def _name(judge: object) -> str:
    return str(getattr(judge, "__name__", type(judge).__name__))


def _best(ask: Ask, world: World, profile: Profile, slots: Slots, dice: np.random.Generator) -> tuple[Choice, ...]:
    if not len(slots):
        return ()
    if len(slots) > profile.scored_max:
        start = int(dice.integers(len(slots)))
        slots = slots.take(np.arange(start, start + profile.scored_max), mode="wrap")
    scores = profile.score(ask, world, slots)
    chosen = []
    nowhere = None if any(nic.segments for nic in ask.nics) else tuple(None for _ in ask.nics)
    for found in slots[best_k(scores, profile.best, dice)].tolist():
        slot = int(found)
        segments = choose_segments(ask, world, slot) if nowhere is None else nowhere
        if segments is not None:
            cell = world.cell_names[int(world.cell[slot])]
            chosen.append(Choice(world.host_ids[slot], world.names[slot], cell, segments))
    return tuple(chosen)


def best_k(scores: Scores, k: int, dice: np.random.Generator) -> Slots:
    """Indexes of the k highest scores, best first, equal ones in the order the dice say."""
    shuffled = dice.permutation(len(scores))
    mixed = scores[shuffled]
    if len(scores) > k:
        top = np.argpartition(mixed, len(mixed) - k)[-k:]
        top.sort()
    else:
        top = np.arange(len(scores))
    order = np.argsort(-mixed[top], kind="stable")
    return shuffled[top[order]]


def _ledger(
    world: World, profile: Profile, considered: int, willing: int, refused: Sequence[Refused], *, nobody: bool
) -> Ledger:
    counts: dict[str, int] = {}
    for _, refusals, here in refused:
        counts[refusals.cause] = counts.get(refusals.cause, 0) + int(np.count_nonzero(here))
    misses: list[Miss] = []
    others: dict[str, list[str]] = {}
    named = 0
    for name, refusals, here in reversed(refused):  # who passed the most filters came nearest
        room = profile.misses - len(misses)
        if room <= 0 and not nobody:
            break
        slots = _first(here, room if not nobody else NAMED_HOSTS_MAX)
        misses += [Miss(world.names[slot], name, refusals.why(slot)) for slot in slots[:room]]
        if nobody and (rest := slots[max(room, 0) : NAMED_HOSTS_MAX - named]):
            others[name] = [world.names[slot] for slot in rest]
            named += len(rest)
    left_out = max(0, considered - willing - len(misses) - sum(len(hosts) for hosts in others.values()))
    ledger = Ledger(considered, willing, counts, tuple(misses), others, left_out)
    return fitted(ledger) if nobody else ledger


def _first(mask: Mask, count: int) -> list[int]:
    return np.flatnonzero(mask)[:count].tolist() if count > 0 else []
