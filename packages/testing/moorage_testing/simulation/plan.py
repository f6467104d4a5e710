"""What happens in one simulation: orders of users and administrators, and faults, each at its moment; drawn from a seed, or read from a file."""

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from moorage_testing.simulation.cloud import SimulatedCloud

HOSTS = ("host1", "host2", "host3", "host4", "host5")
"""The first three are in one cell, the others in another: a server that is moved has somewhere to go, and once a second choice."""
SPAN_S = (15.0, 30.0, 45.0, 90.0)
"""Spans are drawn between services of these."""
ORDERS = (4, 14)
FAULTS = (1, 7)
WITH_A_SCENE = 0.5
ALONE = 0.4
"""Of those with a scene: nothing else happens."""
ORDERS_BESIDE = (1, 5)
FAULTS_BESIDE = (0, 2)
FAR_S = (0.0, 0.0, 0.0, 0.015, 0.1)
RECLAIM_S = (0.0, 0.0, 0.0, 25.0)
OFFLOAD_S = (0.0, 0.0, 10.0, -1.0)
TOGETHER = 0.5
NEAR_AN_ORDER = 0.7
ON_TOP = 0.1
"""Of all plans: something of `SCENES_BESIDE` too."""
OTHER_HOSTS = ("host6", "host7")
"""Of a third cell, in plans in which servers may move to other cells."""
NOT_DRAWN_YET = "a_database_is_put_back_in_a_move"
"""Played when it is asked for: a region that is put back to the middle of a move between cells forgets which copy is whose."""
CROSS_CELL = 0.1
"""Of all plans: there are three cells, servers may leave theirs, and a scene of `CROSS_CELL_SCENES` or of these comes on top."""
ALSO_ACROSS_CELLS = ("a_move_breaks_at_its_switch", "a_source_returns_during_a_revert", "conductors_die_in_a_move")
ACROSS = 0.1
"""Of all plans: servers may leave their segments, most have one, and one of `MOVES` comes on top."""
MOVES = (
    "a_move_breaks_at_its_switch", "a_neighbour_or_a_store_fails_in_a_move", "a_source_returns_during_a_revert",
    "an_evacuated_host_returns", "conductors_die_in_a_move", "servers_move", "what_is_around_an_evacuation_breaks",
)  # fmt: skip
ON_A_SEGMENT = 0.8
"""Of the servers in such a plan that would be on another network; on those of `FREE_TO_CHOOSE` nobody asks for more than an address."""
FREE_TO_CHOOSE = frozenset({"private", "assured", "direct", "routed"})
ALONE_THERE = 0.8
"""Of those of the scene: they are in the second cell, where no other host has their segment."""
SHARED_VOLUMES = 1_000
"""Volumes from this number on are of several writers."""
ZONE = "zone2"
"""Of the last two of `HOSTS`, which are the second cell."""
LEVELS = ((3,), (3,), (3,), (3, 2), (2, 3, 1), (1,))
"""Protocol levels of the hosts, in turn; most fleets are of today's."""

Arguments: TypeAlias = dict[str, Any]
Draw: TypeAlias = Callable[[random.Random, "Draft"], Arguments]
CarryOut: TypeAlias = "Callable[[SimulatedCloud, Arguments], Awaitable[None]]"


class Event(msgspec.Struct, frozen=True):
    """One thing that happens."""

    at_s: float
    what: str
    args: Arguments = {}

    def text(self) -> str:
        """In one line, for people."""
        told = " ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.at_s:8.3f} {self.what} {told}".rstrip()


class SimulationPlan(msgspec.Struct, frozen=True):
    """A whole simulation; a part of its events is a plan too, which is how a failing one is made short."""

    seed: int
    span_s: float
    events: tuple[Event, ...]
    levels: tuple[int, ...] = (3,)
    far_s: float = 0.0
    """How far the databases are, each way, all the time."""
    reclaim_s: float = 0.0
    """How long a deleted server can be restored; 0: it cannot."""
    offload_s: float = 0.0
    """How long a shelved server stays on its host; 0: not at all, below 0: until it is offloaded on request."""
    across: bool = False
    """Whether moves may give addresses of other segments."""
    cross_cell: bool = False
    """Whether everybody may have servers moved to other cells, of which there is one more; moves leave theirs if they can."""

    def but(self, events: tuple[Event, ...]) -> "SimulationPlan":
        return msgspec.structs.replace(self, events=events)


@dataclass
class Draft:
    """What was drawn so far."""

    span_s: float
    boots: int = 0
    """How many servers were ordered; orders about servers name one of them."""
    volumes: int = 0
    """So many volumes of the user's are named so far."""
    levels: tuple[int, ...] = (3,)
    far_s: float = 0.0
    reclaim_s: float = 0.0
    offload_s: float = 0.0


@dataclass(frozen=True)
class Kind:
    """A kind of order or fault."""

    name: str
    weight: int
    draw: Draw
    carry_out: CarryOut


class Registry(dict[str, Kind]):
    """Kinds by name; each new function adds a kind."""

    def add(self, name: str, weight: int, draw: Draw) -> Callable[[CarryOut], CarryOut]:
        """A decorator of the function that carries it out."""

        def added(carry_out: CarryOut) -> CarryOut:
            self[name] = Kind(name, weight, draw, carry_out)
            return carry_out

        return added


SCENES: dict[str, Callable[[random.Random, Draft], list[Event]]] = {}
"""By name: what belongs together, see `scenes.py`."""
CROSS_CELL_SCENES: dict[str, Callable[[random.Random, Draft], list[Event]]] = {}
"""By name: what comes on top of plans in which servers may move to other cells, see `cross_cell_scenes.py`."""
SCENES_BESIDE: dict[str, Callable[[random.Random, Draft], list[Event]]] = {}
"""By name: what comes on top of some plans, see `shared_scenes.py`."""
ORDERS_BY_NAME = Registry()
FAULTS_BY_NAME = Registry()
LATER_ORDERS = Registry()
LATER_FAULTS = Registry()
"""What only the scenes of `LATER_SCENES` have: a kind more in the registries above would change the plan of every seed."""
LATER_SCENES: dict[str, Callable[[random.Random, Draft], list[Event]]] = {}
"""By name: scenes with a share of all seeds each, and dice of their own."""
SHARES = {
    "an_answer_of_a_host_is_lost": 0.15,
    "operators_act": 0.05,
    "a_conductor_loses_the_bus": 0.04,
    "a_database_fails_over": 0.08,
}
"""Of all plans: this scene comes on top. One with 0 is played when it is asked for (`--scene`)."""


def later_scene(
    draw: Callable[[random.Random, Draft], list[Event]],
) -> Callable[[random.Random, Draft], list[Event]]:
    """Register a scene that comes on top of its share of all seeds, under its name."""
    LATER_SCENES[draw.__name__] = draw
    return draw


def is_fault(what: str) -> bool:
    return what in FAULTS_BY_NAME or what in LATER_FAULTS


def additional_scene(
    draw: Callable[[random.Random, Draft], list[Event]],
) -> Callable[[random.Random, Draft], list[Event]]:
    """Register a scene that comes on top, under its name."""
    SCENES_BESIDE[draw.__name__] = draw
    return draw


def across_cells(draw: Callable[[random.Random, Draft], list[Event]]) -> Callable[[random.Random, Draft], list[Event]]:
    """Register a scene of moves between cells, under its name."""
    CROSS_CELL_SCENES[draw.__name__] = draw
    return draw


def every_kind() -> Mapping[str, Kind]:
    """Orders and faults."""
    return {**ORDERS_BY_NAME, **LATER_ORDERS, **FAULTS_BY_NAME, **LATER_FAULTS}


def drawn(seed: int, scene: str | None = None) -> SimulationPlan:
    """The plan of a seed; `scene`: one that must be in it, or is alone if it is one that comes on top.

    Whether servers may leave their segments, and whether they may leave their cells, has dice of its own: all other plans are what they
    would be without.
    """
    plan, dice = _with_what_is_on_top(seed, scene), random.Random(f"across {seed}")
    if scene is None and dice.random() < ACROSS:
        plan = across(plan, dice)
    dice = random.Random(f"cells {seed}")
    put_back = any(each.what == "restore" for each in plan.events)
    if scene in CROSS_CELL_SCENES or (scene is None and dice.random() < CROSS_CELL and not put_back):
        plan = cross_cell(plan, dice, scene)
    return plan if scene is not None else _with_later_scenes(plan)


def _with_later_scenes(plan: SimulationPlan) -> SimulationPlan:
    """With what comes on top by its share of all seeds; but beside a restore, whose rules are about what stood still."""
    restored = any(each.what == "restore" for each in plan.events)
    for name, share in SHARES.items():
        dice = random.Random(f"{name} {plan.seed}")
        if dice.random() < share and not restored:
            plan = _with_scene(plan, LATER_SCENES[name], dice)
    return plan


def _with_scene(
    plan: SimulationPlan, scene: Callable[[random.Random, Draft], list[Event]], dice: random.Random
) -> SimulationPlan:
    draft = _after(plan)
    events = sorted([*plan.events, *scene(dice, draft)], key=lambda each: each.at_s)
    return msgspec.structs.replace(plan, span_s=draft.span_s, events=tuple(events))


def cross_cell(plan: SimulationPlan, dice: random.Random, scene: str | None = None) -> SimulationPlan:
    """The same, in which servers may move to other cells, with this scene on top or one that is drawn."""
    draft = _after(plan)
    every = {**{each: SCENES[each] for each in ALSO_ACROSS_CELLS}, **CROSS_CELL_SCENES}
    every = {name: draw for name, draw in every.items() if name != NOT_DRAWN_YET or name == scene}
    events = [*plan.events, *every[scene or dice.choice(sorted(every))](dice, draft)]
    events.sort(key=lambda each: each.at_s)
    return msgspec.structs.replace(plan, span_s=draft.span_s, cross_cell=True, events=tuple(events))


def across(plan: SimulationPlan, dice: random.Random) -> SimulationPlan:
    """The same, in which servers may leave their segments."""
    draft = _after(plan)
    events = [
        *(_on_a_segment(dice, each, far=0.0) for each in plan.events),
        *(_on_a_segment(dice, each, far=ALONE_THERE) for each in SCENES[dice.choice(MOVES)](dice, draft)),
    ]
    events.sort(key=lambda each: each.at_s)
    return msgspec.structs.replace(plan, span_s=draft.span_s, across=True, events=tuple(events))


def _on_a_segment(dice: random.Random, event: Event, *, far: float) -> Event:
    """`far`: the chance that it is in the zone of which each host is on another segment."""
    if event.what != "boot" or event.args.get("network") not in FREE_TO_CHOOSE or dice.random() >= ON_A_SEGMENT:
        return event
    more: Arguments = {"zone": ZONE} if dice.random() < far else {}
    return msgspec.structs.replace(event, args={**event.args, "network": "routed", **more})


def _after(plan: SimulationPlan) -> Draft:
    """For what comes on top of it."""
    named = [each.args["volume"] for each in plan.events if "volume" in each.args]
    boots = sum(each.what == "boot" for each in plan.events)
    volumes = max((each for each in named if each < SHARED_VOLUMES), default=-1) + 1
    return Draft(plan.span_s, boots, volumes, plan.levels, plan.far_s, plan.reclaim_s, plan.offload_s)


def _with_what_is_on_top(seed: int, scene: str | None) -> SimulationPlan:
    """What comes on top has dice of its own: all other plans are what they would be without."""
    dice = random.Random(f"on top {seed}")
    if scene in CROSS_CELL_SCENES:
        return _finished_plan(seed, Draft(SPAN_S[0]), [])
    if scene in LATER_SCENES:
        empty = _finished_plan(seed, Draft(SPAN_S[0]), [])
        return _with_scene(empty, LATER_SCENES[scene], random.Random(f"{scene} {seed}"))
    if scene in SCENES_BESIDE:
        draft = Draft(SPAN_S[0], offload_s=dice.choice(OFFLOAD_S), far_s=dice.choice(FAR_S))
        events = SCENES_BESIDE[scene](dice, draft)
        return _finished_plan(seed, draft, sorted(events, key=lambda each: each.at_s))
    plan = _drawn(seed, scene)
    if scene is not None or dice.random() >= ON_TOP:
        return plan
    draft = _after(plan)
    events = [*plan.events, *SCENES_BESIDE[dice.choice(sorted(SCENES_BESIDE))](dice, draft)]
    return msgspec.structs.replace(plan, span_s=draft.span_s, events=tuple(sorted(events, key=lambda each: each.at_s)))


def _drawn(seed: int, scene: str | None) -> SimulationPlan:
    """From the orders, the faults and the scenes that every seed may have.

    Each seed has some kinds of fault only, so that some are rare together and some are alone.
    """
    dice = random.Random(f"plan {seed}")
    least_s, most_s = dice.choice(tuple(pairwise(SPAN_S)))
    draft = Draft(
        round(dice.uniform(least_s, most_s), 3),
        levels=dice.choice(LEVELS),
        far_s=dice.choice(FAR_S),
        reclaim_s=dice.choice(RECLAIM_S),
        offload_s=dice.choice(OFFLOAD_S),
    )
    chosen = dice.choice(sorted(SCENES)) if dice.random() < WITH_A_SCENE else None
    events: list[Event] = []
    if chosen is not None or scene is not None:
        events += SCENES[scene or chosen or ""](dice, draft)
    if events and dice.random() < ALONE:
        events.sort(key=lambda each: each.at_s)
        return _finished_plan(seed, draft, events)
    faults = [each for each in FAULTS_BY_NAME.values() if dice.random() < 0.4]
    some, few = (ORDERS, FAULTS) if not events else (ORDERS_BESIDE, FAULTS_BESIDE)
    times = _order_times(dice, draft.span_s, dice.randint(*some))
    first = [ORDERS_BY_NAME["boot"]]
    for at_s in times:
        kinds = [*ORDERS_BY_NAME.values()] if draft.boots else first
        events.append(_event(dice, draft, at_s, kinds))
    if faults:
        count = dice.randint(*few)
        events += [_event(dice, draft, _fault_time(dice, draft.span_s, times), faults) for _ in range(count)]
    events.sort(key=lambda each: each.at_s)
    return _finished_plan(seed, draft, events)


def _finished_plan(seed: int, draft: Draft, events: list[Event]) -> SimulationPlan:
    return SimulationPlan(
        seed, draft.span_s, tuple(events), draft.levels, draft.far_s, draft.reclaim_s, draft.offload_s
    )  # fmt: skip


def _order_times(dice: random.Random, span_s: float, count: int) -> list[float]:
    """Some alone, some shortly after another."""
    times = [dice.uniform(0.0, span_s)]
    for _ in range(count - 1):
        near = dice.random() < TOGETHER
        times.append(dice.choice(times) + dice.uniform(0.0, 2.0) if near else dice.uniform(0.0, span_s))
    return sorted(round(min(each, span_s), 3) for each in times)


def _fault_time(dice: random.Random, span_s: float, orders: list[float]) -> float:
    """Mostly about when something was ordered: what goes wrong while nothing is done is found soon enough."""
    if dice.random() < NEAR_AN_ORDER:
        at_s = dice.choice(orders) + dice.uniform(-3.0, 3.0)
        return round(min(max(at_s, 0.0), span_s), 3)
    return round(dice.uniform(0.0, span_s), 3)


def _event(dice: random.Random, draft: Draft, at_s: float, kinds: list[Kind]) -> Event:
    kind = dice.choices(kinds, [each.weight for each in kinds])[0]
    return Event(at_s, kind.name, kind.draw(dice, draft))
