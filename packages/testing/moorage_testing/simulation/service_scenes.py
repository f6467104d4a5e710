"""People act at the volume service itself while servers use its volumes, and its back end has hosts make snapshots; something fails meanwhile.

This comes on top of the plans of some seeds, as `shared_scenes.py` does.
"""

import random

from moorage_testing.simulation.guest_scenes import READY_S, trouble
from moorage_testing.simulation.life_scenes import begins, event
from moorage_testing.simulation.move_scenes import BUILT_S, lasts
from moorage_testing.simulation.plan import Arguments, Draft, Event, additional_scene
from moorage_testing.simulation.service_orders import ACTS

DONE_BESIDE: tuple[tuple[str, Arguments], ...] = (
    ("detach_volume", {"which": 0}),
    ("detach_volume", {"which": 0}),
    ("delete", {}),
    ("shelve", {}),
    ("migrate", {"host": None}),
    ("live_migrate", {"host": None}),
    ("create_image", {}),
    ("power", {"action": "reboot"}),
)


def _booted(dice: random.Random, draft: Draft, at_s: float) -> tuple[int, list[Event]]:
    """With one or two volumes."""
    server, root = draft.boots, dice.choice(("", "stays", "goes"))
    draft.boots += 1
    more: Arguments = {"root": root} if root else {}
    events = [event(at_s, "boot", server=server, network=dice.choice(("private", "none")), **more)]
    for _ in range(1 if root else 2):
        draft.volumes += 1
        events.append(event(at_s + BUILT_S, "attach_volume", server=server, volume=draft.volumes - 1, goes=False))
    return server, events


def _concurrent_events(dice: random.Random, at_s: float, server: int) -> list[Event]:
    """What else is done to the server, and what fails."""
    events: list[Event] = []
    if dice.random() < 0.6:
        what, more = dice.choice(DONE_BESIDE)
        events.append(event(at_s + dice.uniform(-0.5, 1.0), what, server=server, **more))
    if dice.random() < 0.5:
        events += trouble(dice, at_s, server, ("*", "take_volume_snapshot", "drop_volume_snapshot", "detach_volume"))
    return events


@additional_scene
def users_act_at_the_volume_service(dice: random.Random, draft: Draft) -> list[Event]:
    """Deletes, detaches, resets and attachments by hand, close to what the server's own operations do there."""
    at_s = begins(dice)
    server, events = _booted(dice, draft, at_s)
    asked_s = at_s + READY_S
    for _ in range(dice.randint(2, 5)):
        for_s = round(dice.uniform(0.5, 20.0), 3)
        act = dice.choice(tuple(ACTS))
        events.append(event(asked_s, "at_volume_service", server=server, which=dice.randrange(2), act=act, for_s=for_s))
        if dice.random() < 0.5:
            events += _concurrent_events(dice, asked_s, server)
        asked_s += dice.choice((dice.uniform(0.0, 0.5), dice.uniform(2.0, 8.0)))
    lasts(draft, asked_s + 20.0)
    return events


@additional_scene
def the_volume_service_has_hosts_make_snapshots(dice: random.Random, draft: Draft) -> list[Event]:
    """Taken and dropped, one after the other or at once."""
    at_s = begins(dice)
    server, events = _booted(dice, draft, at_s)
    asked_s = at_s + READY_S
    for _ in range(dice.randint(1, 3)):
        for_s = round(dice.uniform(0.5, 15.0), 3)
        arguments: Arguments = {"which": dice.randrange(2), "for_s": for_s, "dropped": dice.random() < 0.7}
        events.append(event(asked_s, "assisted_snapshot", server=server, **arguments))
        events += _concurrent_events(dice, asked_s + dice.choice((0.5, for_s)), server)
        asked_s += dice.choice((dice.uniform(0.0, 1.0), dice.uniform(3.0, 12.0)))
    lasts(draft, asked_s + 25.0)
    return events


__all__ = ["additional_scene"]
