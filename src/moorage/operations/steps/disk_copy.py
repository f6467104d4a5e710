"""A host copies a guest's disk and sends the copy into an image: for snapshots, shelved disks, and moves to another
cell.

The image exists, without data, before the copy is made; the host sends the data to the image service directly.
"""

import msgspec

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.agent_rpc import NOT_SUPPORTED
from moorage.model.debt import DebtKind
from moorage.model.errors import HostFailed
from moorage.model.guest import Quiesce
from moorage.model.ids import ImageId
from moorage.operations.context import SagaContext
from moorage.operations.steps.debts import done_or_owed
from moorage.operations.steps.hosts import command_context, source_command_context
from moorage.operations.steps.moving import for_delete, if_there
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
    """Let the host delete its copy. When a silent host may have made one and the saga unwinds, the host owes that; else
    the copy goes with the next one.

    A host that does not support snapshots has no copy.
    """
    call = run.context.hosts.drop_snapshot(at, source_command_context(run, step), run.input.server.id, image)
    try:
        if run.phase == "undo" and not await for_delete(run):
            await done_or_owed(run, DebtKind.DROP_COPY, at, call, image)
        else:
            await if_there(call)
    except HostFailed as failed:
        if failed.code != NOT_SUPPORTED:
            raise


def _patient(run: CopyRun, step: str) -> CommandContext:
    """A command that may take as long as the data need."""
    return msgspec.structs.replace(command_context(run, step), patience_s=run.context.settings.image_deadline_s)
