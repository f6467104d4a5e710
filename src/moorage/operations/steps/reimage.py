"""Rebuild of a server that boots from a volume: another image is written over its root volume, while no host has it.

The server keeps the volume all the time: a reservation replaces the export meanwhile. The state is read from the volume
itself; the event `volume-reimaged` says when to read it.
"""

import asyncio
import logging

from moorage.bus.agent_calls import HostAddress
from moorage.model.errors import HostFailed, Invalid, NotFound, Problem, Refusal, Unavailable
from moorage.model.image import Image
from moorage.model.server import BlockDevice, Server
from moorage.model.volume import CREATING, RESERVED, Volume
from moorage.operations.context import SagaContext
from moorage.operations.image_checks import BYTES_PER_GIB
from moorage.operations.steps.volumes import exported, volumes_of

logger = logging.getLogger(__name__)

S_PER_GIB = 20.0
"""Seconds per GiB; Nova's `reimage_timeout_per_gb`."""
LOOK_FIRST_S = 0.1
LOOK_MOST_S = 5.0


class NotReimaged(Problem):
    """The volume service did not write the image."""

    code = "volume_not_reimaged"


def root_of(server: Server) -> BlockDevice:
    """The volume from which a volume-backed server boots."""
    return next(each for each in server.volumes if each.boot_index == 0)


def check_written(image: Image, volume: Volume, ram_mib: int) -> None:
    """Check that the image fits. Raises Invalid, with Nova's message."""
    if image.status != "active":
        raise Invalid(f"Image {image.id} is not active.")
    if image.min_ram_mib > ram_mib:
        raise Invalid("Flavor's memory is too small for requested image.")
    needed = max(image.min_disk_gib * BYTES_PER_GIB, image.size_bytes or 0)
    if needed > volume.size_gib * BYTES_PER_GIB:
        raise Invalid(
            f"Volume is smaller than the minimum size specified in image metadata. Volume size is "
            f"{volume.size_gib * BYTES_PER_GIB} bytes, minimum size is {needed} bytes."
        )


async def reimaged(context: SagaContext, server: Server, image: str) -> None:
    """Write the image over the root volume; a repeat writes it again. Raises NotReimaged when it failed or took too
    long.
    """
    volume = root_of(server).volume
    assert volume is not None
    now = await volumes_of(context).show(volume)
    if now.status not in CREATING:  # otherwise this operation has started the write already
        try:
            await volumes_of(context).reimage(volume, image)
        except Refusal as refused:
            raise NotReimaged(
                f"Volume {volume} cannot be written with image {image}: {refused.public}", private=refused.private
            ) from refused
    status = await _settled(context, server, volume, max(context.settings.volume_wait_s, S_PER_GIB * now.size_gib))
    if status != RESERVED:
        raise NotReimaged(f"Volume {volume} was not written with image {image}: it is {status}.")


async def _settled(context: SagaContext, server: Server, volume: str, patience_s: float) -> str:
    """The volume's status when nothing is being written, or at the end of the patience."""
    loop, pause_s = asyncio.get_running_loop(), LOOK_FIRST_S
    until = loop.time() + patience_s
    with context.arrivals.of(server.id) as arrived:
        while True:
            arrived.clear()
            status = (await volumes_of(context).show(volume)).status
            left_s = until - loop.time()
            if status not in CREATING or left_s <= 0:
                return status
            try:
                async with asyncio.timeout(min(left_s, pause_s)):
                    await arrived.wait()
            except TimeoutError:
                pause_s = min(2 * pause_s, LOOK_MOST_S)


async def exported_again(context: SagaContext, to: HostAddress, server: Server) -> str | None:
    """Export the root volume to its host again, if possible; return the attachment.

    A volume in error, or of a silent host, stays reserved; the server is in ERROR anyway. Raises Unavailable while the
    volume is busy.
    """
    root = root_of(server)
    assert root.volume is not None
    try:
        status = await _settled(context, server, root.volume, context.settings.volume_wait_s)
        if status in CREATING:
            raise Unavailable(f"Volume {root.volume} is still {status}.", code="volume_busy")
        return await exported(context, to, server.id, root, None, again=True)
    except NotFound:
        return None
    except (HostFailed, Refusal) as refused:
        logger.warning("volume %s of server %s stays reserved: %s", root.volume, server.id, refused)
        attachments = await volumes_of(context).attachments_of(server.id, root.volume)
        return attachments[0].id if attachments else None
