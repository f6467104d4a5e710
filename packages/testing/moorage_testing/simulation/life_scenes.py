"""Scenes of a server's whole life: orders that fit its state, one after the other, and something that goes wrong in the middle of one.

Orders that chance alone draws are mostly refused: a server must be rescued before it can be unrescued.
"""

import random
from collections.abc import Callable

from moorage_testing.simulation.orders import QUIESCED
from moorage_testing.simulation.plan import ZONE, Arguments, Draft, Event
from moorage_testing.simulation.scenes import CONDUCTORS, scene

PACE_S = (4.0, 9.0)
"""Between two orders: most have ended by then."""
NEXT: dict[str, tuple[tuple[str, str], ...]] = {
    "ACTIVE": (
        ("rebuild", ""), ("rescue", "RESCUE"), ("shelve", "SHELVED"), ("create_image", ""), ("create_backup", ""),
        ("attach_volume", ""), ("detach_volume", ""), ("swap_volume", ""), ("extend_volume", ""),
        ("resize", "VERIFY_RESIZE"), ("resize", "VERIFY_RESIZE"), ("migrate", "VERIFY_RESIZE"), ("migrate", "VERIFY_RESIZE"),
        ("power os-stop", "SHUTOFF"), ("power pause", "PAUSED"), ("power suspend", "SUSPENDED"), ("attach", ""),
        ("change_password", ""), ("change_password", ""), ("crash_dump", ""), ("crash_dump", ""),
    ),
    "RESCUE": (("unrescue", "ACTIVE"),),
    "SHELVED": (("unshelve", "ACTIVE"), ("unshelve", "ACTIVE"), ("attach_volume", ""), ("detach_volume", "")),
    "SHUTOFF": (
        ("power os-start", "ACTIVE"), ("rebuild", ""), ("create_image", ""), ("shelve", "SHELVED"), ("attach_volume", ""),
        ("rescue", "RESCUE"), ("resize", "VERIFY_RESIZE and off"), ("migrate", "VERIFY_RESIZE and off"),
    ),
    "VERIFY_RESIZE": (
        ("confirm_resize", "ACTIVE"), ("revert_resize", "ACTIVE"), ("confirm_resize", "ACTIVE"), ("revert_resize", "ACTIVE"),
        ("attach_volume", ""), ("detach_volume", ""),
    ),
    "VERIFY_RESIZE and off": (("confirm_resize", "SHUTOFF"), ("revert_resize", "SHUTOFF"), ("attach_volume", "")),
    "PAUSED": (("power unpause", "ACTIVE"), ("create_image", ""), ("shelve", "SHELVED"), ("attach_volume", "")),
    "SUSPENDED": (("power resume", "ACTIVE"), ("shelve", "SHELVED")),
}  # fmt: skip
"""State → what may be ordered in it, and the state after it; empty: the same."""
Trouble = Callable[[random.Random, float, int], list[Event]]


def event(at_s: float, what: str, **args: object) -> Event:
    return Event(round(at_s, 3), what, dict(args))


def _boot(dice: random.Random, draft: Draft, at_s: float, root: str) -> tuple[int, Event]:
    draft.boots += 1
    said: Arguments = {"server": draft.boots - 1, "network": dice.choice(("private", "private", "routed", "port"))}
    if root:
        said |= {"root": root, "quiesced": dice.random() < QUIESCED}
    if dice.random() < 0.1:
        said["zone"] = ZONE
    return draft.boots - 1, Event(round(at_s, 3), "boot", said)


def _order(dice: random.Random, draft: Draft, at_s: float, server: int, what: str) -> Event:
    """With its arguments."""
    name, _, action = what.partition(" ")
    said: Arguments = {"server": server}
    match name:
        case "power":
            said["action"] = action
        case "rebuild":
            said["other"] = dice.random() < 0.8
        case "create_backup":
            said["rotation"] = dice.choice((0, 1, 1, 2))
        case "attach":
            said["network"] = "private"
        case "attach_volume":
            said |= {"volume": draft.volumes, "goes": dice.random() < 0.3}
            draft.volumes += 1
        case "detach_volume":
            said["which"] = dice.randrange(2)
        case "swap_volume":
            said |= {"which": 0, "volume": draft.volumes}
            draft.volumes += 1
        case "resize":
            said["flavor"] = dice.choice(("micro", "tiny"))
        case "migrate":
            said["host"] = None
        case "change_password":
            said["password"] = f"secret {dice.randrange(1_000)}"
        case "extend_volume":
            said = {"volume": max(draft.volumes - 1, 0)}
        case _:
            pass
    return Event(round(at_s, 3), name, said)


def _life(
    dice: random.Random, draft: Draft, at_s: float, steps: int, root: str, first: tuple[str, ...] = ()
) -> tuple[int, list[Event]]:
    """A boot and what follows, each order in a state that allows it."""
    server, boot = _boot(dice, draft, at_s, root)
    events, state = [boot], "ACTIVE"
    for number in range(steps):
        at_s += dice.uniform(*PACE_S)
        wanted = [each for each in NEXT[state] if number < len(first) and each[0] == first[number]]
        what, after = dice.choice(wanted or NEXT[state])
        if what == "create_backup" and root:
            what = "create_image"
        events.append(_order(dice, draft, at_s, server, what))
        state = after or state
    if dice.random() < 0.4:
        at_s += dice.uniform(*PACE_S)
        events.append(event(at_s, "delete", server=server))
        if draft.reclaim_s and dice.random() < 0.5:
            events.append(event(at_s + dice.uniform(0.5, 10.0), "restore_server", server=server))
    draft.span_s = max(draft.span_s, round(at_s + 8.0, 3))
    return server, events


def begins(dice: random.Random) -> float:
    return dice.uniform(0.5, 3.0)


def root(dice: random.Random) -> str:
    return dice.choice(("", "", "stays", "goes"))


def _in_the_middle(dice: random.Random, events: list[Event]) -> float:
    """A moment in one of the later orders."""
    return dice.choice(events[1:]).at_s + dice.choice((dice.uniform(0.0, 0.15), dice.uniform(0.0, 2.5)))


@scene
def a_server_lives(dice: random.Random, draft: Draft) -> list[Event]:
    """Nothing goes wrong, unless it was drawn besides."""
    return _life(dice, draft, begins(dice), dice.randint(4, 8), root(dice))[1]


@scene
def conductors_die_in_a_life(dice: random.Random, draft: Draft) -> list[Event]:
    """One of them or both, again and again."""
    _, events = _life(dice, draft, begins(dice), dice.randint(3, 6), root(dice))
    troubles: list[Event] = []
    for _ in range(dice.randint(1, 3)):
        at_s = _in_the_middle(dice, events)
        for role in dice.sample(CONDUCTORS, dice.choice((1, 2, 2))):
            what, for_s = dice.choice((("kill", 3.0), ("kill", 20.0), ("freeze", 30.0), ("restart", 2.0)))
            more: Arguments = {"sleeps": False} if what == "freeze" else {}
            troubles.append(event(at_s, what, role=role, for_s=round(dice.uniform(0.5, for_s), 3), **more))
    draft.span_s = max(draft.span_s, max(each.at_s for each in troubles) + 25.0)
    return [*events, *troubles]


@scene
def a_host_fails_in_a_life(dice: random.Random, draft: Draft) -> list[Event]:
    """Its agent dies, stands still or is cut off, it loses its power, or its hypervisor fails."""
    server, events = _life(dice, draft, begins(dice), dice.randint(3, 6), root(dice))
    at_s, for_s = _in_the_middle(dice, events), round(dice.uniform(1.0, 50.0), 3)
    role = f"host of {server}"
    what = dice.choice(("kill", "freeze", "bus_cut", "power_cut", "host"))
    match what:
        case "freeze":
            trouble = event(at_s, what, role=role, for_s=for_s, sleeps=dice.random() < 0.3)
        case "power_cut":
            trouble = event(at_s, what, host=role, for_s=for_s)
        case "host":
            dial = dice.choice(
                ({"fail_times": 1}, {"fail_times": 2, "fail_when": "after"}, {"fail_times": 1, "hang": "after"})
            )
            trouble = event(events[1].at_s - 0.5, what, host=role, verb="*", dial=dial, for_s=40.0)
        case _:
            trouble = event(at_s, what, role=role, for_s=for_s)
    draft.span_s = max(draft.span_s, trouble.at_s + for_s + 5.0)
    return [*events, trouble]


@scene
def a_neighbour_fails_in_a_life(dice: random.Random, draft: Draft) -> list[Event]:
    """The volume service or the image service is out, fails, is late, or its process dies."""
    _, events = _life(dice, draft, begins(dice), dice.randint(3, 6), root(dice))
    troubles: list[Event] = []
    for _ in range(dice.randint(1, 2)):
        at_s, for_s = _in_the_middle(dice, events), round(dice.uniform(0.5, 30.0), 3)
        trouble = dice.choice(
            ("refused", "fails_before", "fails_after", "late", "lost_answer", "short", "lost_role", "")
        )
        if trouble:
            said: Arguments = {"trouble": trouble, "chance": dice.choice((0.3, 0.6, 1.0)), "for_s": for_s}
            troubles.append(event(at_s, "neighbour", service=dice.choice(("volume", "volume", "image")), **said))
        else:
            troubles.append(event(at_s, "kill", role="neighbours", for_s=for_s))
    draft.span_s = max(draft.span_s, max(each.at_s for each in troubles) + 32.0)
    return [*events, *troubles]


@scene
def a_database_fails_in_a_life(dice: random.Random, draft: Draft) -> list[Event]:
    """The region's or the cells'."""
    _, events = _life(dice, draft, begins(dice), dice.randint(3, 6), root(dice))
    at_s, for_s = _in_the_middle(dice, events), round(dice.uniform(1.0, 40.0), 3)
    stores = dice.choice((("region",), ("cell1", "cell2")))
    what = dice.choice(("database_hangs", "database_refuses", "commits_lost", "database_slow"))
    for store in stores:
        more: Arguments = {"why": "full"} if what == "database_refuses" else {}
        more |= {"count": dice.choice((1, 2, 5))} if what == "commits_lost" else {"for_s": for_s}
        events.append(event(at_s, what, store=store, **more))
    draft.span_s = max(draft.span_s, at_s + for_s + 5.0)
    return events


@scene
def two_servers_want_one_volume(dice: random.Random, draft: Draft) -> list[Event]:
    """It goes from one to the other, whatever happens to the first one's host."""
    at_s = begins(dice)
    (first, one), (second, two) = (_boot(dice, draft, at_s, ""), _boot(dice, draft, at_s + 0.2, ""))
    volume, draft.volumes = draft.volumes, draft.volumes + 1
    events = [one, two, event(at_s + 6.0, "attach_volume", server=first, volume=volume, goes=False)]
    gone_s = at_s + 12.0
    what = dice.choice(("detach_volume", "delete", "shelve", "force_delete"))
    more: Arguments = {"which": 0} if what == "detach_volume" else {}
    events.append(event(gone_s, what, server=first, **more))
    for _ in range(4):
        moment_s = gone_s + dice.uniform(-1.0, 40.0)
        events.append(event(moment_s, "attach_volume", server=second, volume=volume, goes=False))
    if dice.random() < 0.7:
        trouble = dice.choice(("bus_cut", "freeze", "kill"))
        said: Arguments = {"sleeps": False} if trouble == "freeze" else {}
        cut_s = gone_s + dice.uniform(-2.0, 1.0)
        events.append(event(cut_s, trouble, role=f"host of {first}", for_s=round(dice.uniform(5.0, 60.0), 3), **said))
    if dice.random() < 0.4:
        events.append(event(gone_s + dice.uniform(0.0, 5.0), "force_down", host=f"host of {first}", on=True))
    draft.span_s = max(draft.span_s, gone_s + 65.0)
    return sorted(events, key=lambda each: each.at_s)
