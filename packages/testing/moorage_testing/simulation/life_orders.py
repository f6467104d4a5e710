"""What users do with a server after its boot: rebuild, rescue, shelve, images of it, deleting it so that it can be restored."""

import random
from typing import Any

from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.move_orders import every_order
from moorage_testing.simulation.orders import a_server, act, order, watch_of
from moorage_testing.simulation.plan import Arguments, Draft

# ---------------------------------------------------------------------------------------------------- disks


def _draw_rebuild(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "other": dice.random() < 0.7}


@order("rebuild", 4, _draw_rebuild)
async def rebuild(cloud: SimulatedCloud, args: Arguments) -> None:
    """From its image, or another one."""
    image = cloud.known.other_image if args["other"] else cloud.known.image
    booked = watch_of(cloud).book.of(args["server"])
    booked.anew, booked.quiesced = True, False
    await act(cloud, args, "rebuild", {"imageRef": image})


@order("rescue", 3, a_server)
async def rescue(cloud: SimulatedCloud, args: Arguments) -> None:
    """From an image that is not the server's."""
    await act(cloud, args, "rescue", {"rescue_image_ref": cloud.known.other_image})


@order("unrescue", 2, a_server)
async def unrescue(cloud: SimulatedCloud, args: Arguments) -> None:
    await act(cloud, args, "unrescue", None)


# ---------------------------------------------------------------------------------------------------- images


@order("create_image", 3, a_server)
async def create_image(cloud: SimulatedCloud, args: Arguments) -> None:
    """Of its disk, or of its volumes."""
    await _image(cloud, args, "createImage", {"name": f"image of s{args['server']}"})


def _draw_backup(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "rotation": dice.choice((0, 1, 1, 2))}


@order("create_backup", 2, _draw_backup)
async def create_backup(cloud: SimulatedCloud, args: Arguments) -> None:
    """Earlier ones go."""
    said = {"name": f"backup of s{args['server']}", "backup_type": "daily", "rotation": args["rotation"]}
    await _image(cloud, args, "createBackup", said)


async def _image(cloud: SimulatedCloud, args: Arguments, action: str, said: Any) -> None:
    reply = await act(cloud, args, action, said)
    if reply is not None and reply.status == 202 and action == "createImage":
        watch_of(cloud).book.images[reply.body["image_id"]] = args["server"]


# ---------------------------------------------------------------------------------------------------- shelving


async def _leaving(cloud: SimulatedCloud, args: Arguments, action: str) -> None:
    booked = watch_of(cloud).book.of(args["server"])
    booked.leave_asked = booked.anew = True
    await act(cloud, args, action, None)


@order("shelve", 4, a_server)
async def shelve(cloud: SimulatedCloud, args: Arguments) -> None:
    """It leaves its host, at once or later."""
    await _leaving(cloud, args, "shelve")


@order("shelve_offload", 1, a_server)
async def shelve_offload(cloud: SimulatedCloud, args: Arguments) -> None:
    """A shelved one leaves its host now."""
    await _leaving(cloud, args, "shelveOffload")


@order("unshelve", 4, a_server)
async def unshelve(cloud: SimulatedCloud, args: Arguments) -> None:
    watch_of(cloud).book.of(args["server"]).return_asked = True
    await act(cloud, args, "unshelve", None)


# ---------------------------------------------------------------------------------------------------- deleted, and not gone


@order("restore_server", 2, a_server)
async def restore_server(cloud: SimulatedCloud, args: Arguments) -> None:
    """One that was deleted so that it can be restored."""
    watch_of(cloud).book.of(args["server"]).restore_asked = True
    await act(cloud, args, "restore", None)


@order("force_delete", 1, a_server)
async def force_delete(cloud: SimulatedCloud, args: Arguments) -> None:
    """It is gone at once."""
    booked = watch_of(cloud).book.of(args["server"])
    booked.delete_asked = True
    reply = await act(cloud, args, "forceDelete", None)
    if reply is not None and reply.status == 202:
        booked.deleted = True


__all__ = ["every_order"]
