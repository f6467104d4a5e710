"""Servers that move to other cells and back; databases of the cells fail meanwhile.

This comes on top of the plans of some seeds, with a cloud of three cells.
"""

import random

from moorage_testing.simulation.life_scenes import begins, event
from moorage_testing.simulation.move_scenes import BUILT_S, MOVED_S, booted, lasts
from moorage_testing.simulation.plan import HOSTS, OTHER_HOSTS, Draft, Event, across_cells

STORES = ("region", "cell1", "cell2", "cell3")
SHELVED_S = 12.0


def _moved(dice: random.Random, at_s: float, server: int) -> Event:
    if dice.random() < 0.4:
        return event(at_s, "resize", server=server, flavor=dice.choice(("micro", "tiny")))
    return event(at_s, "migrate", server=server, host=dice.choice((None, *HOSTS, *OTHER_HOSTS)))


def _over(dice: random.Random, at_s: float, server: int) -> Event:
    return event(at_s, dice.choice(("confirm_resize", "revert_resize", "confirm_resize", "delete")), server=server)


def _trouble(dice: random.Random, at_s: float, store: str, most_s: float) -> Event:
    """Of one database."""
    what = dice.choice(("database_hangs", "database_refuses", "commits_lost", "database_cut"))
    for_s = round(dice.uniform(0.5, most_s), 3)
    match what:
        case "commits_lost":
            return event(at_s, what, store=store, count=dice.choice((1, 1, 2, 5)))
        case "database_refuses":
            return event(at_s, what, store=store, for_s=for_s, why=dice.choice(("full", "read-only")))
        case "database_cut":
            return event(at_s, what, store=store, for_s=for_s, role=dice.choice(("conductor1", "conductor2", "api")))
        case _:
            return event(at_s, what, store=store, for_s=for_s)


@across_cells
def servers_change_cells(dice: random.Random, draft: Draft) -> list[Event]:
    """There and back: each is moved, confirmed or reverted, and moved again."""
    at_s, events = begins(dice), list[Event]()
    for number in range(2):
        server, first = booted(dice, draft, at_s + number * 0.3)
        events += first
        moved_s = at_s + BUILT_S + 8.0 + dice.uniform(0.0, 1.0)
        for _ in range(dice.choice((1, 2, 3))):
            events.append(_moved(dice, moved_s, server))
            if dice.random() < 0.3:
                events.append(event(moved_s + dice.uniform(0.0, 6.0), "lock", server=server, on=dice.random() < 0.5))
            moved_s += MOVED_S + dice.uniform(0.0, 6.0)
            events.append(_over(dice, moved_s, server))
            moved_s += 5.0
    lasts(draft, at_s + 75.0)
    return events


@across_cells
def a_shelf_is_left_for_another_cell(dice: random.Random, draft: Draft) -> list[Event]:
    """A server is shelved and unshelved; the database of a cell, or the region's, fails while it comes back."""
    at_s = begins(dice)
    server, events = booted(dice, draft, at_s, off=False)
    events.append(event(at_s + BUILT_S + 5.0, "shelve", server=server))
    events.append(event(at_s + BUILT_S + SHELVED_S, "shelve_offload", server=server))
    back_s = at_s + BUILT_S + SHELVED_S + 8.0
    events.append(event(back_s, "unshelve", server=server))
    if dice.random() < 0.7:
        events.append(_trouble(dice, back_s + dice.uniform(0.0, 3.0), dice.choice(STORES), 25.0))
    if dice.random() < 0.4:
        events.append(event(back_s + dice.uniform(0.0, 8.0), "delete", server=server))
    lasts(draft, back_s + 40.0)
    return events


@across_cells
def a_cell_fails_in_a_move(dice: random.Random, draft: Draft) -> list[Event]:
    """The database of one cell, or the region's, while the record is copied and shown, or while the move is ended."""
    at_s = begins(dice)
    server, events = booted(dice, draft, at_s)
    moved_s = at_s + BUILT_S + 8.0
    ordered_s = moved_s + MOVED_S + dice.choice((1.0, 12.0))
    events += [_moved(dice, moved_s, server), _over(dice, ordered_s, server)]
    for _ in range(dice.randint(1, 3)):
        broken_s = dice.choice((moved_s, moved_s, ordered_s)) + dice.uniform(0.0, 4.5)
        events.append(_trouble(dice, broken_s, dice.choice(STORES), 45.0))
    lasts(draft, ordered_s + 60.0)
    return events


@across_cells
def a_database_is_put_back_in_a_move(dice: random.Random, draft: Draft) -> list[Event]:
    """To before the move, or to its middle: the region's, the left cell's or the other one's."""
    at_s = begins(dice)
    server, events = booted(dice, draft, at_s)
    moved_s = at_s + BUILT_S + 8.0
    ordered_s = moved_s + MOVED_S + 2.0
    events += [_moved(dice, moved_s, server), _over(dice, ordered_s, server)]
    made_s = dice.choice((moved_s - 1.0, moved_s + dice.uniform(0.0, 5.0), ordered_s - 1.0))
    age_s = round(dice.uniform(1.0, 14.0), 3)
    events.append(event(made_s, "restore", store=dice.choice(STORES), age_s=age_s, wrong=dice.random() < 0.3))
    lasts(draft, ordered_s + 40.0)
    return events


__all__ = ["across_cells"]
