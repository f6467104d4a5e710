"""Two servers share a volume of several writers: each goes its own way, and something fails; what one has, the other keeps.

This comes on top of the plans of some seeds, drawn from dice of its own, so that all other seeds stay what they were.
"""

import random
from collections.abc import Callable

from moorage_testing.simulation.life_scenes import begins, event
from moorage_testing.simulation.move_scenes import BUILT_S, lasts
from moorage_testing.simulation.plan import SHARED_VOLUMES, Arguments, Draft, Event, additional_scene
from moorage_testing.simulation.scenes import CONDUCTORS

READY_S = BUILT_S + 8.0
"""Both are built, and have it."""
ENDS: tuple[tuple[str, Arguments], ...] = (
    ("detach_volume", {"which": 0}),
    ("delete", {}),
    ("force_delete", {}),
    ("shelve", {}),
    ("migrate", {"host": None}),
    ("resize", {"flavor": "micro"}),
    ("live_migrate", {"host": None}),
    ("rebuild", {"other": True}),
    ("swap_volume", {"which": 0}),
)


@additional_scene
def servers_share_a_volume(dice: random.Random, draft: Draft) -> list[Event]:
    """Two have it, a third wants it; then both are moved, shelved, deleted or let it go, close to one another."""
    at_s = begins(dice)
    shared = SHARED_VOLUMES + dice.randrange(2)
    events: list[Event] = []
    for _ in range(dice.choice((2, 2, 3))):
        draft.boots += 1
        server = draft.boots - 1
        events.append(event(at_s, "boot", server=server, network=dice.choice(("private", "routed"))))
        wanted_s = at_s + BUILT_S + dice.choice((0.0, dice.uniform(0.0, 2.0)))
        events.append(event(wanted_s, "attach_volume", server=server, volume=shared, goes=dice.random() < 0.3))
    servers = [each.args["server"] for each in events if each.what == "boot"]
    moment_s = at_s + READY_S
    for server in servers:
        what, more = dice.choice(ENDS)
        if what == "swap_volume":
            more = {**more, "volume": draft.volumes}
            draft.volumes += 1
        events.append(event(moment_s + dice.choice((0.0, dice.uniform(0.0, 4.0))), what, server=server, **more))
    if dice.random() < 0.5:  # and back again
        back_s = moment_s + dice.uniform(8.0, 15.0)
        server = dice.choice(servers)
        events.append(event(back_s, dice.choice(("unshelve", "confirm_resize", "revert_resize")), server=server))
        events.append(event(back_s + 6.0, "attach_volume", server=server, volume=shared, goes=False))
    if dice.random() < 0.7:
        events += _trouble(dice, moment_s, f"host of {dice.choice(servers)}")
    lasts(draft, moment_s + 30.0)
    return events


def _trouble(dice: random.Random, at_s: float, role: str) -> list[Event]:
    at_s, for_s = at_s + dice.uniform(0.0, 3.0), round(dice.uniform(0.5, 40.0), 3)
    draws: tuple[Callable[[], Event], ...] = (
        lambda: event(at_s, "kill", role=role, for_s=for_s),
        lambda: event(at_s, "bus_cut", role=role, for_s=for_s),
        lambda: event(at_s, "freeze", role=role, for_s=for_s, sleeps=dice.random() < 0.3),
        lambda: event(at_s, "kill", role=dice.choice(CONDUCTORS), for_s=for_s),
        lambda: event(at_s, "neighbour", service="volume", trouble=dice.choice(("fails_before", "fails_after", "lost_answer")), chance=0.6, for_s=for_s),
        lambda: event(at_s, "commits_lost", store=dice.choice(("region", "cell1", "cell2")), count=dice.choice((1, 2))),
    )  # fmt: skip
    return [dice.choice(draws)()]


__all__ = ["servers_share_a_volume"]
