"""From a command's verb to the driver: one small function each, in one table."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import msgspec

from moorage.bus.messages import (
    NO_NETWORK_CLIENT,
    AttachInterface,
    AttachVolume,
    Command,
    ConsoleOutput,
    ConsoleText,
    DetachInterface,
    DetachVolume,
    GuestNow,
    PowerOff,
    Reboot,
    StartGuest,
    Verb,
)
from moorage.drivers.driver import ConsoleReader, Driver, InterfacePlugger, Pausable, Suspendable, VolumePlugger
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState

PowerT = TypeVar("PowerT")
PayloadT = TypeVar("PayloadT", bound=msgspec.Struct)

Answer: TypeAlias = tuple[msgspec.Struct, bool | None]
"""What goes back, and whether the guest is meant to be on from now (None: as before)."""


def _power(driver: Driver, kind: type[PowerT]) -> PowerT:
    if not isinstance(driver, kind):
        raise HostFailed("this host cannot do that", private=f"no {kind.__name__}", code="not_supported")
    return driver


def payload_of(command: Command, kind: type[PayloadT]) -> PayloadT:
    """What the command says beside its verb."""
    return msgspec.json.decode(command.payload, type=kind)


async def start_guest(driver: Driver, command: Command) -> Answer:
    asked = payload_of(command, StartGuest)
    guest = asked.guest
    if asked.order is not None:
        raise HostFailed("the host has no way to the network service: ports must arrive bound", code=NO_NETWORK_CLIENT)
    if guest.server != command.server:
        raise HostFailed("the command contradicts itself", private=f"{command.server} ≠ {guest.server}", code="garbled")
    return GuestNow(await driver.start_guest(guest)), guest.power_on


async def destroy_guest(driver: Driver, command: Command) -> Answer:
    await driver.destroy_guest(command.server)
    return GuestNow(PowerState.NOSTATE), False


async def power_on(driver: Driver, command: Command) -> Answer:
    return GuestNow(await driver.power_on(command.server)), True


async def power_off(driver: Driver, command: Command) -> Answer:
    return GuestNow(await driver.power_off(command.server, payload_of(command, PowerOff).graceful_s)), False


async def reboot(driver: Driver, command: Command) -> Answer:
    return GuestNow(await driver.reboot(command.server, hard=payload_of(command, Reboot).hard)), True


async def pause(driver: Driver, command: Command) -> Answer:
    return GuestNow(await _power(driver, Pausable).pause(command.server)), None  # type: ignore[type-abstract]


async def unpause(driver: Driver, command: Command) -> Answer:
    return GuestNow(await _power(driver, Pausable).unpause(command.server)), None  # type: ignore[type-abstract]


async def suspend(driver: Driver, command: Command) -> Answer:
    return GuestNow(await _power(driver, Suspendable).suspend(command.server)), None  # type: ignore[type-abstract]


async def resume(driver: Driver, command: Command) -> Answer:
    return GuestNow(await _power(driver, Suspendable).resume(command.server)), True  # type: ignore[type-abstract]


async def attach_interface(driver: Driver, command: Command) -> Answer:
    plugger = _power(driver, InterfacePlugger)  # type: ignore[type-abstract]
    return GuestNow(await plugger.attach_interface(command.server, payload_of(command, AttachInterface).vif)), None


async def detach_interface(driver: Driver, command: Command) -> Answer:
    plugger = _power(driver, InterfacePlugger)  # type: ignore[type-abstract]
    return GuestNow(await plugger.detach_interface(command.server, payload_of(command, DetachInterface).port)), None


async def attach_volume(driver: Driver, command: Command) -> Answer:
    plugger = _power(driver, VolumePlugger)  # type: ignore[type-abstract]
    return GuestNow(await plugger.attach_volume(command.server, payload_of(command, AttachVolume).disk)), None


async def detach_volume(driver: Driver, command: Command) -> Answer:
    plugger = _power(driver, VolumePlugger)  # type: ignore[type-abstract]
    return GuestNow(await plugger.detach_volume(command.server, payload_of(command, DetachVolume).volume)), None


async def console_output(driver: Driver, command: Command) -> Answer:
    reader = _power(driver, ConsoleReader)  # type: ignore[type-abstract]
    return ConsoleText(await reader.console_output(command.server, payload_of(command, ConsoleOutput).lines)), None


VERBS: dict[str, Callable[[Driver, Command], Awaitable[Answer]]] = {
    Verb.START_GUEST: start_guest,
    Verb.DESTROY_GUEST: destroy_guest,
    Verb.POWER_ON: power_on,
    Verb.POWER_OFF: power_off,
    Verb.REBOOT: reboot,
    Verb.PAUSE: pause,
    Verb.UNPAUSE: unpause,
    Verb.SUSPEND: suspend,
    Verb.RESUME: resume,
    Verb.ATTACH_INTERFACE: attach_interface,
    Verb.DETACH_INTERFACE: detach_interface,
    Verb.ATTACH_VOLUME: attach_volume,
    Verb.DETACH_VOLUME: detach_volume,
    Verb.CONSOLE_OUTPUT: console_output,
}
