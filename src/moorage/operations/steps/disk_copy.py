"""A host copies a guest's disk and sends the copy into an image: snapshots, shelved disks, and moves to a host of another cell.

The image is there, without data, before the copy is taken; the data goes from the host to the image service, through no conductor.
"""

import msgspec

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.model.errors import HostFailed
from moorage.model.guest import Quiesce
from moorage.model.ids import ImageId
from moorage.operations.context import SagaContext
from moorage.operations.steps.hosts import HOST_SILENT, NO_GUEST, command_context, source_command_context
from moorage.operations.steps.servers import AboutServer
from moorage.saga import Run

CopyRun = Run[AboutServer, SagaContext]


async def take(run: CopyRun, step: str, at: HostAddress, image: ImageId, quiesce: Quiesce) -> None:
    """The host copies the disk. Taken again, the copy is a new one."""
    await run.context.hosts.take_snapshot(at, _patient(run, step), run.input.server.id, image, quiesce)


async def send(run: CopyRun, step: str, at: HostAddress, image: ImageId) -> None:
    """The host makes the image whole of its copy; one that is whole already is success."""
    await run.context.hosts.upload_snapshot(at, _patient(run, step), run.input.server.id, image)


async def drop(run: CopyRun, step: str, at: HostAddress, image: ImageId) -> None:
    """Its copy goes, if the host can be heard; that of a silent host goes with its guest, or with the next copy.

    A host that knows no snapshots has none.
    """
    try:
        await run.context.hosts.drop_snapshot(at, source_command_context(run, step), run.input.server.id, image)
    except HostFailed as failed:
        if failed.code not in {HOST_SILENT, NO_GUEST, "not_supported"}:
            raise


def _patient(run: CopyRun, step: str) -> CommandContext:
    """As long as data may take."""
    return msgspec.structs.replace(command_context(run, step), patience_s=run.context.settings.image_deadline_s)
