"""What users and administrators do.  A new operation of the cloud is a function here: see docs/howto/simulate.md.

Each has a draw, which chooses its arguments when a plan is made, and a body, which carries it out; `Book` keeps what was answered.
"""

import asyncio
import random
from typing import Any

from moorage_testing.simulation.client import VERSION, ClientReply
from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.invariants import InvariantWatch
from moorage_testing.simulation.order_book import Booked, HostSetting
from moorage_testing.simulation.plan import HOSTS, ORDERS_BY_NAME, ZONE, Arguments, Draft
from moorage_testing.simulation.setting import TRAIT

NETWORKS = (
    "private", "private", "routed", "routed", "assured", "direct", "port", "guaranteed", "auto", "none", "two",
)  # fmt: skip
WITH_DRIVE = 3
"""Every third server has a config drive."""
FROM_VOLUME = 0.15
QUIESCED = 0.5
"""Of those that boot from a volume."""
POWERS = ("os-stop", "os-start", "reboot", "os-stop", "reboot SOFT", "pause", "unpause", "suspend", "resume")
order = ORDERS_BY_NAME.add


def every_order() -> tuple[str, ...]:
    """What can be ordered."""
    return tuple(ORDERS_BY_NAME)


def a_server(dice: random.Random, draft: Draft) -> Arguments:
    """One that was ordered before, rather a late one."""
    return {"server": max(dice.randrange(draft.boots), dice.randrange(draft.boots))}


def watch_of(cloud: SimulatedCloud) -> InvariantWatch:
    watch: InvariantWatch = cloud.watch
    return watch


# ---------------------------------------------------------------------------------------------------- boot and delete


def _draw_boot(dice: random.Random, draft: Draft) -> Arguments:
    draft.boots += 1
    said: Arguments = {"server": draft.boots - 1, "network": dice.choice(NETWORKS)}
    if dice.random() < 0.15:
        said["flavor"] = dice.choice(("tiny", "traited"))
    if dice.random() < 0.15:
        said["zone"] = ZONE
    if dice.random() < FROM_VOLUME:
        said["root"] = dice.choice(("stays", "goes"))
        said["quiesced"] = dice.random() < QUIESCED
    return said


@order("boot", 14, _draw_boot)
async def boot(cloud: SimulatedCloud, args: Arguments) -> None:
    """POST /servers, on a network of some kind."""
    watch, known = watch_of(cloud), cloud.known
    booked = watch.book.of(args["server"])
    networks = await _nics(cloud, booked, args["network"])
    if networks is None:
        return
    server: dict[str, Any] = {
        "name": f"s{booked.ref}",
        "imageRef": known.image,
        "flavorRef": known.flavors[args.get("flavor", "nano")],
        "networks": networks,
    }
    if "zone" in args:
        server["availability_zone"] = args["zone"]
    if booked.ref % WITH_DRIVE == 0:
        server["config_drive"] = True
    if "root" in args:
        booked.root_goes, booked.quiesced = args["root"] == "goes", args.get("quiesced", False)
        image = known.quiesced_image if booked.quiesced else known.image
        server["imageRef"], server["block_device_mapping_v2"] = "", [root_volume(image, booked.root_goes)]
    person = watch.admin if args["network"] in {"auto", "none"} else watch.demo
    reply = await person.ask("compute", "POST", "/servers", {"server": server})
    watch.answered(f"boot s{booked.ref}", reply)
    if reply.status == 202:
        booked.id = reply.body["server"]["id"]
        if booked.quiesced:
            cloud.copies.follow(booked.id)
        watch.accepted_boot(booked, args)


def root_volume(image: str, goes: bool) -> dict[str, Any]:
    """A volume made from an image, to boot from."""
    return {
        "boot_index": 0,
        "uuid": image,
        "source_type": "image",
        "destination_type": "volume",
        "volume_size": 1,
        "delete_on_termination": goes,
    }


async def _nics(cloud: SimulatedCloud, booked: Booked, kind: str) -> Any:
    """None: a port could not be made for it."""
    networks = cloud.known.networks
    match kind:
        case "auto" | "none":
            return kind
        case "two":
            return [{"uuid": networks["private"]}, {"uuid": networks["routed"]}]
        case "port":
            return await _with_port(cloud, booked, network_id=networks["private"])
        case "guaranteed":
            return await _with_port(cloud, booked, network_id=networks["direct"], qos_policy_id=cloud.known.policy)
        case "direct":
            return await _with_port(cloud, booked, network_id=networks["direct"], **{"binding:vnic_type": "direct"})
        case _:
            return [{"uuid": networks[kind]}]


async def _with_port(cloud: SimulatedCloud, booked: Booked, **said: Any) -> Any:
    reply = await watch_of(cloud).demo.ask("network", "POST", "/ports", {"port": said})
    if reply.status != 201:
        return None
    port = str(reply.body["port"]["id"])
    booked.ports.append(port)
    return [{"port": port}]


@order("delete", 5, a_server)
async def delete(cloud: SimulatedCloud, args: Arguments) -> None:
    """DELETE /servers/{id}."""
    watch = watch_of(cloud)
    booked = watch.book.of(args["server"])
    if not booked.id:
        return
    booked.delete_asked = True
    reply = await watch.admin.ask("compute", "DELETE", f"/servers/{booked.id}")
    watch.answered(f"delete s{booked.ref}", reply)
    if reply.status == 204:
        booked.deleted = True


# ---------------------------------------------------------------------------------------------------- power


def _draw_power(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "action": dice.choice(POWERS)}


@order("power", 3, _draw_power)
async def power(cloud: SimulatedCloud, args: Arguments) -> None:
    """Stop, start or reboot it."""
    action = args["action"]
    name, _, how = action.partition(" ")
    await act(cloud, args, name, {"type": how or "HARD"} if name == "reboot" else None)


async def act(
    cloud: SimulatedCloud, args: Arguments, action: str, said: Any, *, version: str = VERSION
) -> ClientReply | None:
    """An action of a server's; None: there is no such server."""
    watch = watch_of(cloud)
    booked = watch.book.of(args["server"])
    if not booked.id:
        return None
    path = f"/servers/{booked.id}/action"
    reply = await watch.admin.ask("compute", "POST", path, {action: said}, version=version)
    watch.answered(f"{action} s{booked.ref}", reply)
    return reply


# ---------------------------------------------------------------------------------------------------- interfaces


def _draw_attach(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "network": dice.choice(("private", "routed", "assured", "port"))}


@order("attach", 3, _draw_attach)
async def attach(cloud: SimulatedCloud, args: Arguments) -> None:
    """POST /servers/{id}/os-interface."""
    watch = watch_of(cloud)
    booked = watch.book.of(args["server"])
    if not booked.id:
        return
    nics = await _nics(cloud, booked, args["network"])
    if nics is None:
        return
    (nic,) = nics
    said = {"port_id": nic["port"]} if "port" in nic else {"net_id": nic["uuid"]}
    reply = await watch.demo.ask("compute", "POST", f"/servers/{booked.id}/os-interface", {"interfaceAttachment": said})
    watch.answered(f"attach {args['network']} s{booked.ref}", reply)
    if reply.status == 200:
        booked.attached.add(reply.body["interfaceAttachment"]["port_id"])


def _draw_detach(dice: random.Random, draft: Draft) -> Arguments:
    return {**a_server(dice, draft), "which": dice.randrange(2)}


@order("detach", 2, _draw_detach)
async def detach(cloud: SimulatedCloud, args: Arguments) -> None:
    """DELETE /servers/{id}/os-interface/{port}."""
    watch = watch_of(cloud)
    booked = watch.book.of(args["server"])
    if not booked.id:
        return
    shown = await watch.demo.ask("compute", "GET", f"/servers/{booked.id}/os-interface")
    ports = [each["port_id"] for each in shown.body["interfaceAttachments"]] if shown.status == 200 else []
    if ports:
        port = ports[args["which"] % len(ports)]
        reply = await watch.demo.ask("compute", "DELETE", f"/servers/{booked.id}/os-interface/{port}")
        watch.answered(f"detach s{booked.ref}", reply)


# ---------------------------------------------------------------------------------------------------- administrators


def _draw_host(dice: random.Random, _: Draft) -> Arguments:
    return {"host": dice.choice(HOSTS), "on": dice.random() < 0.5}


async def _set_host(cloud: SimulatedCloud, host: str, what: str, value: bool, asked: Any) -> ClientReply:
    """One change of one host."""
    return await apply_setting(cloud, watch_of(cloud).book.setting(host, what), value, f"{what}={value} {host}", asked)


async def apply_setting(cloud: SimulatedCloud, word: HostSetting, value: bool, told: str, asked: Any) -> ClientReply:
    """What is answered with 2xx holds from then on."""
    word.pending += 1
    try:
        reply: ClientReply = await asked
    finally:
        word.pending -= 1
    if 200 <= reply.status < 300:
        word.value, word.unsure = value, word.pending > 0
    elif reply.unknown:
        word.unsure = True
    watch_of(cloud).answered(told, reply)
    return reply


@order("service", 3, _draw_host)
async def service(cloud: SimulatedCloud, args: Arguments) -> None:
    """Disable a host, or enable it."""
    status = "disabled" if args["on"] else "enabled"
    asked = watch_of(cloud).admin.ask(
        "compute", "PUT", f"/os-services/{cloud.known.services[args['host']]}", {"status": status}
    )
    await _set_host(cloud, args["host"], "disabled", args["on"], asked)


@order("force_down", 1, _draw_host)
async def force_down(cloud: SimulatedCloud, args: Arguments) -> None:
    """Force a host down, or let it be up; `host of N`: the one that server N has claimed by then.

    The report may be false, except in plans with evacuations: there only `outage` makes it, for a machine that is off.
    """
    if cloud.evacuates and args["on"]:
        return
    await set_forced_down(cloud, named_host(cloud, args["host"]), on=args["on"])


def named_host(cloud: SimulatedCloud, name: str) -> str:
    """`host of N`: the host that server N has claimed; `left by N`: the one before that. One of all hosts, if it has none."""
    watch = watch_of(cloud)
    if name.startswith("host of "):
        return watch.host_of(int(name.removeprefix("host of "))) or HOSTS[0]
    if name.startswith("left by "):
        return watch.left_by(int(name.removeprefix("left by "))) or HOSTS[0]
    return name


async def set_forced_down(cloud: SimulatedCloud, host: str, *, on: bool) -> None:
    """An operator's statement."""
    path = f"/os-services/{cloud.known.services[host]}"
    if on:
        cloud.storage.declared_down.add(host)
    asked = watch_of(cloud).admin.ask("compute", "PUT", path, {"forced_down": on})
    await _set_host(cloud, host, "forced_down", on, asked)


@order("zone", 2, _draw_host)
async def zone(cloud: SimulatedCloud, args: Arguments) -> None:
    """Put a host into the aggregate of the second zone, or take it out."""
    action = "add_host" if args["on"] else "remove_host"
    asked = watch_of(cloud).admin.ask(
        "compute", "POST", f"/os-aggregates/{cloud.known.aggregate}/action", {action: {"host": args["host"]}}
    )
    await _set_host(cloud, args["host"], "zone", args["on"], asked)


@order("trait", 2, _draw_host)
async def trait(cloud: SimulatedCloud, args: Arguments) -> None:
    """Give a host the trait that the flavor `traited` requires, or take it away."""
    admin, path = watch_of(cloud).admin, f"/resource_providers/{cloud.known.providers[args['host']]}/traits"
    for _ in range(5):
        now = await admin.ask("placement", "GET", path)
        if now.status != 200:
            return
        kept = [each for each in now.body["traits"] if each != TRAIT]
        body = {
            "resource_provider_generation": now.body["resource_provider_generation"],
            "traits": [*kept, TRAIT] if args["on"] else kept,
        }
        reply = await _set_host(cloud, args["host"], "trait", args["on"], admin.ask("placement", "PUT", path, body))
        if reply.status != 409:
            return
        await asyncio.sleep(0.1)


def _draw_inventory(dice: random.Random, _: Draft) -> Arguments:
    return {"host": dice.choice(HOSTS), "reserved": dice.choice((0, 0, 1))}


@order("inventory", 1, _draw_inventory)
async def inventory(cloud: SimulatedCloud, args: Arguments) -> None:
    """Reserve a part of a host's processors."""
    watch = watch_of(cloud)
    path = f"/resource_providers/{cloud.known.providers[args['host']]}/inventories/VCPU"
    now = await watch.admin.ask("placement", "GET", path)
    if now.status != 200:
        return
    body = {**now.body, "reserved": args["reserved"]}
    reply = await watch.admin.ask("placement", "PUT", path, body)
    watch.answered(f"reserved={args['reserved']} {args['host']}", reply)


@order("stray_port", 1, a_server)
async def stray_port(cloud: SimulatedCloud, args: Arguments) -> None:
    """A user writes a server on a port of their own that was never attached to it."""
    watch = watch_of(cloud)
    booked = watch.book.of(args["server"])
    if booked.id:
        said = {"network_id": cloud.known.networks["private"], "device_id": booked.id, "device_owner": "compute:nova"}
        reply = await watch.demo.ask("network", "POST", "/ports", {"port": said})
        watch.answered(f"stray port of s{booked.ref}", reply)
