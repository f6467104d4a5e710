"""Creates the volumes of a boot while the request is answered, and deletes them when the boot is not accepted."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from moorage.model import local_disks
from moorage.model.errors import Problem, Unavailable, UnknownOutcome
from moorage.model.ids import ServerId, new_uuid
from moorage.model.principal import Principal
from moorage.model.server import BlockDevice, FlavorCopy, Server
from moorage.model.volume import KEY, NewVolume
from moorage.operations.boot.boot_devices import DEVICES_MAX, BootDevices, without_device_name
from moorage.operations.boot.boot_input import Boot
from moorage.operations.context import SagaContext
from moorage.operations.steps.volumes import device_name, volumes_of
from moorage.store.region import volume_intents

CREATE_AT_ONCE = 8


def given(boot: Boot, of_boot: BootDevices) -> Boot:
    """The boot with the devices as this server's own: each with an id and a name."""
    if not of_boot.devices:
        return boot
    root = next(each for each in of_boot.devices if each.boot_index == 0)
    root_name = _named(root.device) or boot.server.root_device
    taken = {root_name, *(_named(each.device) for each in of_boot.devices)}
    prefix = root_name.rstrip("0123456789")[:-1]
    free = (name for name in (device_name(place, prefix) for place in range(1, 2 * DEVICES_MAX)) if name not in taken)
    names = _names(of_boot.devices, boot.server.flavor, free)
    devices = tuple(
        msgspec.structs.replace(
            each,
            bdm=new_uuid(),
            device=root_name if each is root else names[at],
            created=each.destination == "volume" and each.source != "volume",
        )
        for at, each in enumerate(of_boot.devices)
    )
    server = msgspec.structs.replace(
        boot.server,
        block_devices=devices,
        root_device=root_name,
        image_properties=of_boot.properties,
        availability_zone=boot.server.availability_zone or of_boot.zone,
    )
    return msgspec.structs.replace(boot, server=server)


def _names(devices: Sequence[BlockDevice], flavor: FlavorCopy, free: Iterator[str]) -> dict[int, str]:
    """Place → name of each device but the root. As in Nova, and as hosts do it, ephemeral disks come first, then swap; disks of the flavor
    that no device names have theirs, too.
    """
    ephemeral, swap = local_disks.unlisted(flavor, devices)
    names: dict[int, str] = {}

    def name(kind: Callable[[BlockDevice], bool]) -> None:
        for at, each in enumerate(devices):
            if each.boot_index != 0 and at not in names and kind(each):
                names[at] = _named(each.device) or next(free)

    for kind, also in ((local_disks.is_ephemeral, ephemeral), (local_disks.is_swap, swap)):
        name(kind)
        if also:
            next(free)
    name(lambda _: True)
    return names


def _named(device: str | None) -> str:
    return "" if not device else f"/dev/{without_device_name(device)}"


async def with_volumes(context: SagaContext, principal: Principal, token: str, boots: Sequence[Boot]) -> list[Boot]:
    """Create the volumes with the user's token.

    Raises OverQuota, Invalid, and Unavailable; then no volume is left. Other errors of the volume service are raised as
    they are.
    """
    servers = [boot.server for boot in boots if any(each.created for each in boot.server.block_devices)]
    if not servers:
        return list(boots)
    now = time.time_ns() // 1000
    await context.region.write(lambda tx: volume_intents.begin(tx, [each.id for each in servers], now))
    slots = asyncio.Semaphore(CREATE_AT_ONCE)
    wanted = [(server, each) for server in servers for each in server.block_devices if each.created]

    async def make(server: Server, device: BlockDevice) -> str:
        async with slots:
            made = await volumes_of(context).create(_new(context, server, device), principal.project or "", token)
            return made.id

    done = await asyncio.gather(*(make(*each) for each in wanted), return_exceptions=True)
    failed = [each for each in done if isinstance(each, BaseException)]
    if failed:
        lost = any(isinstance(each, UnknownOutcome) for each in failed)
        await forget(
            context, [each.id for each in servers], [each for each in done if isinstance(each, str)], keep=lost
        )
        first = failed[0]
        if isinstance(first, UnknownOutcome):
            raise Unavailable(first.public, private=first.private) from first
        raise first
    ids = {device.bdm: str(id) for (_, device), id in zip(wanted, done, strict=True)}
    return [_with_ids(boot, ids) for boot in boots]


def _with_ids(boot: Boot, ids: dict[str, str]) -> Boot:
    devices = tuple(
        msgspec.structs.replace(each, volume=ids.get(each.bdm, each.volume)) for each in boot.server.block_devices
    )
    return msgspec.structs.replace(boot, server=msgspec.structs.replace(boot.server, block_devices=devices))


def _new(context: SagaContext, server: Server, device: BlockDevice) -> NewVolume:
    return NewVolume(
        size_gib=device.size_gib or 0,
        name=f"{server.id}-blank-vol" if device.source == "blank" else "",
        image=device.uuid if device.source == "image" else None,
        snapshot=device.uuid if device.source == "snapshot" else None,
        volume_type=device.volume_type,
        availability_zone=None if context.settings.cross_az_attach else server.availability_zone,
        metadata={KEY: server.id},
    )


async def forget(
    context: SagaContext, servers: Sequence[ServerId], volumes: Sequence[str], *, keep: bool = False
) -> None:
    """Delete volumes of servers that were not accepted; a reconciler finds by the intent those that cannot be deleted
    now.
    """
    for each in volumes:
        try:
            await volumes_of(context).delete(each)
        except Problem:
            keep = True
    if not keep:
        await context.region.write(lambda tx: volume_intents.done(tx, servers))


async def forget_boots(context: SagaContext, boots: Sequence[Boot]) -> None:
    """Delete the volumes of boots that were not accepted; see `forget`."""
    if boots:
        made = [each.volume for boot in boots for each in boot.server.block_devices if each.created and each.volume]
        await forget(context, [boot.server.id for boot in boots], made)
