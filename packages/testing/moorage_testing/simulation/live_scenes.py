"""Scenes of live migrations and of evacuations: what breaks them at their switch, before it and after it, and hosts that come back."""

import random

from moorage_testing.simulation.life_scenes import begins, event
from moorage_testing.simulation.move_scenes import BUILT_S, booted, lasts, scene
from moorage_testing.simulation.plan import Arguments, Draft, Event
from moorage_testing.simulation.scenes import CONDUCTORS

READY_S = BUILT_S + 8.0
"""A server is built, has its volume, or is off."""
VERBS = ("*", "live_source", "live_target", "prepare_live", "send_live", "live_transfer", "land_live", "drop_live", "abort_live", "destroy_guest", "live_status")  # fmt: skip


def _moment(dice: random.Random, at_s: float, most_s: float = 4.0) -> float:
    """Closely after an order, or at some time in what it does."""
    return at_s + dice.choice((dice.uniform(0.0, 0.5), dice.uniform(0.2, most_s)))


def host_breaks(dice: random.Random, at_s: float, role: str, verbs: tuple[str, ...]) -> Event:
    """Its agent, its way to the bus, its power, or its hypervisor."""
    for_s = round(dice.choice((dice.uniform(0.5, 5.0), dice.uniform(5.0, 60.0))), 3)
    what = dice.choice(("kill", "freeze", "freeze", "bus_cut", "power_cut", "restart", "host", "host"))
    match what:
        case "freeze":
            return event(at_s, what, role=role, for_s=for_s, sleeps=dice.random() < 0.3)
        case "power_cut":
            return event(at_s, what, host=role, for_s=for_s)
        case "host":
            dial: Arguments = dice.choice(
                ({"fail_times": 1}, {"fail_times": 2, "fail_when": "after"}, {"fail_times": 1, "hang": "after"}, {"fail_times": 1, "hang": "before"})
            )  # fmt: skip
            return event(at_s, what, host=role, verb=dice.choice(verbs), dial=dial, for_s=for_s)
        case _:
            return event(at_s, what, role=role, for_s=for_s)


def conductors_break(dice: random.Random, at_s: float) -> list[Event]:
    events: list[Event] = []
    for role in dice.sample(CONDUCTORS, dice.choice((1, 2, 2))):
        what, most_s = dice.choice((("kill", 3.0), ("kill", 20.0), ("freeze", 35.0), ("restart", 2.0)))
        more: Arguments = {"sleeps": dice.random() < 0.3} if what == "freeze" else {}
        for_s = round(dice.uniform(0.5, most_s), 3)
        events.append(event(_moment(dice, at_s), what, role=role, for_s=for_s, **more))
    return events


def around_breaks(dice: random.Random, at_s: float) -> Event:
    """The network service, the volume service, the region's database or a cell's: from the beginning, or late."""
    for_s, at_s = round(dice.uniform(0.5, 30.0), 3), _moment(dice, at_s, 6.0)
    what = dice.choice(
        ("neighbour", "neighbour", "kill", "database_hangs", "commits_lost", "commits_lost", "database_refuses")
    )
    match what:
        case "neighbour":
            trouble = dice.choice(
                ("refused", "fails_before", "fails_after", "late", "lost_answer", "short", "lost_role")
            )
            service = dice.choice(("network", "network", "network", "volume", "image"))
            return event(at_s, what, service=service, trouble=trouble, chance=dice.choice((0.3, 0.6, 1.0)), for_s=for_s)
        case "kill":
            return event(at_s, what, role="neighbours", for_s=for_s)
        case "commits_lost":
            return event(at_s, what, store=dice.choice(("region", "cell1", "cell2")), count=dice.choice((1, 1, 2, 5)))
        case _:
            more: Arguments = {"why": "full"} if what == "database_refuses" else {}
            return event(at_s, what, store=dice.choice(("region", "cell1", "cell2")), for_s=for_s, **more)


def _pace(dice: random.Random, at_s: float, server: int) -> list[Event]:
    """How its host sends it: mostly not at once."""
    if dice.random() < 0.3:
        return []
    said: Arguments = {
        "mib_per_s": dice.choice((100.0, 500.0, 2000.0)),
        "dirty_mib_per_s": dice.choice((0.0, 0.0, 5000.0)),
        "switch_s": dice.choice((0.0, 0.3, 2.0)),
    }
    return [event(at_s, "live_pace", host=f"host of {server}", for_s=round(dice.uniform(3.0, 30.0), 3), **said)]


def _concurrent_orders(dice: random.Random, at_s: float, server: int) -> list[Event]:
    """Of a live migration that was ordered then."""
    events: list[Event] = []
    for _ in range(dice.choice((0, 1, 1, 2))):
        what = dice.choice(("abort_live", "abort_live", "force_live", "force_live", "delete", "live_migrate"))
        more: Arguments = {"host": None} if what == "live_migrate" else {}
        events.append(event(_moment(dice, at_s, 10.0), what, server=server, **more))
    return events


def _live(dice: random.Random, draft: Draft) -> tuple[float, int, list[Event]]:
    """A server, and the order that it go elsewhere; when it was given."""
    at_s = begins(dice)
    server, events = booted(dice, draft, at_s, off=False)
    ordered_s = at_s + READY_S
    events += _pace(dice, ordered_s - 0.2, server)
    events.append(event(ordered_s, "live_migrate", server=server, host=None))
    events += _concurrent_orders(dice, ordered_s, server)
    lasts(draft, ordered_s + 40.0)
    return ordered_s, server, events


@scene
def a_live_migration_breaks_at_its_switch(dice: random.Random, draft: Draft) -> list[Event]:
    """One of its hosts, or both, at some moment between its order and its end."""
    ordered_s, server, events = _live(dice, draft)
    for role in dice.choice((["host of"], ["left by"], ["host of", "left by"])):
        events.append(host_breaks(dice, _moment(dice, ordered_s, 6.0), f"{role} {server}", VERBS))
    lasts(draft, ordered_s + 75.0)
    return events


@scene
def what_is_around_a_live_migration_breaks(dice: random.Random, draft: Draft) -> list[Event]:
    """Conductors, services and databases, one after the other."""
    ordered_s, _, events = _live(dice, draft)
    if dice.random() < 0.5:
        events += conductors_break(dice, ordered_s)
    for _ in range(dice.randint(0, 2)):
        events.append(around_breaks(dice, ordered_s))
    return events


# ---------------------------------------------------------------------------------------------------- evacuation


def _outage(dice: random.Random, draft: Draft) -> tuple[float, list[int], list[Event]]:
    """Servers on a host that fails somehow, is switched off and reported as down, and the order to evacuate them; when it was given."""
    at_s = begins(dice)
    server, events = booted(dice, draft, at_s)
    servers = [server]
    if dice.random() < 0.4:
        another, more = booted(dice, draft, at_s + 0.2)
        servers, events = [server, another], [*events, *more]
    off_s, host = at_s + READY_S + dice.uniform(0.0, 2.0), f"host of {server}"
    if dice.random() < 0.6:
        events.append(host_breaks(dice, off_s - dice.uniform(0.1, 6.0), host, ("*",)))
    if dice.random() < 0.25:
        events += _pace(dice, off_s - 3.5, server)
        events.append(event(off_s - dice.uniform(0.0, 3.0), "live_migrate", server=server, host=None))
    said_s = round(dice.uniform(0.0, 2.0), 3)
    back_s = dice.choice((dice.uniform(said_s, said_s + 6.0), dice.uniform(5.0, 70.0)))
    events.append(event(off_s, "outage", host=host, said_s=said_s, for_s=round(back_s, 3)))
    ordered_s = off_s + said_s + dice.choice((dice.uniform(0.1, 0.6), dice.uniform(0.5, 8.0)))
    events += [
        event(ordered_s + number * 0.1, "evacuate", server=each, host=None, runs=dice.random() < 0.6)
        for number, each in enumerate(servers)
    ]
    if dice.random() < 0.4:
        again_s = ordered_s + dice.uniform(5.0, 50.0)
        events.append(event(again_s, "evacuate", server=server, host=None, runs=True))
    lasts(draft, ordered_s + 45.0)
    return ordered_s, servers, events


def _order_during_evacuation(dice: random.Random, at_s: float, server: int) -> Event:
    """What people say while it is evacuated, or afterwards."""
    what = dice.choice(("force_down", "power", "power", "delete", "live_migrate", "resize"))
    match what:
        case "force_down":
            return event(at_s, what, host=dice.choice(("left by", "host of")) + f" {server}", on=False)
        case "power":
            return event(at_s, what, server=server, action=dice.choice(("os-start", "reboot", "os-stop")))
        case "live_migrate":
            return event(at_s, what, server=server, host=None)
        case "resize":
            return event(at_s, what, server=server, flavor="micro")
        case _:
            return event(at_s, what, server=server)


@scene
def an_evacuated_host_returns(dice: random.Random, draft: Draft) -> list[Event]:
    """At any moment, cut off or in order; people say this and that meanwhile, and the new host may fail as well."""
    ordered_s, servers, events = _outage(dice, draft)
    for _ in range(dice.choice((0, 1, 1, 2))):
        events.append(_order_during_evacuation(dice, ordered_s + dice.uniform(-1.0, 40.0), dice.choice(servers)))
    for role in dice.choice(([], ["host of"], ["left by"], ["host of", "left by"])):
        verbs = ("*", "start_guest", "start_guest", "destroy_guest", "power_off")
        events.append(host_breaks(dice, _moment(dice, ordered_s, 8.0), f"{role} {servers[0]}", verbs))
    lasts(draft, ordered_s + 75.0)
    return events


@scene
def what_is_around_an_evacuation_breaks(dice: random.Random, draft: Draft) -> list[Event]:
    """Conductors, services and databases, one after the other."""
    ordered_s, servers, events = _outage(dice, draft)
    if dice.random() < 0.5:
        events += conductors_break(dice, ordered_s)
    for _ in range(dice.randint(0, 2)):
        events.append(around_breaks(dice, ordered_s))
    if dice.random() < 0.4:
        events.append(_order_during_evacuation(dice, ordered_s + dice.uniform(0.0, 20.0), servers[0]))
    return events


__all__ = ["scene"]
