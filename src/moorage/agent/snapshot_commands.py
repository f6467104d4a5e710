"""Verbs of volume snapshots: those that the volume service asks of a host, and quiescing a guest while its volumes are copied."""

from collections.abc import Awaitable, Callable

from moorage.agent.command_context import Answer, payload_of, power_of
from moorage.bus.command_messages import Command
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.quiesce_messages import FreezeGuest, ThawGuest
from moorage.bus.verbs import Verb
from moorage.bus.volume_payloads import DropVolumeSnapshot, TakeVolumeSnapshot
from moorage.drivers.assisted_snapshots import AssistedSnapshots
from moorage.drivers.driver import Driver
from moorage.drivers.quiesce import Freezer


async def take_volume_snapshot(driver: Driver, command: Command) -> Answer:
    taker, payload = power_of(driver, AssistedSnapshots), payload_of(command, TakeVolumeSnapshot)  # type: ignore[type-abstract]
    power = await taker.take_volume_snapshot(command.server, payload.volume, payload.snapshot, payload.new_file)
    return GuestNow(power), None


async def drop_volume_snapshot(driver: Driver, command: Command) -> Answer:
    taker, payload = power_of(driver, AssistedSnapshots), payload_of(command, DropVolumeSnapshot)  # type: ignore[type-abstract]
    power = await taker.drop_volume_snapshot(
        command.server, payload.volume, payload.snapshot, payload.merge_file, payload.merge_target
    )
    return GuestNow(power), None


async def freeze_guest(driver: Driver, command: Command) -> Answer:
    freezer, payload = power_of(driver, Freezer), payload_of(command, FreezeGuest)  # type: ignore[type-abstract]
    return GuestNow(await freezer.freeze_guest(command.server, payload.why, payload.for_s)), None


async def thaw_guest(driver: Driver, command: Command) -> Answer:
    freezer = power_of(driver, Freezer)  # type: ignore[type-abstract]
    return GuestNow(await freezer.thaw_guest(command.server, payload_of(command, ThawGuest).why)), None


SNAPSHOT_VERBS: dict[str, Callable[[Driver, Command], Awaitable[Answer]]] = {
    Verb.TAKE_VOLUME_SNAPSHOT: take_volume_snapshot,
    Verb.DROP_VOLUME_SNAPSHOT: drop_volume_snapshot,
    Verb.FREEZE_GUEST: freeze_guest,
    Verb.THAW_GUEST: thaw_guest,
}
