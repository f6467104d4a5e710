"""Scenes: orders and faults that belong together, because chance alone would seldom bring them together so closely.

Half of all plans have one, among whatever else is drawn.  `host of N` names the host that server N has claimed by then.
"""

import random
from collections.abc import Callable
from typing import TypeAlias

from moorage_testing.simulation.plan import HOSTS, SCENES, ZONE, Arguments, Draft, Event

CONDUCTORS = ("conductor1", "conductor2")
Draw: TypeAlias = Callable[[random.Random, Draft], list[Event]]


def scene(draw: Draw) -> Draw:
    """Register it under its name."""
    SCENES[draw.__name__] = draw
    return draw


def _at(dice: random.Random, draft: Draft) -> float:
    """When it begins: early, so that there is time for what follows."""
    return round(dice.uniform(0.5, draft.span_s / 4), 3)


def _event(at_s: float, what: str, **args: object) -> Event:
    return Event(round(at_s, 3), what, dict(args))


def _boot(draft: Draft, at_s: float, network: str, **more: object) -> tuple[int, Event]:
    draft.boots += 1
    said: Arguments = {"server": draft.boots - 1, "network": network, **more}
    return draft.boots - 1, Event(round(at_s, 3), "boot", said)


def _lasts(draft: Draft, at_s: float, seconds: float) -> None:
    draft.span_s = max(draft.span_s, round(at_s + seconds, 3))


@scene
def a_host_falls_silent_in_a_boot(dice: random.Random, draft: Draft) -> list[Event]:
    """The boot goes on elsewhere, or the server is deleted; then the host returns."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(33.0, 60.0), 3)
    server, boot = _boot(draft, at_s, dice.choice(("private", "none", "routed")))
    events = [boot]
    after_s = at_s + dice.choice((dice.uniform(0.005, 0.1), dice.uniform(0.1, 2.5)))
    if dice.random() < 0.6:
        events.append(_event(after_s, "freeze", role=f"host of {server}", for_s=for_s, sleeps=dice.random() < 0.3))
    else:
        events.append(_event(after_s, "bus_cut", role=f"host of {server}", for_s=for_s))
    if dice.random() < 0.4:
        events.append(_event(after_s + dice.uniform(1.0, for_s), "delete", server=server))
    _lasts(draft, after_s, for_s + 12.0)
    return events


@scene
def a_far_database_is_out(dice: random.Random, draft: Draft) -> list[Event]:
    """Longer than a lease; afterwards it is as far as before."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(16.0, 32.0), 3)
    draft.far_s = dice.choice((0.015, 0.06, 0.1))
    what = dice.choice(("database_hangs", "database_refuses"))
    more = {"why": "read-only"} if what == "database_refuses" else {}
    _, boot = _boot(draft, at_s - 0.2, "private")
    _, later = _boot(draft, at_s + for_s + 1.0, "private")
    _lasts(draft, at_s, for_s + 5.0)
    return [boot, _event(at_s, what, store="region", for_s=for_s, **more), later]


@scene
def an_administrator_and_a_user_at_once(dice: random.Random, draft: Draft) -> list[Event]:
    """Hosts are taken out of service a moment before servers are ordered."""
    at_s = _at(dice, draft)
    hosts = dice.sample(HOSTS, 2)
    what = dice.choice(("service", "service", "force_down"))
    events = [_event(at_s + dice.uniform(0.0, 0.02), what, host=host, on=True) for host in hosts]
    if dice.random() < 0.3:
        events = [_event(at_s, "zone", host=dice.choice(HOSTS[-2:]), on=False)]
    zoned = {"zone": ZONE} if events[0].what == "zone" else {}
    events += [_boot(draft, at_s + dice.uniform(0.02, 0.6), "private", **zoned)[1] for _ in range(4)]
    return events


@scene
def conductors_return_to_boots_that_wait(dice: random.Random, draft: Draft) -> list[Event]:
    """Both are killed, and what was accepted meanwhile is adopted by those that start."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(2.0, 20.0), 3)
    events = [_event(at_s, "kill", role=role, for_s=for_s) for role in CONDUCTORS]
    kinds = dice.choice(({"zone": ZONE}, {"zone": ZONE}, {}))
    events += [_boot(draft, at_s + dice.uniform(-0.05, 2.0), "private", **kinds)[1] for _ in range(3)]
    _lasts(draft, at_s, for_s + 16.0)
    return events


@scene
def a_cell_is_out_for_a_delete(dice: random.Random, draft: Draft) -> list[Event]:
    """What was answered 204 goes, whenever the cell is back."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(25.0, 50.0), 3)
    server, boot = _boot(draft, at_s, dice.choice(("private", "routed")))
    asked_s = at_s + 4.0
    what = dice.choice(("database_hangs", "database_refuses", "database_cut"))
    events = [boot, _event(asked_s, "delete", server=server)]
    for store in ("cell1", "cell2"):
        more = {"why": "full"} if what == "database_refuses" else {}
        roles = CONDUCTORS if what == "database_cut" else ("",)
        for role in roles:
            said = {**more, "role": role} if role else more
            events.append(_event(asked_s + dice.uniform(0.0, 0.03), what, store=store, for_s=for_s, **said))
    _lasts(draft, asked_s, for_s + 5.0)
    return events


@scene
def a_role_is_lost(dice: random.Random, draft: Draft) -> list[Event]:
    """The network service shows nothing, and reconcilers read it."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(5.0, 20.0), 3)
    events = [_boot(draft, at_s + number * 0.2, dice.choice(("private", "routed")))[1] for number in range(2)]
    lost_s = at_s + 5.0
    events.append(_event(lost_s, "neighbour", service="network", trouble="lost_role", chance=1.0, for_s=for_s))
    events += [_event(lost_s + 1.0, "reconcile", role=role, name="port_drift") for role in CONDUCTORS]
    _lasts(draft, lost_s, for_s + 5.0)
    return events


@scene
def a_round_looks_during_an_attach(dice: random.Random, draft: Draft) -> list[Event]:
    """A foreign port has the server's id, so there is something to repair; a user attaches meanwhile."""
    at_s, for_s = _at(dice, draft), 16.0
    booted = [_boot(draft, at_s, "private") for _ in range(2)]
    begins_s = at_s + 4.0
    events = [boot for _, boot in booted]
    events.append(_event(begins_s, "neighbour", service="network", trouble="slow", chance=1.0, for_s=for_s))
    for server, _ in booted:
        for number in range(4):
            moment_s = begins_s + number * 3.5 + dice.uniform(0.0, 1.0)
            events.append(_event(moment_s, "stray_port", server=server))
            events += [_event(moment_s + 0.8, "reconcile", role=role, name="stray_ports") for role in CONDUCTORS]
            events.append(_event(moment_s + dice.uniform(0.0, 2.0), "attach", server=server, network="private"))
    _lasts(draft, begins_s, for_s + 2.0)
    return events


@scene
def the_bus_is_out_for_a_boot(dice: random.Random, draft: Draft) -> list[Event]:
    """Longer than a host may be silent."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(32.0, 70.0), 3)
    events = [_event(at_s, "bus_down", for_s=for_s)]
    events += [_boot(draft, at_s + dice.uniform(-0.5, for_s), "private")[1] for _ in range(3)]
    _lasts(draft, at_s, for_s + 5.0)
    return events


@scene
def a_boot_finds_the_region_full(dice: random.Random, draft: Draft) -> list[Event]:
    """In the middle of its work; it waits, and does not ask the database a hundred times in a second."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(4.0, 11.0), 3)
    _, boot = _boot(draft, at_s, "private")
    why = dice.choice(("full", "read-only"))
    _lasts(draft, at_s, for_s + 5.0)
    return [boot, _event(at_s + dice.uniform(0.004, 0.4), "database_refuses", store="region", for_s=for_s, why=why)]


@scene
def a_guest_crashes_while_its_cell_is_full(dice: random.Random, draft: Draft) -> list[Event]:
    """What could not be stored is stored later."""
    at_s = _at(dice, draft)
    server, boot = _boot(draft, at_s, "private")
    crash_s = at_s + 5.0
    events = [boot, _event(crash_s, "guest_crashes", host=f"host of {server}")]
    full_s = crash_s - 0.5
    events += [_event(full_s, "database_refuses", store=each, for_s=8.0, why="full") for each in ("cell1", "cell2")]
    _lasts(draft, crash_s, 10.0)
    return events


@scene
def two_conductors_own_one_operation(dice: random.Random, draft: Draft) -> list[Event]:
    """One freezes in the middle for longer than its lease, and wakes when the other is at work."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(15.5, 35.0), 3)
    events = [_boot(draft, at_s, dice.choice(("private", "routed", "auto")))[1] for _ in range(2)]
    sleeps = dice.random() < 0.3
    events += [
        _event(at_s + dice.uniform(0.002, 0.5), "freeze", role=role, for_s=for_s + number * 0.5, sleeps=sleeps)
        for number, role in enumerate(dice.sample(CONDUCTORS, dice.choice((1, 2))))
    ]
    _lasts(draft, at_s, for_s + 8.0)
    return events


@scene
def one_database_is_restored(dice: random.Random, draft: Draft) -> list[Event]:
    """With servers of before the backup, some that were ordered since, and some that are deleted when all is back."""
    at_s, age_s = _at(dice, draft), round(dice.uniform(4.0, 25.0), 3)
    before = [_boot(draft, at_s + number * 0.3, dice.choice(("private", "routed", "none"))) for number in range(2)]
    made_s = at_s + dice.uniform(2.0, 8.0)
    store = dice.choice(("region", "cell1", "cell2"))
    since = [
        _boot(draft, made_s + dice.uniform(0.0, age_s), dice.choice(("private", "routed", "none")))
        for _ in range(dice.choice((1, 2, 3)))
    ]
    events = [boot for _, boot in (*before, *since)]
    events.append(_event(made_s, "restore", store=store, age_s=age_s, wrong=dice.random() < 0.5))
    more_s = made_s + age_s + 20.0
    for server, _ in before:
        what = dice.choice(("delete", "power", "attach", ""))
        more: Arguments = {"action": "os-stop"} if what == "power" else {}
        more = {"network": "private"} if what == "attach" else more
        if what:
            events.append(_event(dice.choice((made_s + age_s / 2, more_s)), what, server=server, **more))
    _lasts(draft, more_s, 15.0)
    return events


@scene
def processes_start_while_a_cell_is_out(dice: random.Random, draft: Draft) -> list[Event]:
    """It is taken in when it answers; servers go to the other cell meanwhile, and what is there already stays."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(15.0, 45.0), 3)
    out_s = at_s + 5.0
    events = [_boot(draft, at_s, "private")[1] for _ in range(2)]
    store = dice.choice(("cell1", "cell2"))
    roles = dice.choice((("conductor1", "conductor2"), ("api",), ("api", "conductor1", "conductor2")))
    if dice.random() < 0.5:
        events.append(_event(out_s, "database_hangs", store=store, for_s=for_s))
    else:
        events += [_event(out_s, "database_cut", store=store, role=role, for_s=for_s) for role in roles]
    events += [_event(out_s + 1.0, "kill", role=role, for_s=round(dice.uniform(0.5, 4.0), 3)) for role in roles]
    events += [_boot(draft, out_s + dice.uniform(5.0, for_s + 5.0), "private")[1] for _ in range(2)]
    events.append(
        _event(out_s + dice.uniform(5.0, for_s), dice.choice(("delete", "attach")), server=0, network="private")
    )
    _lasts(draft, out_s, for_s + 15.0)
    return events


@scene
def two_agents_of_one_name(dice: random.Random, draft: Draft) -> list[Event]:
    """The second is refused: no command is obeyed twice."""
    at_s, for_s = _at(dice, draft), round(dice.uniform(15.0, 40.0), 3)
    events = [_event(at_s, "twin", host=host, for_s=for_s) for host in dice.sample(HOSTS, 2)]
    events += [_boot(draft, at_s + dice.uniform(0.0, 15.0), "private")[1] for _ in range(4)]
    _lasts(draft, at_s, for_s + 3.0)
    return events
