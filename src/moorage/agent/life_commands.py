"""Verbs for a guest after its boot: rebuild, rescue, password, crash dump, diagnostics; and the caching of images."""

from collections.abc import Awaitable, Callable

from moorage.agent.command_context import Answer, payload_of, power_of
from moorage.bus.command_messages import Command
from moorage.bus.guest_payloads import CacheImage, Done, GuestNow, RebuildGuest, SetAdminPassword
from moorage.bus.rescue_messages import RescueGuest, UnrescueGuest
from moorage.bus.verbs import Verb
from moorage.drivers.driver import DeviceReporter, Driver
from moorage.drivers.guest_life import CrashDumper, Diagnosable, ImageCacher, PasswordSetter, Rebuildable, Rescuable
from moorage.model.errors import HostFailed


async def set_admin_password(driver: Driver, command: Command) -> Answer:
    setter = power_of(driver, PasswordSetter)  # type: ignore[type-abstract]
    await setter.set_admin_password(command.server, payload_of(command, SetAdminPassword).password)
    return Done(), None


async def crash_dump(driver: Driver, command: Command) -> Answer:
    return GuestNow(await power_of(driver, CrashDumper).crash_dump(command.server)), None  # type: ignore[type-abstract]


async def diagnostics(driver: Driver, command: Command) -> Answer:
    return await power_of(driver, Diagnosable).diagnostics(command.server), None  # type: ignore[type-abstract]


async def guest_devices(driver: Driver, command: Command) -> Answer:
    """Return the guest's volumes and interfaces as the hypervisor shows them. Raises HostFailed when the host has no such guest,
    or cannot look at it."""
    devices = (await power_of(driver, DeviceReporter).guest_devices()).get(command.server)  # type: ignore[type-abstract]
    if devices is not None:
        return devices, None
    is_here = command.server in await driver.guests()
    refusal = "the host cannot show its devices" if is_here else "the host has no such guest"
    raise HostFailed(refusal, private=command.server, code="devices_unknown" if is_here else "guest_not_found")


async def cache_image(driver: Driver, command: Command) -> Answer:
    cacher = power_of(driver, ImageCacher)  # type: ignore[type-abstract]
    await cacher.cache_image(payload_of(command, CacheImage).image)
    return Done(), None


async def rebuild_guest(driver: Driver, command: Command) -> Answer:
    """Destroy the old guest and make it again.

    While this is under way the guest is meant to be off; `power_on` of the spec says whether it runs afterwards.
    Raises HostFailed when the command contradicts itself, or when the driver fails.
    """
    rebuilder, payload = power_of(driver, Rebuildable), payload_of(command, RebuildGuest)  # type: ignore[type-abstract]
    if payload.guest.server != command.server:
        why = f"{command.server} ≠ {payload.guest.server}"
        raise HostFailed("the command contradicts itself", private=why, code="garbled")
    power = await rebuilder.rebuild_guest(payload.guest, preserve_ephemeral=payload.preserve_ephemeral)
    return GuestNow(power), payload.guest.power_on


async def rescue_guest(driver: Driver, command: Command) -> Answer:
    rescuer, payload = power_of(driver, Rescuable), payload_of(command, RescueGuest)  # type: ignore[type-abstract]
    return GuestNow(await rescuer.rescue_guest(command.server, payload.rescue, payload.drive)), True


async def unrescue_guest(driver: Driver, command: Command) -> Answer:
    rescuer, on = power_of(driver, Rescuable), payload_of(command, UnrescueGuest).power_on  # type: ignore[type-abstract]
    return GuestNow(await rescuer.unrescue_guest(command.server, power_on=on)), on


LIFE_VERBS: dict[str, Callable[[Driver, Command], Awaitable[Answer]]] = {
    Verb.SET_ADMIN_PASSWORD: set_admin_password,
    Verb.CRASH_DUMP: crash_dump,
    Verb.DIAGNOSTICS: diagnostics,
    Verb.GUEST_DEVICES: guest_devices,
    Verb.CACHE_IMAGE: cache_image,
    Verb.REBUILD_GUEST: rebuild_guest,
    Verb.RESCUE_GUEST: rescue_guest,
    Verb.UNRESCUE_GUEST: unrescue_guest,
}
