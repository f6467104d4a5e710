"""Verbs of snapshots that the volume service asks a host for: of a volume, under its guest."""

from collections.abc import Awaitable, Callable

from moorage.agent.powers import Answer, payload_of, power_of
from moorage.bus.messages import Command, DropVolumeSnapshot, GuestNow, TakeVolumeSnapshot, Verb
from moorage.drivers.assisted import AssistedSnapshots
from moorage.drivers.driver import Driver


async def take_volume_snapshot(driver: Driver, command: Command) -> Answer:
    taker, asked = power_of(driver, AssistedSnapshots), payload_of(command, TakeVolumeSnapshot)  # type: ignore[type-abstract]
    power = await taker.take_volume_snapshot(command.server, asked.volume, asked.snapshot, asked.new_file)
    return GuestNow(power), None


async def drop_volume_snapshot(driver: Driver, command: Command) -> Answer:
    taker, asked = power_of(driver, AssistedSnapshots), payload_of(command, DropVolumeSnapshot)  # type: ignore[type-abstract]
    power = await taker.drop_volume_snapshot(
        command.server, asked.volume, asked.snapshot, asked.merge_file, asked.merge_target
    )
    return GuestNow(power), None


SNAPSHOT_VERBS: dict[str, Callable[[Driver, Command], Awaitable[Answer]]] = {
    Verb.TAKE_VOLUME_SNAPSHOT: take_volume_snapshot,
    Verb.DROP_VOLUME_SNAPSHOT: drop_volume_snapshot,
}
