"""Answers of hosts that are lost: a host does what it is told, and is cut off before it can say so.

A cut of a random moment never lies there, because hosts answer at once: so a host is armed, and its next verb of a kind cuts it off
at the moment at which it is done.  The cut is sometimes shorter and sometimes longer than the time after which a host counts as silent.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from moorage_testing.simulation.life_scenes import begins, event
from moorage_testing.simulation.move_scenes import BUILT_S, lasts
from moorage_testing.simulation.orders import named_host
from moorage_testing.simulation.plan import LATER_FAULTS, Arguments, Draft, Event, later_scene

if TYPE_CHECKING:
    from moorage_testing.simulation.cloud import SimulatedCloud

ARMED_FOR_S = 45.0
"""A host of which no such verb is asked in this time is let be."""
SHORT_S, LONG_S = (2.0, 12.0), (32.0, 75.0)
"""Beside `host_silence_s`, which is 30 s."""
SHORT = 0.2


def draw_lost_answer(dice: random.Random, verb: str, server: int) -> Arguments:
    span = SHORT_S if dice.random() < SHORT else LONG_S
    return {"host": f"host of {server}", "verb": verb, "for_s": round(dice.uniform(*span), 3)}


@LATER_FAULTS.add("lost_answer", 1, lambda dice, _: draw_lost_answer(dice, "attach_volume", 0))
async def lost_answer(cloud: "SimulatedCloud", args: Arguments) -> None:
    """The host does its next verb of this kind, and is cut off from the bus before its answer."""
    host = named_host(cloud, args["host"])
    if host in cloud.lost_answers.armed:
        return
    was_done = asyncio.Event()
    cloud.lost_answers.armed[host] = args["verb"], was_done
    try:
        async with asyncio.timeout(ARMED_FOR_S):
            await was_done.wait()
    except TimeoutError:
        return
    finally:
        cloud.lost_answers.armed.pop(host, None)
    cloud.trace.note("fault", f"{host} has done {args['verb']}, and does not reach the bus for {args['for_s']} s")
    await asyncio.sleep(args["for_s"])
    cloud.trace.note("fault", f"{host} reaches the bus again")
    cloud.hub.join(host)


Ends = Callable[[random.Random, Draft], tuple[str, str, Arguments]]


def _volume(draft: Draft) -> int:
    draft.volumes += 1
    return draft.volumes - 1


ATTACHED: tuple[Ends, ...] = (
    lambda _, __: ("detach_volume", "detach_volume", {"which": 0}),
    lambda _, draft: ("swap_volume", "swap_volume", {"which": 0, "volume": _volume(draft)}),
    lambda _, __: ("detach_volume", "detach_volume", {"which": 0}),
    lambda _, draft: ("swap_volume", "swap_volume", {"which": 0, "volume": _volume(draft)}),
    lambda _, __: ("take_volume_snapshot", "assisted_snapshot", {"which": 0, "for_s": 5.0, "dropped": True}),
    lambda _, draft: ("attach_volume", "attach_volume", {"volume": _volume(draft), "goes": False}),
)
"""(verb of the host, order, its arguments) for a server with a volume."""
PLAIN: tuple[Ends, ...] = (
    lambda _, draft: ("attach_volume", "attach_volume", {"volume": _volume(draft), "goes": False}),
    lambda _, __: ("attach_interface", "attach", {"network": "private"}),
    lambda _, __: ("detach_interface", "detach", {"which": 0}),
    lambda _, __: ("power_off", "power", {"action": "os-stop"}),
    lambda _, __: ("power_off", "shelve", {}),
    lambda _, __: ("rebuild_guest", "rebuild", {"other": True}),
    lambda _, __: ("rescue_guest", "rescue", {}),
    lambda _, __: ("send_guest", "resize", {"flavor": "micro"}),
    lambda _, __: ("send_live", "live_migrate", {"host": None}),
    lambda _, __: ("destroy_guest", "delete", {}),
    lambda _, __: ("take_snapshot", "create_image", {}),
)


@later_scene
def an_answer_of_a_host_is_lost(dice: random.Random, draft: Draft) -> list[Event]:
    """A server has a volume, or none; something is asked of its host, which does it and cannot say so. Then somebody else wants the
    volume, or the same is asked again."""
    at_s = begins(dice)
    draft.boots += 2
    server, other = draft.boots - 2, draft.boots - 1
    events = [
        event(at_s, "boot", server=server, network="private"),
        event(at_s, "boot", server=other, network="private"),
    ]
    with_volume = dice.random() < 0.6
    moment_s, volume = at_s + BUILT_S + 2.0, None
    if with_volume:
        volume = _volume(draft)
        events.append(event(moment_s, "attach_volume", server=server, volume=volume, goes=False))
        moment_s += 8.0
    verb, order, args = dice.choice(ATTACHED if with_volume else PLAIN)(dice, draft)
    events.append(event(moment_s - 0.5, "lost_answer", **draw_lost_answer(dice, verb, server)))
    events.append(event(moment_s, order, server=server, **args))
    later_s = moment_s + dice.choice((25.0, 60.0, 85.0))
    wanted = args.get("volume", volume)
    if wanted is not None and dice.random() < 0.6:
        events.append(event(later_s, "attach_volume", server=other, volume=wanted, goes=False))
    elif dice.random() < 0.5:
        events.append(event(later_s, order, server=server, **args))
    lasts(draft, later_s + 20.0)
    return events


@later_scene
def a_conductor_loses_the_bus(dice: random.Random, draft: Draft) -> list[Event]:
    """One conductor does not reach the bus for minutes; the other one, the databases and the hosts are well, and users order."""
    at_s = begins(dice)
    for_s = round(dice.uniform(100.0, 240.0), 3)
    events = [event(at_s, "conductor_without_bus", role=dice.choice(("conductor1", "conductor2")), for_s=for_s)]
    for number in range(dice.choice((2, 3))):
        draft.boots += 1
        server = draft.boots - 1
        ordered_s = at_s + dice.uniform(5.0, for_s / 3) + number
        events.append(event(ordered_s, "boot", server=server, network="private"))
        if dice.random() < 0.6:
            what = dice.choice(("delete", "shelve", "migrate"))
            args = {"host": None} if what == "migrate" else {}
            events.append(event(ordered_s + dice.uniform(15.0, for_s / 3), what, server=server, **args))
    lasts(draft, at_s + for_s + 10.0)
    return events


@LATER_FAULTS.add("conductor_without_bus", 1, lambda dice, _: {"role": "conductor1", "for_s": 150.0})
async def conductor_without_bus(cloud: "SimulatedCloud", args: Arguments) -> None:
    """One conductor does not reach the bus; meanwhile orders must end, for another one is well (`progress.watch_orders`)."""
    cloud.trace.note("fault", f"{args['role']} does not reach the bus for {args['for_s']} s, and all else is well")
    cloud.hub.cut_off(args["role"])
    await asyncio.sleep(args["for_s"])
    cloud.trace.note("fault", f"{args['role']} reaches the bus again")
    cloud.hub.join(args["role"])


__all__ = ["a_conductor_loses_the_bus", "an_answer_of_a_host_is_lost"]
