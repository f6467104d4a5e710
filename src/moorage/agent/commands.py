"""The table of verbs: a small function for each, which calls the driver."""

from collections.abc import Awaitable, Callable

from moorage.agent.command_context import Answer, payload_of
from moorage.agent.command_context import power_of as _power
from moorage.agent.console_commands import get_console
from moorage.agent.life_commands import LIFE_VERBS
from moorage.agent.move_commands import MOVE_VERBS
from moorage.agent.snapshot_commands import SNAPSHOT_VERBS
from moorage.bus.command_messages import Command
from moorage.bus.guest_payloads import (
    AttachInterface,
    ConsoleOutput,
    ConsoleText,
    DetachInterface,
    GuestNow,
    OfSnapshot,
    PowerOff,
    Reboot,
    StartGuest,
    TakeSnapshot,
)
from moorage.bus.messages import NO_NETWORK_CLIENT
from moorage.bus.verbs import Verb
from moorage.bus.volume_payloads import AttachVolume, Connector, DetachVolume, ExtendVolume, SwapVolume
from moorage.drivers.driver import (
    ConsoleReader,
    Driver,
    InterfacePlugger,
    Pausable,
    Snapshotter,
    Suspendable,
    VolumeConnecting,
    VolumeExtender,
    VolumePlugger,
    VolumeSwapper,
)
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState


async def start_guest(driver: Driver, command: Command) -> Answer:
    """Make a guest whose ports are bound already, and start it if it is to run.

    Raises HostFailed when the ports are not bound, when the command contradicts itself, or when the driver fails.
    """
    payload = payload_of(command, StartGuest)
    guest = payload.guest
    if payload.order is not None:
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


async def swap_volume(driver: Driver, command: Command) -> Answer:
    swapper, payload = _power(driver, VolumeSwapper), payload_of(command, SwapVolume)  # type: ignore[type-abstract]
    return GuestNow(await swapper.swap_volume(command.server, payload.old, payload.disk)), None


async def extend_volume(driver: Driver, command: Command) -> Answer:
    extender, payload = _power(driver, VolumeExtender), payload_of(command, ExtendVolume)  # type: ignore[type-abstract]
    return GuestNow(await extender.extend_volume(command.server, payload.volume, payload.size_gib)), None


async def volume_connector(driver: Driver, command: Command) -> Answer:
    return Connector(await _power(driver, VolumeConnecting).volume_connector()), None  # type: ignore[type-abstract]


async def console_output(driver: Driver, command: Command) -> Answer:
    reader = _power(driver, ConsoleReader)  # type: ignore[type-abstract]
    return ConsoleText(await reader.console_output(command.server, payload_of(command, ConsoleOutput).lines)), None


async def take_snapshot(driver: Driver, command: Command) -> Answer:
    payload = payload_of(command, TakeSnapshot)
    snapshotter = _power(driver, Snapshotter)  # type: ignore[type-abstract]
    return GuestNow(await snapshotter.take_snapshot(command.server, payload.image, payload.quiesce)), None


async def upload_snapshot(driver: Driver, command: Command) -> Answer:
    image = payload_of(command, OfSnapshot).image
    return GuestNow(await _power(driver, Snapshotter).upload_snapshot(command.server, image)), None  # type: ignore[type-abstract]


async def drop_snapshot(driver: Driver, command: Command) -> Answer:
    image = payload_of(command, OfSnapshot).image
    return GuestNow(await _power(driver, Snapshotter).drop_snapshot(command.server, image)), None  # type: ignore[type-abstract]


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
    Verb.VOLUME_CONNECTOR: volume_connector,
    Verb.SWAP_VOLUME: swap_volume,
    Verb.EXTEND_VOLUME: extend_volume,
    Verb.GET_CONSOLE: get_console,
    **LIFE_VERBS,
    **SNAPSHOT_VERBS,
    **MOVE_VERBS,
    Verb.TAKE_SNAPSHOT: take_snapshot,
    Verb.UPLOAD_SNAPSHOT: upload_snapshot,
    Verb.DROP_SNAPSHOT: drop_snapshot,
}

__all__ = ["VERBS", "Answer", "payload_of"]
