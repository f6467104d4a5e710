"""(Ask, World, Profile) → Verdict: which hosts pass, which of them are best, and why the others were rejected."""

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec
import numpy as np

from moorage.model.verdict import LEDGER_BYTES_MAX, WILLING, DecisionRecord, Rejection, Verdict, fitted, pack_codes
from moorage.model.world import Ask, Choice, Mask, Refusals, Scores, Slots, World
from moorage.scheduler.filters.network import choose_segments
from moorage.scheduler.group_placement import place
from moorage.scheduler.profile import Profile
from moorage.scheduler.scoring import Weighed

NAMED_HOSTS_MAX = 1000
EXAMINED_MAX = 4096
"""If more hosts are rejected and some pass, only those that passed the most filters are examined for the nearest misses."""
WEIGHTS_MAX = 3
"""For this many of the best hosts the decision record lists the weights."""
TIE = 1e-6
CODE_MAX = 255
ROOM_FOR_NUMBERS = 64

Refused = tuple[str, Refusals, Mask]


def rank(ask: Ask, world: World, profile: Profile) -> Verdict:
    """Return at most `profile.best` hosts, best first. The ask's seed breaks ties, so the decision can be replayed."""
    willing = world.present.copy()
    considered = int(np.count_nonzero(willing))
    refused: list[Refused] = []
    judged: list[Refusals] = []
    for judge in profile.judges(ask):
        if (refusals := judge(ask, world)) is None:
            continue
        judged.append(refusals)
        mask = refusals.where & willing
        if mask.any():
            refused.append((_name(judge), refusals, mask))
            willing &= ~refusals.where
    dice = np.random.default_rng(ask.seed & 0xFFFF_FFFF_FFFF_FFFF)
    slots = np.flatnonzero(willing)
    weighed: list[Weighed] = []
    if not ask.groups:
        best = _best(ask, world, profile, slots, dice, weighed)
        ledger = _ledger(world, profile, considered, len(slots), refused, judged, nobody=not best)
        return Verdict(best, _weights(ledger, best, world, weighed))
    placed = place(ask, world, _runs(ask, world, profile, slots, dice, weighed), profile.placed)
    in_vain = list(placed.refusals(ask, world))
    would_do = len(slots) - sum(int(np.count_nonzero(mask)) for _, _, mask in in_vain)
    best = tuple(placed.best)
    refused += in_vain
    judged += [refusals for _, refusals, _ in in_vain]
    ledger = _ledger(world, profile, considered, would_do, refused, judged, nobody=not best)
    return Verdict(best, _weights(ledger, best, world, weighed))


def _weights(
    ledger: DecisionRecord, best: Sequence[Choice], world: World, weighed: Sequence[Weighed]
) -> DecisionRecord:
    """Add the weights of the first of the best hosts to the ledger."""
    weights: dict[str, dict[str, float]] = {}
    if not any(run.parts for run in weighed):
        return ledger
    for name, host in islice(dict.fromkeys((choice.name, choice.host) for choice in best), WEIGHTS_MAX):
        slot = world.slots[host]
        weights[name] = next((weight for run in weighed if (weight := run.of(slot)) is not None), {})
    return msgspec.structs.replace(ledger, weights=weights)


def _runs(
    ask: Ask, world: World, profile: Profile, slots: Slots, dice: np.random.Generator, weighed: list[Weighed]
) -> Iterator[Slots]:
    """All hosts that pass, from a random one on, `scored_max` at a time; within a run the best comes first."""
    if len(slots) > profile.scored_max:
        slots = np.roll(slots, -int(dice.integers(len(slots))))
    for start in range(0, len(slots), profile.scored_max):
        run = slots[start : start + profile.scored_max]
        weighed.append(profile.weigh(ask, world, run))
        yield run[best_k(weighed[-1].total, len(run), dice)]


def _name(judge: object) -> str:
    return str(getattr(judge, "__name__", type(judge).__name__))


def _best(
    ask: Ask, world: World, profile: Profile, slots: Slots, dice: np.random.Generator, weighed: list[Weighed]
) -> tuple[Choice, ...]:
    if not len(slots):
        return ()
    if len(slots) > profile.scored_max:
        start = int(dice.integers(len(slots)))
        slots = slots.take(np.arange(start, start + profile.scored_max), mode="wrap")
    weighed.append(profile.weigh(ask, world, slots))
    scores = weighed[-1].total
    chosen = []
    nowhere = None if any(nic.segments for nic in ask.nics) else tuple(None for _ in ask.nics)
    for number in slots[best_k(scores, profile.best, dice)].tolist():
        slot = int(number)
        segments = choose_segments(ask, world, slot) if nowhere is None else nowhere
        if segments is not None:
            cell = world.cell_names[int(world.cell[slot])]
            chosen.append(Choice(world.host_ids[slot], world.names[slot], cell, segments))
    return tuple(chosen)


def best_k(scores: Scores, k: int, dice: np.random.Generator) -> Slots:
    """Return the indexes of the k highest scores, best first; equal scores are in random order."""
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
    world: World,
    profile: Profile,
    considered: int,
    willing: int,
    refused: Sequence[Refused],
    judged: Sequence[Refusals],
    *,
    nobody: bool,
) -> DecisionRecord:
    counts: dict[str, int] = {}
    for _, refusals, mask in refused:
        counts[refusals.cause] = counts.get(refusals.cause, 0) + int(np.count_nonzero(mask))
    slots, by = _examined(refused, None if nobody else EXAMINED_MAX)
    near = _nearest(slots, judged, profile.misses)
    misses = tuple(_miss(world, int(slots[at]), *refused[int(by[at])][:2], judged) for at in near)
    left_out = max(0, considered - willing - len(misses))
    ledger = DecisionRecord(considered, willing, counts, misses, left_out=left_out)
    if not nobody or not left_out:
        return fitted(ledger) if nobody else ledger
    if considered <= NAMED_HOSTS_MAX:
        others: dict[str, list[str]] = {}
        rest = np.ones(len(slots), dtype=np.bool_)
        rest[near] = False
        for slot, judge in zip(slots[rest].tolist(), by[rest].tolist(), strict=True):
            others.setdefault(refused[judge][0], []).append(world.names[int(slot)])
        named = fitted(msgspec.structs.replace(ledger, others=others, left_out=0))
        if not named.left_out:
            return named
    return _coded(world, refused, ledger)


def _examined(refused: Sequence[Refused], most: int | None) -> tuple[Slots, Slots]:
    """Rejected hosts, at most `most`, those that passed the most filters first; and the filters that rejected each of them."""
    slots: list[Slots] = []
    by: list[Slots] = []
    for judge in range(len(refused) - 1, -1, -1):
        examined = np.flatnonzero(refused[judge][2])[:most]
        slots.append(examined)
        by.append(np.full(len(examined), judge, dtype=np.intp))
        if most is not None and (most := most - len(examined)) <= 0:
            break
    none = np.zeros(0, dtype=np.intp)
    return np.concatenate([none, *slots]), np.concatenate([none, *by])


def _nearest(slots: Slots, judged: Sequence[Refusals], count: int) -> Slots:
    """Positions of the hosts that miss the least, the nearest first; of equal ones those that passed more filters.

    Every filter has judged every host, so all reasons of a host are known: each counts one, an amount counts its missing part.
    """
    change = np.zeros(len(slots), dtype=np.float64)
    for refusals in judged:
        places = np.flatnonzero(refusals.where[slots])
        change[places] += 1 if refusals.lack is None else refusals.lack(slots[places])
    change += np.linspace(0, TIE, len(slots))
    near = np.argpartition(change, count - 1)[:count] if len(slots) > count > 0 else np.arange(min(len(slots), count))
    return near[np.argsort(change[near], kind="stable")]


def _miss(world: World, slot: int, name: str, first: Refusals, judged: Sequence[Refusals]) -> Rejection:
    also = tuple(each.why(slot) for each in judged if each is not first and each.where[slot])
    return Rejection(world.names[slot], name, first.why(slot), also)


def _coded(world: World, refused: Sequence[Refused], ledger: DecisionRecord) -> DecisionRecord:
    """The ledger with a packed cause for each host, if there is room beside the misses."""
    places = {cause: place for place, cause in enumerate(ledger.counts, start=WILLING + 1)}
    codes = np.full(world.size, WILLING, dtype=np.uint8)
    for _, refusals, mask in refused:
        codes[mask] = min(places[refusals.cause], CODE_MAX)
    roll = world.roll()
    ledger = fitted(msgspec.structs.replace(ledger, roll=roll.digest), LEDGER_BYTES_MAX // 2)
    room = LEDGER_BYTES_MAX - len(msgspec.json.encode(ledger)) - ROOM_FOR_NUMBERS
    packed, count = pack_codes(codes[roll.slots].tobytes(), room)
    left_out = int(np.count_nonzero(codes[roll.slots[count:]]))
    return msgspec.structs.replace(ledger, codes=packed, coded=count, left_out=left_out)
