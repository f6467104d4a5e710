"""The temporary image of a move: it carries the disk to a host of another cell, because hosts of different cells do not
reach each other.

    hold_image      created with our own rights, empty, with the id that was minted with the request
    take_snapshot   the host that is left copies the disk; its guest is off by then, and stays off
    upload_image    the host sends the copy, once: later attempts use the same image
    delete_image    when the server is shown on its new host

The image belongs to the service's project, so it is in no user's quota and in no user's list. It cannot leak: it names
its purpose and its server, so the reconciler `stray_images` deletes what is left of it, complete or not, when no
operation holds that server.

A move that ends within its cell, or whose root is a volume, makes no image.
"""

from moorage.model.guest import Quiesce
from moorage.model.ids import ImageId
from moorage.operations.resize.prepare_resize import HOST_PATIENCE_S, ResizeRun, claim_host
from moorage.operations.steps import disk_copy, moving, snapshot_image
from moorage.operations.steps import servers as records
from moorage.saga import step

IMAGE_PATIENCE_S = 300.0


@step(moves=True, needs=(claim_host,), patience_s=IMAGE_PATIENCE_S)
async def hold_image(run: ResizeRun) -> ImageId | None:
    """Create the image without data; an earlier attempt may have created and filled it."""
    image = _image(run)
    if image is not None:
        await records.not_overtaken(run, moving.current_end(run.input.server).cell)
        await snapshot_image.make_for_move(run.context, run.input.server, image)
    return image


@hold_image.undo
async def drop_image(run: ResizeRun) -> None:
    """Try once to delete it: an image service that does not answer is not waited for; the reconciler deletes the rest."""
    if run.input.image is not None:
        await snapshot_image.drop(run.context, run.input.image)


@step(moves=True, needs=(claim_host, hold_image), patience_s=HOST_PATIENCE_S)
async def take_snapshot(run: ResizeRun) -> bool:
    """Let the host that is left copy the disk. Returns False when that is not needed, or when an earlier attempt has
    sent it.
    """
    image, source = _image(run), moving.current_end(run.input.server).address
    if image is None:
        if run.tried and run.input.image is not None:  # an earlier attempt may have left a copy that it did not send
            await disk_copy.drop(run, "drop_copy", source, run.input.image)
        return False
    if await snapshot_image.is_usable(run.context, image):
        return False
    if (
        run.tried
    ):  # its host does not know this attempt yet, so it would still accept commands of an executor that was overtaken
        await records.not_overtaken(run, moving.current_end(run.input.server).cell)
    with moving.nowhere_else():
        await disk_copy.take(run, "take_snapshot", source, image, Quiesce.NO)
    return True


@take_snapshot.undo
async def drop_snapshot(run: ResizeRun) -> None:
    if run.input.image is not None:
        await disk_copy.drop(run, "drop_snapshot", moving.current_end(run.input.server).address, run.input.image)


@step(
    moves=True,
    needs=(claim_host, take_snapshot),
    patience_s=HOST_PATIENCE_S,
    no_undo="the image is deleted by the undo of the step that made it, and the host is told to stop by that of the copy",
)
async def upload_image(run: ResizeRun) -> None:
    """Let the host send the copy to the image service."""
    image = _image(run)
    if image is not None and not await snapshot_image.is_usable(run.context, image):
        with moving.nowhere_else():
            await disk_copy.send(run, "upload_image", moving.current_end(run.input.server).address, image)


@step(needs=(claim_host, upload_image), no_undo="the disk is on its new host")
async def delete_image(run: ResizeRun) -> None:
    """Try once to delete it, also when an earlier attempt made it; the reconciler deletes the rest."""
    image = run.input.image
    if image is not None and (run.tried or _image(run) is not None):
        await snapshot_image.drop(run.context, image)


def _image(run: ResizeRun) -> ImageId | None:
    """None: the disk is sent from host to host, or is a volume."""
    claim = run[claim_host]
    return None if claim.cell == moving.current_end(run.input.server).cell else run.input.image
