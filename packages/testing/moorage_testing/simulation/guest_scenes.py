"""Scenes of what is asked of a guest while it runs: another password, a crash dump, to be still while its volumes are copied."""

import random

from moorage_testing.simulation.life_scenes import begins, event
from moorage_testing.simulation.live_scenes import around_breaks, conductors_break, host_breaks
from moorage_testing.simulation.move_scenes import BUILT_S, lasts
from moorage_testing.simulation.plan import Arguments, Draft, Event
from moorage_testing.simulation.scenes import scene

READY_S = BUILT_S + 8.0
"""It is built, and has its volumes."""


def trouble(dice: random.Random, at_s: float, server: int, verbs: tuple[str, ...]) -> list[Event]:
    """Its host, the conductors, the API, or what is around: from closely before an order to some seconds after it."""
    at_s += dice.uniform(-0.3, 1.5)
    match dice.choice(("host", "host", "conductors", "around", "api")):
        case "host":
            return [host_breaks(dice, at_s, f"host of {server}", verbs)]
        case "conductors":
            return conductors_break(dice, at_s)
        case "api":
            what, most_s = dice.choice((("kill", 5.0), ("freeze", 20.0), ("freeze", 90.0)))
            more: Arguments = {"sleeps": dice.random() < 0.3} if what == "freeze" else {}
            return [event(at_s, what, role="api", for_s=round(dice.uniform(0.5, most_s), 3), **more)]
        case _:
            return [around_breaks(dice, at_s)]


@scene
def a_guest_is_asked_while_something_fails(dice: random.Random, draft: Draft) -> list[Event]:
    """Passwords and crash dumps, close to one another and to what else is done to it."""
    at_s, server = begins(dice), draft.boots
    draft.boots += 1
    events = [event(at_s, "boot", server=server, network=dice.choice(("private", "routed", "none")))]
    asked_s = at_s + BUILT_S
    for _ in range(dice.randint(2, 4)):
        what = dice.choice(("change_password", "change_password", "crash_dump", "crash_dump", "crash_dump"))
        more: Arguments = {"password": f"secret {dice.randrange(1_000)}"} if what == "change_password" else {}
        events.append(event(asked_s, what, server=server, **more))
        if dice.random() < 0.7:
            events += trouble(dice, asked_s, server, ("*", "set_admin_password", "crash_dump"))
        if dice.random() < 0.3:
            then = dice.choice(("power os-stop", "power pause", "live_migrate", "migrate", "delete", "crash_dump"))
            name, _, action = then.partition(" ")
            said: Arguments = {"action": action} if action else {"host": None} if name.endswith("migrate") else {}
            events.append(event(asked_s + dice.uniform(0.0, 0.5), name, server=server, **said))
        asked_s += dice.choice((dice.uniform(0.0, 1.0), dice.uniform(3.0, 12.0)))
    lasts(draft, asked_s + 20.0)
    return events


@scene
def a_guest_is_still_while_it_is_copied(dice: random.Random, draft: Draft) -> list[Event]:
    """Images of a server that boots from a volume and must be still for that, while something else is done to it, or fails."""
    at_s, server = begins(dice), draft.boots
    draft.boots += 1
    root = dice.choice(("stays", "goes"))
    events = [event(at_s, "boot", server=server, network="private", root=root, quiesced=True)]
    for _ in range(dice.choice((0, 1, 1, 2))):
        draft.volumes += 1
        events.append(event(at_s + BUILT_S, "attach_volume", server=server, volume=draft.volumes - 1, goes=False))
    asked_s = at_s + READY_S
    for _ in range(dice.randint(1, 3)):
        events.append(event(asked_s, "create_image", server=server))
        if dice.random() < 0.8:
            events += trouble(dice, asked_s, server, ("*", "quiesce", "thaw_guest", "freeze_guest"))
        if dice.random() < 0.5:
            events.append(_concurrent_event(dice, draft, asked_s + dice.uniform(-0.3, 0.8), server))
        asked_s += dice.choice((dice.uniform(0.0, 0.5), dice.uniform(4.0, 20.0)))
    lasts(draft, asked_s + 20.0)
    return events


def _concurrent_event(dice: random.Random, draft: Draft, at_s: float, server: int) -> Event:
    """What else is done to it at that time."""
    what = dice.choice(
        ("power reboot", "power os-stop", "power pause", "detach_volume", "attach_volume", "extend_volume", "live_migrate", "migrate",
         "delete", "create_image", "guest_crashes", "crash_dump")
    )  # fmt: skip
    name, _, action = what.partition(" ")
    match name:
        case "power":
            return event(at_s, name, server=server, action=action)
        case "detach_volume":
            return event(at_s, name, server=server, which=dice.randrange(2))
        case "attach_volume":
            draft.volumes += 1
            return event(at_s, name, server=server, volume=draft.volumes - 1, goes=False)
        case "extend_volume":
            return event(at_s, name, volume=max(draft.volumes - 1, 0))
        case "live_migrate" | "migrate":
            return event(at_s, name, server=server, host=None)
        case "guest_crashes":
            return event(at_s, name, host=f"host of {server}")
        case _:
            return event(at_s, name, server=server)


__all__ = ["scene"]
