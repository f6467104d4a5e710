"""Scenes of moves: what breaks them at their switch, while they wait, and on the way back."""

import random

from moorage_testing.simulation.life_scenes import begins, event, root
from moorage_testing.simulation.plan import HOSTS, Arguments, Draft, Event
from moorage_testing.simulation.scenes import CONDUCTORS, scene

NETWORKS = ("private", "private", "routed", "assured", "direct", "guaranteed", "two")
BUILT_S = 6.0
"""A boot is over by then."""
MOVED_S = 7.0
"""So is a move."""
OVER_S = 20.0


def booted(dice: random.Random, draft: Draft, at_s: float, *, off: bool = True) -> tuple[int, list[Event]]:
    """A server that is to be moved; sometimes off, if that may be, sometimes with a volume."""
    server, arguments = draft.boots, Arguments(server=draft.boots, network=dice.choice(NETWORKS))
    draft.boots += 1
    if kept := root(dice):
        arguments["root"] = kept
    events = [Event(round(at_s, 3), "boot", arguments)]
    if dice.random() < 0.3:
        events.append(event(at_s + BUILT_S, "attach_volume", server=server, volume=draft.volumes, goes=False))
        draft.volumes += 1
    if off and dice.random() < 0.25:
        events.append(event(at_s + BUILT_S + 4.0, "power", server=server, action="os-stop"))
    return server, events


def _move(dice: random.Random, at_s: float, server: int) -> Event:
    if dice.random() < 0.5:
        return event(at_s, "resize", server=server, flavor=dice.choice(("micro", "tiny")))
    return event(at_s, "migrate", server=server, host=None)


def _after(dice: random.Random, at_s: float, server: int, *, meanwhile: bool = False) -> Event:
    """`meanwhile`: it may be under way still."""
    what = dice.choice(("confirm_resize", "revert_resize", "revert_resize", "delete", "reset_state"))
    if meanwhile and what == "revert_resize":
        what = "cancel_move"
    more: Arguments = {"state": dice.choice(("active", "error"))} if what == "reset_state" else {}
    return event(at_s, what, server=server, **more)


def _host_trouble(dice: random.Random, at_s: float, role: str, most_s: float) -> Event:
    """Of one of the two hosts."""
    for_s = round(dice.uniform(0.5, most_s), 3)
    what = dice.choice(("kill", "freeze", "freeze", "bus_cut", "power_cut", "host"))
    match what:
        case "freeze":
            return event(at_s, what, role=role, for_s=for_s, sleeps=dice.random() < 0.3)
        case "power_cut":
            return event(at_s, what, host=role, for_s=for_s)
        case "host":
            dial: Arguments = dice.choice(
                ({"fail_times": 1}, {"fail_times": 2, "fail_when": "after"}, {"fail_times": 1, "hang": "after"})
            )
            verb = dice.choice(("*", "send_guest", "take_guest", "start_guest", "power_off", "destroy_guest"))
            return event(at_s, what, host=role, verb=verb, dial=dial, for_s=40.0)
        case _:
            return event(at_s, what, role=role, for_s=for_s)


def lasts(draft: Draft, at_s: float) -> None:
    draft.span_s = max(draft.span_s, round(at_s, 3))


@scene
def servers_move(dice: random.Random, draft: Draft) -> list[Event]:
    """Two of them at once, and nothing goes wrong unless it was drawn besides."""
    at_s, events = begins(dice), list[Event]()
    for number in range(2):
        server, first = booted(dice, draft, at_s + number * 0.3)
        moved_s = at_s + BUILT_S + 8.0 + dice.uniform(0.0, 1.0)
        events += [*first, _move(dice, moved_s, server), _after(dice, moved_s + MOVED_S, server)]
        events.append(_after(dice, moved_s + MOVED_S * dice.choice((0.2, 1.1, 2.0)), server, meanwhile=True))
    lasts(draft, at_s + 40.0)
    return events


@scene
def a_move_breaks_at_its_switch(dice: random.Random, draft: Draft) -> list[Event]:
    """One of its hosts, or both, at some moment between its claim and its end."""
    at_s = begins(dice)
    server, events = booted(dice, draft, at_s)
    moved_s = at_s + BUILT_S + 8.0
    events.append(_move(dice, moved_s, server))
    for role in dice.choice((["host of"], ["left by"], ["host of", "left by"])):
        broken_s = moved_s + dice.choice((dice.uniform(0.05, 0.6), dice.uniform(0.3, 3.0)))
        events.append(_host_trouble(dice, broken_s, f"{role} {server}", 70.0))
    if dice.random() < 0.3:
        events.append(event(moved_s + dice.uniform(1.0, 30.0), "force_down", host=f"host of {server}", on=True))
    events.append(_after(dice, moved_s + dice.uniform(3.0, 90.0), server, meanwhile=True))
    lasts(draft, moved_s + 95.0)
    return events


@scene
def a_source_returns_during_a_revert(dice: random.Random, draft: Draft) -> list[Event]:
    """It stands still, or is cut off, before the revert is ordered, and is back in the middle of it; or the new host is."""
    at_s = begins(dice)
    server, events = booted(dice, draft, at_s)
    moved_s = at_s + BUILT_S + 8.0
    ordered_s = moved_s + MOVED_S + 5.0
    events.append(_move(dice, moved_s, server))
    role = dice.choice((f"left by {server}", f"left by {server}", f"host of {server}"))
    begins_s = ordered_s - dice.choice((dice.uniform(0.0, 4.0), dice.uniform(-2.5, 0.0)))
    events.append(_host_trouble(dice, begins_s, role, 50.0))
    events.append(event(ordered_s, dice.choice(("revert_resize", "revert_resize", "confirm_resize")), server=server))
    if dice.random() < 0.6:
        events.append(_after(dice, ordered_s + dice.uniform(0.5, 45.0), server))
    lasts(draft, ordered_s + 60.0)
    return events


@scene
def conductors_die_in_a_move(dice: random.Random, draft: Draft) -> list[Event]:
    """Or stand still for longer than their lease, and come back as twins of those that have adopted it."""
    at_s = begins(dice)
    server, events = booted(dice, draft, at_s)
    moved_s = at_s + BUILT_S + 8.0
    ordered_s = moved_s + MOVED_S + dice.choice((0.0, 25.0))
    events += [_move(dice, moved_s, server), _after(dice, ordered_s, server)]
    for began_s in dice.choice(([moved_s], [ordered_s], [moved_s, ordered_s])):
        for role in dice.sample(CONDUCTORS, dice.choice((1, 2, 2))):
            what, most_s = dice.choice((("kill", 3.0), ("kill", 20.0), ("freeze", 35.0), ("restart", 2.0)))
            more: Arguments = {"sleeps": dice.random() < 0.3} if what == "freeze" else {}
            broken_s = began_s + dice.choice((dice.uniform(0.0, 0.4), dice.uniform(0.0, 4.0)))
            events.append(event(broken_s, what, role=role, for_s=round(dice.uniform(0.5, most_s), 3), **more))
    lasts(draft, ordered_s + 45.0)
    return events


@scene
def a_neighbour_or_a_store_fails_in_a_move(dice: random.Random, draft: Draft) -> list[Event]:
    """The network service, the volume service, the region's database or a cell's."""
    at_s = begins(dice)
    server, events = booted(dice, draft, at_s)
    moved_s = at_s + BUILT_S + 8.0
    ordered_s = moved_s + MOVED_S + dice.choice((0.0, 20.0))
    events += [_move(dice, moved_s, server), _after(dice, ordered_s, server)]
    for _ in range(dice.randint(1, 2)):
        broken_s = dice.choice((moved_s, ordered_s)) + dice.uniform(0.0, 3.5)
        for_s = round(dice.uniform(0.5, 30.0), 3)
        what = dice.choice(("neighbour", "neighbour", "kill", "database_hangs", "commits_lost", "database_refuses"))
        match what:
            case "neighbour":
                trouble = dice.choice(("refused", "fails_before", "fails_after", "late", "lost_answer", "short"))
                more: Arguments = {"trouble": trouble, "chance": dice.choice((0.3, 0.6, 1.0)), "for_s": for_s}
                more["service"] = dice.choice(("network", "network", "volume"))
            case "kill":
                more = {"role": "neighbours", "for_s": for_s}
            case "commits_lost":
                more = {"store": dice.choice(("region", "cell1")), "count": dice.choice((1, 2, 5))}
            case _:
                more = {"store": dice.choice(("region", "cell1")), "for_s": for_s}
                more |= {"why": "full"} if what == "database_refuses" else {}
        events.append(event(broken_s, what, **more))
    lasts(draft, ordered_s + 45.0)
    return events


@scene
def a_fleet_moves(dice: random.Random, draft: Draft) -> list[Event]:
    """Several servers, of which some find no room: administrators take hosts away meanwhile."""
    at_s, events = begins(dice), list[Event]()
    host = dice.choice(HOSTS)
    for number in range(3):
        server, first = booted(dice, draft, at_s + number * 0.2)
        moved_s = at_s + BUILT_S + 8.0 + dice.uniform(0.0, 1.5)
        events += [*first, _move(dice, moved_s, server), _after(dice, moved_s + MOVED_S, server)]
    what = dice.choice(("service", "force_down", "zone"))
    events.append(event(at_s + BUILT_S + 8.0 + dice.uniform(0.0, 1.5), what, host=host, on=True))
    lasts(draft, at_s + OVER_S + 15.0)
    return events


__all__ = ["scene"]
