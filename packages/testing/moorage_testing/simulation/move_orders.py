"""What users and administrators do with a server that is to be elsewhere, or of another size; and what administrators say of its state."""

import random

from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.orders import a_server, act, apply_setting, order, watch_of
from moorage_testing.simulation.plan import HOSTS, Arguments, Draft
from moorage_testing.simulation.volume_orders import every_order

FLAVORS = ("micro", "micro", "nano", "tiny")


def _draw_resize(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "flavor": dice.choice(FLAVORS)}


@order("resize", 3, _draw_resize)
async def resize(cloud: SimulatedCloud, args: Arguments) -> None:
    """To another flavor; its own is refused."""
    watch = watch_of(cloud)
    booked = watch.book.of(args["server"])
    booked.move_asked = True
    watch.resized(booked)
    await act(cloud, args, "resize", {"flavorRef": cloud.known.flavors[args["flavor"]]})


def _draw_migrate(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "host": dice.choice((None, None, None, *HOSTS))}


@order("migrate", 2, _draw_migrate)
async def migrate(cloud: SimulatedCloud, args: Arguments) -> None:
    """To any host of its cell, or to one that is named."""
    watch_of(cloud).book.of(args["server"]).move_asked = True
    await act(cloud, args, "migrate", None if args["host"] is None else {"host": args["host"]})


@order("confirm_resize", 2, a_server)
async def confirm_resize(cloud: SimulatedCloud, args: Arguments) -> None:
    await act(cloud, args, "confirmResize", None)


@order("revert_resize", 2, a_server)
async def revert_resize(cloud: SimulatedCloud, args: Arguments) -> None:
    watch_of(cloud).book.of(args["server"]).anew = True
    await act(cloud, args, "revertResize", None)


@order("cancel_move", 0, a_server)
async def cancel_move(cloud: SimulatedCloud, args: Arguments) -> None:
    """It is wanted no more; in scenes only, which know when a move is under way."""
    watch = watch_of(cloud)
    booked = watch.book.of(args["server"])
    if not booked.id:
        return
    path = f"/ext/servers/{booked.id}/moves"
    shown = await watch.admin.ask("compute", "GET", path)
    for each in shown.body["moves"] if shown.status == 200 else ():
        if each["may_be_cancelled"]:
            reply = await watch.admin.ask("compute", "POST", f"{path}/{each['id']}/action", {"cancel": None})
            watch.answered(f"cancel the move of s{args['server']}", reply)


# ---------------------------------------------------------------------------------------------------- words about a server


def _draw_state(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "state": dice.choice(("active", "active", "error"))}


@order("reset_state", 1, _draw_state)
async def reset_state(cloud: SimulatedCloud, args: Arguments) -> None:
    """Reset the state from any state; a soft-deleted server is restored by it."""
    booked = watch_of(cloud).book.of(args["server"])
    booked.reset = True
    booked.restore_asked = booked.restore_asked or bool(cloud.config.compute.reclaim_instance_interval)
    await act(cloud, args, "os-resetState", {"state": args["state"]})


def _draw_lock(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "on": dice.random() < 0.5}


@order("lock", 1, _draw_lock)
async def lock(cloud: SimulatedCloud, args: Arguments) -> None:
    """Or unlock; its own project may do nothing with it while it is locked."""
    watch = watch_of(cloud)
    booked, action = watch.book.of(args["server"]), "lock" if args["on"] else "unlock"
    if booked.id:
        asked = watch.admin.ask("compute", "POST", f"/servers/{booked.id}/action", {action: None})
        await apply_setting(cloud, booked.locked, args["on"], f"{action} s{booked.ref}", asked)


__all__ = ["every_order"]
