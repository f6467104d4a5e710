"""Live migrations with their abort and their force-complete, outages of whole machines, and evacuations."""

import asyncio
import random

import msgspec

from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.faults import fault
from moorage_testing.simulation.healing import heal
from moorage_testing.simulation.move_orders import every_order
from moorage_testing.simulation.orders import a_server, act, named_host, order, set_forced_down, watch_of
from moorage_testing.simulation.plan import HOSTS, Arguments, Draft
from moorage_testing.simulation.roles import AgentRole

RUNS_AGAIN = "2.94"
"""The last microversion in which what is evacuated runs at once."""


def _draw_live(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "host": dice.choice((None, None, None, *HOSTS))}


@order("live_migrate", 2, _draw_live)
async def live_migrate(cloud: SimulatedCloud, args: Arguments) -> None:
    """While it runs."""
    watch_of(cloud).book.of(args["server"]).move_asked = True
    await act(cloud, args, "os-migrateLive", {"host": args["host"], "block_migration": "auto"})


@order("abort_live", 1, a_server)
async def abort_live(cloud: SimulatedCloud, args: Arguments) -> None:
    """It is wanted no more."""
    for number in await _under_way(cloud, args):
        path = f"/servers/{watch_of(cloud).book.of(args['server']).id}/migrations/{number}"
        reply = await watch_of(cloud).admin.ask("compute", "DELETE", path)
        watch_of(cloud).answered(f"abort the live migration of s{args['server']}", reply)


@order("force_live", 1, a_server)
async def force_live(cloud: SimulatedCloud, args: Arguments) -> None:
    """It is to switch now."""
    for number in await _under_way(cloud, args):
        path = f"/servers/{watch_of(cloud).book.of(args['server']).id}/migrations/{number}/action"
        reply = await watch_of(cloud).admin.ask("compute", "POST", path, {"force_complete": None})
        watch_of(cloud).answered(f"force the live migration of s{args['server']}", reply)


async def _under_way(cloud: SimulatedCloud, args: Arguments) -> list[int]:
    booked = watch_of(cloud).book.of(args["server"])
    if not booked.id:
        return []
    shown = await watch_of(cloud).admin.ask("compute", "GET", f"/servers/{booked.id}/migrations")
    return [each["id"] for each in shown.body["migrations"]] if shown.status == 200 else []


def _draw_pace(dice: random.Random, _: Draft) -> Arguments:
    return {
        "host": dice.choice(HOSTS),
        "mib_per_s": dice.choice((20.0, 100.0, 500.0)),
        "dirty_mib_per_s": dice.choice((0.0, 1000.0)),
        "switch_s": dice.choice((0.0, 0.2, 2.0)),
        "for_s": round(dice.uniform(5.0, 60.0), 3),
    }


@fault("live_pace", 1, _draw_pace)
async def live_pace(cloud: SimulatedCloud, args: Arguments) -> None:
    """What runs on this host takes its time to be sent to another one, or writes faster than it is sent."""
    role = cloud.roles[named_host(cloud, args["host"])]
    assert isinstance(role, AgentRole)
    cloud.trace.note("fault", f"{role.name} sends guests slowly: {args}")
    dials = msgspec.structs.replace(
        role.dials,
        live_mib_per_s=args["mib_per_s"],
        live_dirty_mib_per_s=args["dirty_mib_per_s"],
        live_switch_s=args["switch_s"],
    )
    role.turn(dials)
    await asyncio.sleep(args["for_s"])
    at_once = msgspec.structs.replace(role.dials, live_mib_per_s=0.0, live_dirty_mib_per_s=0.0, live_switch_s=0.0)
    role.turn(at_once)


# ---------------------------------------------------------------------------------------------------- evacuation


def _draw_outage(dice: random.Random, _: Draft) -> Arguments:
    return {
        "host": dice.choice(HOSTS),
        "said_s": round(dice.uniform(0.0, 5.0), 3),
        "for_s": round(dice.choice((dice.uniform(1.0, 10.0), dice.uniform(5.0, 70.0))), 3),
    }


@fault("outage", 1, _draw_outage)
async def outage(cloud: SimulatedCloud, args: Arguments) -> None:
    """An operator switches a machine off, with its agent and its guests, and then says so; somebody switches it on whenever they want."""
    role = cloud.roles[named_host(cloud, args["host"])]
    assert isinstance(role, AgentRole)
    if role.powerless:
        return
    cloud.trace.note("fault", f"{role.name} is switched off for {args['for_s']} s")
    role.powerless = True
    role.wanted = False
    role.kill()
    role.machine.asleep = False
    if role.driver is not None:
        role.driver.lose_power()
    outage_task = asyncio.create_task(_set_down_later(cloud, role, args["said_s"]))
    try:
        await asyncio.sleep(args["for_s"])
        cloud.trace.note("fault", f"{role.name} is switched on")
        role.powerless = False
        role.start()
        await outage_task
    finally:
        outage_task.cancel()


async def _set_down_later(cloud: SimulatedCloud, role: AgentRole, after_s: float) -> None:
    """Unless it is on by then."""
    await asyncio.sleep(after_s)
    if role.powerless:
        await set_forced_down(cloud, role.plan.host, on=True)


def _draw_evacuate(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "host": dice.choice((None, None, None, *HOSTS)), "runs": dice.random() < 0.5}


@order("evacuate", 1, _draw_evacuate)
async def evacuate(cloud: SimulatedCloud, args: Arguments) -> None:
    """From a host that is reported as off; `runs`: with an older microversion, so that it runs at once."""
    booked = watch_of(cloud).book.of(args["server"])
    booked.move_asked = booked.anew = True
    said = {} if args["host"] is None else {"host": args["host"]}
    if args["runs"]:
        await act(cloud, args, "evacuate", said, version=RUNS_AGAIN)
    else:
        await act(cloud, args, "evacuate", said)


__all__ = ["every_order", "heal"]
