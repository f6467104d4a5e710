"""What users do at the volume service itself with volumes that servers use, and what its back end requests of the
servers' hosts.

Most of it is refused while a server has the volume; the effects of the rest are repaired by the process concerned.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from moorage_testing.simulation.client import ClientReply, SimulatedClient
from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.guest_orders import every_order
from moorage_testing.simulation.orders import a_server, order, watch_of
from moorage_testing.simulation.plan import Arguments, Draft
from moorage_testing.simulation.stores import OF_USER
from moorage_testing.simulation.volume_orders import one_of

LOOK_S = 1.0
LOOKS = 60
ASKED_AGAIN = 40
"""What is to be put right is asked for until it is answered."""


def _draw_acts(dice: random.Random, draft: Draft) -> Arguments:
    return {
        **a_server(dice, draft),
        "which": dice.randrange(2),
        "act": dice.choice(tuple(ACTS)),
        "for_s": round(dice.uniform(0.5, 20.0), 3),
    }


@order("at_volume_service", 0, _draw_acts)
async def at_volume_service(cloud: SimulatedCloud, args: Arguments) -> None:
    """With a volume that a server has, in the volume service's own API; `for_s`: what is done for a while."""
    if volume := await one_of(cloud, args, watch_of(cloud).demo):
        await ACTS[args["act"]](cloud, args, volume)


def _note_answer(cloud: SimulatedCloud, args: Arguments, volume: str, reply: ClientReply) -> None:
    watch_of(cloud).answered(f"{args['act']} volume {volume[:8]} of s{args['server']} at the volume service", reply)


async def _act(cloud: SimulatedCloud, person: SimulatedClient, volume: str, action: str, body: Any) -> ClientReply:
    return await person.ask("volume", "POST", f"/volumes/{volume}/action", {action: body})


async def _delete(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    """Refused while a server has it."""
    watch_of(cloud).book.gone.add(volume)
    _note_answer(cloud, args, volume, await watch_of(cloud).demo.ask("volume", "DELETE", f"/volumes/{volume}"))


async def _force_delete(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    """Refused while it is attached; a volume that is only reserved goes."""
    watch_of(cloud).book.gone.add(volume)
    _note_answer(cloud, args, volume, await _act(cloud, watch_of(cloud).admin, volume, "os-force_delete", {}))


async def _detach(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    _note_answer(cloud, args, volume, await _act(cloud, watch_of(cloud).demo, volume, "os-detach", {}))


async def _force_detach(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    _note_answer(cloud, args, volume, await _act(cloud, watch_of(cloud).admin, volume, "os-force_detach", {}))


async def _begin_detaching(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    """Nobody goes on with it."""
    _note_answer(cloud, args, volume, await _act(cloud, watch_of(cloud).demo, volume, "os-begin_detaching", {}))


async def _reserve(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    _note_answer(cloud, args, volume, await _act(cloud, watch_of(cloud).demo, volume, "os-reserve", {}))


async def _extend(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    shown = await watch_of(cloud).demo.ask("volume", "GET", f"/volumes/{volume}")
    if shown.status == 200:
        size = shown.body["volume"]["size"] + 1
        _note_answer(
            cloud, args, volume, await _act(cloud, watch_of(cloud).demo, volume, "os-extend", {"new_size": size})
        )


async def _end_attachment(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    """Refused while a server uses it."""
    demo = watch_of(cloud).demo
    found = await demo.ask("volume", "GET", "/attachments", volume_id=volume)
    for each in found.body["attachments"][:1] if found.status == 200 else ():
        _note_answer(cloud, args, volume, await demo.ask("volume", "DELETE", f"/attachments/{each['id']}"))


async def _attach(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    """A second attachment for the same server, which compute knows nothing of."""
    demo = watch_of(cloud).demo
    body = {"attachment": {"volume_uuid": volume, "instance_uuid": watch_of(cloud).book.of(args["server"]).id}}
    reply = await demo.ask("volume", "POST", "/attachments", body)
    _note_answer(cloud, args, volume, reply)
    if reply.status == 200 and args["for_s"] < 10.0:
        await asyncio.sleep(args["for_s"])
        made = reply.body["attachment"]["id"]
        _note_answer(cloud, args, volume, await demo.ask("volume", "DELETE", f"/attachments/{made}"))


async def _reset(cloud: SimulatedCloud, args: Arguments, volume: str) -> None:
    """An administrator says that it is in error, and some time later that it is in use, which is refused where nobody uses it."""
    admin = watch_of(cloud).admin
    _note_answer(cloud, args, volume, await _act(cloud, admin, volume, "os-reset_status", {"status": "error"}))
    await asyncio.sleep(args["for_s"])

    async def put_right() -> ClientReply:
        return await _act(cloud, admin, volume, "os-reset_status", {"status": "in-use"})

    _note_answer(cloud, args, volume, await _until_answered(put_right))


ACTS: dict[str, Callable[[SimulatedCloud, Arguments, str], Awaitable[None]]] = {
    "delete": _delete,
    "force_delete": _force_delete,
    "detach": _detach,
    "force_detach": _force_detach,
    "begin_detaching": _begin_detaching,
    "reserve": _reserve,
    "extend": _extend,
    "end_attachment": _end_attachment,
    "attach": _attach,
    "reset": _reset,
}


async def _until_answered(ask: Callable[[], Awaitable[ClientReply]]) -> ClientReply:
    for _ in range(ASKED_AGAIN):
        reply = await ask()
        if not reply.never_sent and not reply.unknown and reply.status < 500:
            return reply
        await asyncio.sleep(LOOK_S)
    return ClientReply(0)


# ---------------------------------------------------------------------------------------------------- assisted snapshots


def _draw_assisted(dice: random.Random, draft: Draft) -> Arguments:
    return {
        **a_server(dice, draft),
        "which": dice.randrange(2),
        "for_s": round(dice.uniform(0.5, 15.0), 3),
        "dropped": dice.random() < 0.7,
    }


@order("assisted_snapshot", 0, _draw_assisted)
async def assisted_snapshot(cloud: SimulatedCloud, args: Arguments) -> None:
    """The volume service has the server's host take a snapshot, waits for the result, and later has it dropped."""
    watch = watch_of(cloud)
    volume = await one_of(cloud, args, watch.demo)
    if volume is None:
        return
    watch.book.gone.add(volume)  # it does not go with its server while it has snapshots
    body = {"snapshot": {"volume_id": volume, "metadata": {OF_USER: "yes"}}}
    made = await watch.demo.ask("volume", "POST", "/snapshots", body)
    if made.status != 202:
        return
    snapshot = str(made.body["snapshot"]["id"])
    if await _status(cloud, snapshot, "creating") != "available":
        return
    if not await _reset_snapshot(cloud, snapshot, "creating"):
        return
    service, path = SimulatedClient(cloud, cloud.known.service_token), "/os-assisted-volume-snapshots"
    info = {"snapshot_id": snapshot, "type": "qcow2", "new_file": f"file-{snapshot}"}
    reply = await service.ask("compute", "POST", path, {"snapshot": {"volume_id": volume, "create_info": info}})
    watch.answered(f"assisted snapshot {snapshot[:8]} of s{args['server']}", reply)
    if reply.status == 200:
        watch.book.assisted[snapshot] = (args["server"], volume)
    await asyncio.sleep(args["for_s"])
    if not args["dropped"] or reply.status != 200 or not await _reset_snapshot(cloud, snapshot, "deleting"):
        return
    watch.book.dropped.add(snapshot)
    delete_info = msgspec.json.encode({"volume_id": volume}).decode()
    reply = await service.ask("compute", "DELETE", f"{path}/{snapshot}", delete_info=delete_info)
    watch.answered(f"drop assisted snapshot {snapshot[:8]} of s{args['server']}", reply)


async def _status(cloud: SimulatedCloud, snapshot: str, passing: str) -> str:
    """What it is when it is not this any more."""
    for _ in range(LOOKS):
        shown = await watch_of(cloud).admin.ask("volume", "GET", f"/snapshots/{snapshot}")
        if shown.status == 200 and shown.body["snapshot"]["status"] != passing:
            return str(shown.body["snapshot"]["status"])
        await asyncio.sleep(LOOK_S)
    return passing


async def _reset_snapshot(cloud: SimulatedCloud, snapshot: str, status: str) -> bool:
    body = {"os-reset_status": {"status": status}}
    path = f"/snapshots/{snapshot}/action"
    return (await watch_of(cloud).admin.ask("volume", "POST", path, body)).status == 202


__all__ = ["every_order"]
