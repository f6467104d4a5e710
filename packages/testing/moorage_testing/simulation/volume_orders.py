"""What users do with volumes: attach, detach, swap, extend, change and delete them."""

import asyncio
import random
from typing import Any

from moorage_testing.simulation.client import SimulatedClient
from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.order_book import BookedVolume
from moorage_testing.simulation.orders import a_server, every_order, order, watch_of
from moorage_testing.simulation.plan import SHARED_VOLUMES, Arguments, Draft

NEW_VOLUME = 0.5
MADE_WITHIN = 40
"""Checks of a volume that is being created."""
LOOK_S = 0.25
OF_SEVERAL = "of several"
"""A type of volumes."""


def _a_volume(dice: random.Random, draft: Draft) -> int:
    """A new one, or one that was named before: it may have a server by now."""
    if not draft.volumes or dice.random() < NEW_VOLUME:
        draft.volumes += 1
        return draft.volumes - 1
    return dice.randrange(draft.volumes)


def _draw_attach(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "volume": _a_volume(dice, draft), "goes": dice.random() < 0.3}


@order("attach_volume", 5, _draw_attach)
async def attach_volume(cloud: SimulatedCloud, args: Arguments) -> None:
    """POST /servers/{id}/os-volume_attachments, of a volume that is made first if need be."""
    watch = watch_of(cloud)
    booked, volume = watch.book.of(args["server"]), watch.book.volume(args["volume"])
    if not booked.id or not await made(cloud, volume):
        return
    volume.goes = volume.goes or args["goes"]
    body = {"volumeId": volume.id, "delete_on_termination": args["goes"]}
    reply = await watch.demo.ask("compute", "POST", f"{_path(booked.id)}", {"volumeAttachment": body})
    watch.answered(f"attach v{volume.ref} to s{booked.ref}", reply)


async def made(cloud: SimulatedCloud, volume: BookedVolume) -> bool:
    """Make it, unless it is there, and wait until it is ready."""
    watch = watch_of(cloud)
    if not volume.id:
        body: dict[str, Any] = {"size": volume.size_gib, "name": f"v{volume.ref}"}
        if volume.ref >= SHARED_VOLUMES:
            body["volume_type"] = await _of_several(cloud)
        reply = await watch.demo.ask("volume", "POST", "/volumes", {"volume": body})
        watch.answered(f"make v{volume.ref}", reply)
        if reply.status != 202:
            return False
        volume.id = str(reply.body["volume"]["id"])
        if reply.body["volume"]["multiattach"]:
            cloud.storage.shared.add(volume.id)
        cloud.trace.note("order", f"v{volume.ref} is {volume.id}")
    for _ in range(MADE_WITHIN):
        reply = await watch.demo.ask("volume", "GET", f"/volumes/{volume.id}")
        if reply.status == 200 and reply.body["volume"]["status"] != "creating":
            return True
        await asyncio.sleep(LOOK_S)
    return False


async def _of_several(cloud: SimulatedCloud) -> str:
    """The type of volumes that several servers may have; it is made if need be."""
    body = {"volume_type": {"name": OF_SEVERAL, "extra_specs": {"multiattach": "<is> True"}}}
    reply = await watch_of(cloud).admin.ask("volume", "POST", "/types", body)
    watch_of(cloud).answered(f"make the type {OF_SEVERAL}", reply)
    return OF_SEVERAL


def _path(server: str) -> str:
    return f"/servers/{server}/os-volume_attachments"


async def one_of(cloud: SimulatedCloud, args: Arguments, client: SimulatedClient) -> str | None:
    """A volume that the server shows."""
    booked = watch_of(cloud).book.of(args["server"])
    if not booked.id:
        return None
    shown = await client.ask("compute", "GET", _path(booked.id))
    volumes = [each["volumeId"] for each in shown.body["volumeAttachments"]] if shown.status == 200 else []
    return str(volumes[args["which"] % len(volumes)]) if volumes else None


def _draw_which(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "which": dice.randrange(3)}


@order("detach_volume", 4, _draw_which)
async def detach_volume(cloud: SimulatedCloud, args: Arguments) -> None:
    """DELETE /servers/{id}/os-volume_attachments/{volume}."""
    watch = watch_of(cloud)
    if volume := await one_of(cloud, args, watch.demo):
        booked = watch.book.of(args["server"])
        reply = await watch.demo.ask("compute", "DELETE", f"{_path(booked.id)}/{volume}")
        watch.answered(f"detach volume {volume[:8]} of s{booked.ref}", reply)


def _draw_swap(dice: random.Random, draft: Draft) -> Arguments:
    return {**_draw_which(dice, draft), "volume": _a_volume(dice, draft)}


@order("swap_volume", 2, _draw_swap)
async def swap_volume(cloud: SimulatedCloud, args: Arguments) -> None:
    """The volume service asks for another volume in the place of one, as when it has moved it."""
    watch = watch_of(cloud)
    service = SimulatedClient(cloud, cloud.known.service_token)
    new = watch.book.volume(args["volume"])
    old = await one_of(cloud, args, watch.demo)
    booked = watch.book.of(args["server"])
    if old is None or not await made(cloud, new):
        return
    new.goes = True  # it may take over that the old one was to go with its server
    booked.root_goes = False
    body = {"os-reset_status": {"migration_status": "success"}}
    reply = await watch.admin.ask("volume", "POST", f"/volumes/{old}/action", body)
    if reply.status == 202:
        changed = {"volumeAttachment": {"volumeId": new.id}}
        reply = await service.ask("compute", "PUT", f"{_path(booked.id)}/{old}", changed)
        watch.answered(f"swap volume {old[:8]} of s{booked.ref} for v{new.ref}", reply)


def _draw_update(dice: random.Random, draft: Draft) -> Arguments:
    return {**_draw_which(dice, draft), "goes": dice.random() < 0.5}


@order("update_volume", 1, _draw_update)
async def update_volume(cloud: SimulatedCloud, args: Arguments) -> None:
    """Whether a volume goes with its server."""
    watch = watch_of(cloud)
    if volume := await one_of(cloud, args, watch.demo):
        booked = watch.book.of(args["server"])
        for each in watch.book.volumes.values():
            each.goes = each.goes or each.id == volume
        body = {"volumeId": volume, "delete_on_termination": args["goes"]}
        reply = await watch.demo.ask("compute", "PUT", f"{_path(booked.id)}/{volume}", {"volumeAttachment": body})
        watch.answered(f"volume {volume[:8]} of s{booked.ref} goes={args['goes']}", reply)
        booked.root_goes = False  # it may be the root: nothing is promised of it any more


def _draw_volume(dice: random.Random, draft: Draft) -> Arguments:
    return {"volume": _a_volume(dice, draft)}


@order("extend_volume", 2, _draw_volume)
async def extend_volume(cloud: SimulatedCloud, args: Arguments) -> None:
    """By one GiB; the server that has it is informed."""
    await _change(cloud, args, "POST", "/action", lambda volume: {"os-extend": {"new_size": volume.size_gib + 1}})


@order("delete_volume", 1, _draw_volume)
async def delete_volume(cloud: SimulatedCloud, args: Arguments) -> None:
    """Refused while a server has it."""
    watch_of(cloud).book.volume(args["volume"]).goes = True
    await _change(cloud, args, "DELETE", "", lambda _: None)


async def _change(cloud: SimulatedCloud, args: Arguments, method: str, path: str, body: Any) -> None:
    watch = watch_of(cloud)
    volume = watch.book.volume(args["volume"])
    if volume.id:
        reply = await watch.demo.ask("volume", method, f"/volumes/{volume.id}{path}", body(volume))
        watch.answered(f"{method} v{volume.ref}{path}", reply)
        if reply.status == 202 and path:
            volume.size_gib += 1


__all__ = ["every_order"]
