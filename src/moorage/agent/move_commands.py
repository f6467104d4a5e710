"""Verbs for a guest that moves to another host, or is resized on its host."""

from collections.abc import Awaitable, Callable

import msgspec

from moorage.agent.command_context import Answer, payload_of, power_of
from moorage.bus.command_messages import Command
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.move_payloads import ForceLive, LiveTarget, OfMove, SendGuest, SendLive, TakeGuest
from moorage.bus.verbs import Verb
from moorage.drivers.driver import Driver
from moorage.drivers.moves import LiveMovable, Movable
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState


async def guest_power(driver: Driver, command: Command) -> Answer:
    """Return the guest's power state. Raises HostFailed when the host has no such guest."""
    power = (await driver.guests()).get(command.server)
    if power is None:
        raise HostFailed("the host has no such guest", private=command.server, code="guest_not_found")
    return GuestNow(power), None


async def move_target(driver: Driver, command: Command) -> Answer:
    return await power_of(driver, Movable).move_target(), None  # type: ignore[type-abstract]


async def send_guest(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, Movable), payload_of(command, SendGuest)  # type: ignore[type-abstract]
    return GuestNow(await mover.send_guest(command.server, payload.to, payload.move, payload.graceful_s)), False


async def take_guest(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, Movable), _taken(command)  # type: ignore[type-abstract]
    return GuestNow(await mover.take_guest(payload.guest, payload.move)), False


def _taken(command: Command) -> TakeGuest:
    payload = payload_of(command, TakeGuest)
    if payload.guest.server != command.server:
        why = f"{command.server} ≠ {payload.guest.server}"
        raise HostFailed("the command contradicts itself", private=why, code="garbled")
    return payload


async def return_guest(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, Movable), payload_of(command, OfMove)  # type: ignore[type-abstract]
    return GuestNow(await mover.return_guest(command.server, payload.move)), False


async def forget_left(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, Movable), payload_of(command, OfMove)  # type: ignore[type-abstract]
    return GuestNow(await mover.forget_left(command.server, payload.move)), None


# ------------------------------------------------------------------------------------------------- while it runs


async def live_source(driver: Driver, command: Command) -> Answer:
    return await power_of(driver, LiveMovable).live_source(command.server), None  # type: ignore[type-abstract]


async def live_target(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, LiveMovable), payload_of(command, LiveTarget)  # type: ignore[type-abstract]
    return await mover.live_target(payload.guest, payload.source, payload.block), None


async def live_status(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, LiveMovable), payload_of(command, OfMove)  # type: ignore[type-abstract]
    return await mover.live_status(command.server, payload.move), None


async def prepare_live(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, LiveMovable), _taken(command)  # type: ignore[type-abstract]
    return GuestNow(await mover.prepare_live(payload.guest, payload.move)), False


async def send_live(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, LiveMovable), payload_of(command, SendLive)  # type: ignore[type-abstract]
    return GuestNow(await mover.send_live(command.server, payload.to, payload.move)), None


async def abort_live(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, LiveMovable), payload_of(command, OfMove)  # type: ignore[type-abstract]
    return GuestNow(await mover.abort_live(command.server, payload.move)), None


async def force_live(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, LiveMovable), payload_of(command, ForceLive)  # type: ignore[type-abstract]
    return GuestNow(await mover.force_live(command.server, payload.move, post_copy=payload.post_copy)), None


async def drop_live(driver: Driver, command: Command) -> Answer:
    mover, payload = power_of(driver, LiveMovable), payload_of(command, OfMove)  # type: ignore[type-abstract]
    return GuestNow(await mover.drop_live(command.server, payload.move)), False


async def land_live(driver: Driver, command: Command) -> Answer:
    """Record that an arrived guest shall run here, as it ran when it was sent, even if this host lost its power since."""
    mover, payload = power_of(driver, LiveMovable), _taken(command)  # type: ignore[type-abstract]
    power = await mover.land_live(msgspec.structs.replace(payload.guest, power_on=True), payload.move)
    if power is PowerState.SHUTDOWN and payload.guest.power_on:
        power = await driver.power_on(command.server)
    return GuestNow(power), payload.guest.power_on or power is PowerState.PAUSED


MOVE_VERBS: dict[str, Callable[[Driver, Command], Awaitable[Answer]]] = {
    Verb.GUEST_POWER: guest_power,
    Verb.MOVE_TARGET: move_target,
    Verb.SEND_GUEST: send_guest,
    Verb.TAKE_GUEST: take_guest,
    Verb.RETURN_GUEST: return_guest,
    Verb.FORGET_LEFT: forget_left,
    Verb.LIVE_SOURCE: live_source,
    Verb.LIVE_TARGET: live_target,
    Verb.LIVE_STATUS: live_status,
    Verb.PREPARE_LIVE: prepare_live,
    Verb.SEND_LIVE: send_live,
    Verb.ABORT_LIVE: abort_live,
    Verb.FORCE_LIVE: force_live,
    Verb.DROP_LIVE: drop_live,
    Verb.LAND_LIVE: land_live,
}
