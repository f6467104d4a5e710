"""Volumes of a boot: awaited and reserved before a host is chosen, exported to the chosen host, attached from the
guest's start.

The order's block devices name them, and say which were made for this server: nothing is looked up by name here.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.errors import NotFound, Problem
from moorage.model.guest import GuestSpec
from moorage.model.ids import CellId, ServerId
from moorage.model.server import BlockDevice, Server
from moorage.model.volume import CREATING, RESERVED
from moorage.operations.context import SagaContext
from moorage.operations.steps import left_guests
from moorage.operations.steps.volumes import (
    GONE,
    delete_or_leave,
    disk_of,
    drop_attachments,
    exported,
    held,
    or_left_to_delete,
    volumes_of,
)
from moorage.saga import Run, Step, step

LOOK_FIRST_S = 0.05
LOOK_MOST_S = 2.0
VOLUME_PATIENCE_S = 300.0

Attachments = dict[str, str]
"""Mapping (`bdm`) → attachment."""


class Boots(Protocol):
    """The part of a boot's input that is needed here."""

    @property
    def server(self) -> Server: ...


class VolumeHost(Protocol):
    """The part of a claim that is needed here."""

    @property
    def cell(self) -> CellId: ...
    @property
    def name(self) -> str: ...


class NotMade(Problem):
    """A volume that a boot waits for was not made."""

    code = "volume_not_made"


@step(patience_s=VOLUME_PATIENCE_S, of_request=True)
async def hold_volumes(run: Run[Boots, SagaContext]) -> Attachments:
    """Wait for volumes that are being made, and reserve all of them for the server; a refusal unwinds the boot."""
    server, attachments = run.input.server, Attachments()
    for device in server.volumes:
        assert device.volume is not None
        if device.created:
            await _made(run, device.volume)
        attachments[device.bdm] = (await held(run.context, server.id, device.volume, unsure=run.unsure)).id
    return attachments


@hold_volumes.undo
async def let_volumes_go(run: Run[Boots, SagaContext]) -> None:
    """Remove the reservations, and delete volumes that were made for the server; not while a host may have its guest."""
    server = run.input.server
    if not await left_guests.may_run(run.context, server.id):
        await or_left_to_delete(run.context, server.id, release_unbuilt(run.context, server.id, server.volumes))


async def release_unbuilt(context: SagaContext, server: ServerId, devices: tuple[BlockDevice, ...]) -> None:
    """Remove the attachments of a server that was not built, and delete volumes that were made for it."""
    for device in devices:
        assert device.volume is not None
        await drop_attachments(context, server, device.volume)
        if device.created:
            await delete_or_leave(context, device.volume)


async def _made(run: Run[Boots, SagaContext], volume: str) -> None:
    """Wait until a volume is ready. Raises NotMade when it is not, with Nova's message."""
    began, pause_s, looks = time.monotonic(), LOOK_FIRST_S, 0
    while True:
        looks += 1
        try:
            status = (await volumes_of(run.context).show(volume)).status
        except NotFound:
            status = "deleted"
        waited_s = time.monotonic() - began
        if status not in CREATING:
            if status in ("available", RESERVED, "attaching", "in-use"):
                return
        elif waited_s < run.context.settings.volume_wait_s:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LOOK_MOST_S)
            continue
        raise NotMade(
            f"Volume {volume} did not finish being created even after we waited {waited_s:.0f} seconds or {looks} attempts. "
            f"And its status is {status}."
        )


def connecting(claim_host: Step[Any, Any, Any]) -> Step[Any, Any, Attachments]:
    """Return the step that exports a boot's volumes to the host that `claim_host` chose."""

    @step(moves=True, no_undo="exports go with their attachments (hold_volumes)", patience_s=VOLUME_PATIENCE_S)
    async def connect_volumes(run: Run[Boots, SagaContext]) -> Attachments:
        """Export each volume to the host and mark it as in use; a host that a volume cannot reach is refused with that
        cause.
        """
        claim: VolumeHost = run[claim_host]
        to, server, first = HostAddress(claim.cell, claim.name), run.input.server, run[hold_volumes]
        again = run.unsure or run.attempt > 1
        attachments = Attachments()
        for device in server.volumes:
            attachments[device.bdm] = await exported(
                run.context, to, server.id, device, first.get(device.bdm), again=again
            )
        return attachments

    return connect_volumes


def with_attachments(server: Server, attachments: Mapping[str, str] | None) -> Server:
    """The record with the attachments of its volumes."""
    if not attachments:
        return server
    devices = tuple(
        msgspec.structs.replace(each, attachment=attachments.get(each.bdm) or each.attachment)
        for each in server.block_devices
    )
    return msgspec.structs.replace(server, block_devices=devices)


async def with_disks(
    context: SagaContext, server: Server, guest: GuestSpec, attachments: Mapping[str, str] | None
) -> GuestSpec:
    """The guest with its volumes and their connections, and without a local root when it boots from a volume."""
    guest = msgspec.structs.replace(
        guest,
        image=None if server.volume_backed else guest.image,
        root_gib=0 if server.volume_backed else guest.root_gib,
    )
    if not attachments:
        return guest
    exported = [each for each in server.volumes if attachments[each.bdm] != GONE]
    disks = [await disk_of(context, each, attachments[each.bdm]) for each in exported]
    return msgspec.structs.replace(guest, volumes=tuple(disks))
