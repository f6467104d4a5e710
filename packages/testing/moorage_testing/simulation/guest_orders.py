"""What users ask of a guest that runs: another password, and a crash for its dump."""

import random

from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.life_orders import every_order
from moorage_testing.simulation.orders import a_server, act, order, watch_of
from moorage_testing.simulation.plan import Arguments, Draft


def _draw_password(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "password": f"secret {dice.randrange(1_000)}"}


@order("change_password", 2, _draw_password)
async def change_password(cloud: SimulatedCloud, args: Arguments) -> None:
    """It is set when that is answered; after any other answer it may have been set, or be set yet."""
    booked, password = watch_of(cloud).book.of(args["server"]), args["password"]
    alone, earlier = not booked.passwords or (booked.password_set and len(booked.passwords) == 1), booked.passwords
    booked.passwords = {*earlier, password}
    reply = await act(cloud, args, "changePassword", {"adminPass": password})
    if reply is not None and reply.status == 202:
        booked.password_set = True
        if alone and booked.passwords == {*earlier, password}:
            booked.passwords = {password}


@order("crash_dump", 2, a_server)
async def crash_dump(cloud: SimulatedCloud, args: Arguments) -> None:
    """One for each time that it is asked."""
    booked = watch_of(cloud).book.of(args["server"])
    booked.dumps += 1
    reply = await act(cloud, args, "trigger_crash_dump", None)
    if reply is None or 400 <= reply.status < 500:
        booked.dumps -= 1


__all__ = ["every_order"]
