"""Verbs of a guest that goes to another host, or becomes another size where it is."""

from collections.abc import Awaitable, Callable

from moorage.agent.powers import Answer, payload_of, power_of
from moorage.bus.messages import Command, GuestNow, OfMove, SendGuest, TakeGuest, Verb
from moorage.drivers.driver import Driver
from moorage.drivers.moving import Movable
from moorage.model.errors import HostFailed


async def move_target(driver: Driver, command: Command) -> Answer:
    return await power_of(driver, Movable).move_target(), None  # type: ignore[type-abstract]


async def send_guest(driver: Driver, command: Command) -> Answer:
    mover, asked = power_of(driver, Movable), payload_of(command, SendGuest)  # type: ignore[type-abstract]
    return GuestNow(await mover.send_guest(command.server, asked.to, asked.move, asked.graceful_s)), False


async def take_guest(driver: Driver, command: Command) -> Answer:
    mover, asked = power_of(driver, Movable), payload_of(command, TakeGuest)  # type: ignore[type-abstract]
    if asked.guest.server != command.server:
        why = f"{command.server} ≠ {asked.guest.server}"
        raise HostFailed("the command contradicts itself", private=why, code="garbled")
    return GuestNow(await mover.take_guest(asked.guest, asked.move)), False


async def return_guest(driver: Driver, command: Command) -> Answer:
    mover, asked = power_of(driver, Movable), payload_of(command, OfMove)  # type: ignore[type-abstract]
    return GuestNow(await mover.return_guest(command.server, asked.move)), False


async def forget_left(driver: Driver, command: Command) -> Answer:
    mover, asked = power_of(driver, Movable), payload_of(command, OfMove)  # type: ignore[type-abstract]
    return GuestNow(await mover.forget_left(command.server, asked.move)), None


MOVE_VERBS: dict[str, Callable[[Driver, Command], Awaitable[Answer]]] = {
    Verb.MOVE_TARGET: move_target,
    Verb.SEND_GUEST: send_guest,
    Verb.TAKE_GUEST: take_guest,
    Verb.RETURN_GUEST: return_guest,
    Verb.FORGET_LEFT: forget_left,
}
