"""A host copies a guest's disk and sends the copy into an image: for snapshots, shelved disks, and moves to another
cell.

The image exists, without data, before the copy is made; the host sends the data to the image service directly.
"""

import msgspec

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.model.guest import Quiesce
from moorage.model.ids import ImageId
from moorage.operations.context import SagaContext
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, SILENT, command_context, source_command_context
from moorage.operations.steps.servers import AboutServer
from moorage.saga import Run

CopyRun = Run[AboutServer, SagaContext]


async def take(run: CopyRun, step: str, at: HostAddress, image: ImageId, quiesce: Quiesce) -> None:
    """Let the host copy the disk. A repeat makes a new copy."""
    await run.context.hosts.take_snapshot(at, _patient(run, step), run.input.server.id, image, quiesce)


async def send(run: CopyRun, step: str, at: HostAddress, image: ImageId) -> None:
    """Let the host send its copy into the image; an image that is complete already counts as success."""
    await run.context.hosts.upload_snapshot(at, _patient(run, step), run.input.server.id, image)


async def drop(run: CopyRun, step: str, at: HostAddress, image: ImageId) -> None:
    """Let the host delete its copy, if it answers; the copy of a silent host goes with its guest, or with the next
    copy.

    A host that does not support snapshots has no copy.
    """
    try:
        await run.context.hosts.drop_snapshot(at, source_command_context(run, step), run.input.server.id, image)
    except COMMAND_ENDS as failed:
        if failed.code not in {*SILENT, NO_GUEST, "not_supported"}:
            raise


def _patient(run: CopyRun, step: str) -> CommandContext:
    """A command that may take as long as the data need."""
    return msgspec.structs.replace(command_context(run, step), patience_s=run.context.settings.image_deadline_s)
