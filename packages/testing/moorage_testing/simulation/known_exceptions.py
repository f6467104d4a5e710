"""Whether a server that ended in ERROR had a reason to: an outage is none, nor is what an earlier fault left behind."""

import re

from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.plan import Event, SimulationPlan

HOST_FAULTS = frozenset(
    {
        "host",
        "kill",
        "freeze",
        "restart",
        "upgrade",
        "power_cut",
        "bus_cut",
        "bus_weather",
        "twin",
        "outage",
        "lost_answer",
        "revoke_host",
    }
)
ADMINISTRATORS = frozenset({"service", "force_down", "zone", "trait", "inventory", "drain_host"})
NEIGHBOURS = frozenset({"neighbour"})
SCARCE = frozenset({"routed", "assured", "direct", "guaranteed", "two"})
"""Networks on which addresses, devices or bandwidth may run out."""
BOOTS_THAT_FIT = 8
"""Of the smallest flavor, on two of the four hosts."""

EXCUSES: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (re.compile(r"(?i)not been heard of|did not answer in time|the host|proves that its guests"), HOST_FAULTS),
    (re.compile(r"(?i)volume"), frozenset({"at_volume_service"})),
    (re.compile(r"(?i)port|network|address|image|identity|service"), NEIGHBOURS | HOST_FAULTS),
)
"""What a fault's sentence is about, and which events may have led to it. A database that is out is no excuse: who needs it waits."""
NO_HOST = re.compile(r"(?i)no valid host|no host")


def kinds_of(plan: SimulationPlan) -> set[str]:
    """What happens in it; a process that is no host's may die or freeze without harm to hosts."""
    roles = ("kill", "freeze", "restart", "bus_cut")
    return {
        event.what
        for event in plan.events
        if event.what not in roles or str(event.args.get("role", "")).startswith("host")
    }


def excused(plan: SimulationPlan, message: str, network: str, flavor: str, zone: str) -> bool:
    """Whether something in the plan may have led to this."""
    kinds = kinds_of(plan)
    if NO_HOST.search(message):
        boots = sum(event.what == "boot" for event in plan.events)
        scarce = network in SCARCE or flavor != "nano" or boots > BOOTS_THAT_FIT
        return scarce or bool(kinds & (ADMINISTRATORS | HOST_FAULTS))
    return any(pattern.search(message) and kinds & may for pattern, may in EXCUSES)


async def without_excuse(cloud: SimulatedCloud, plan: SimulationPlan) -> list[str]:
    """Servers in ERROR for which nothing in the plan is a reason."""
    watch, wrong = cloud.watch, list[str]()
    asked = {event.args["server"]: event for event in plan.events if event.what == "boot"}
    for booked in watch.book.servers.values():
        if not booked.id or booked.delete_asked or booked.reset:
            continue
        shown = await watch.admin.ask("compute", "GET", f"/servers/{booked.id}")
        if shown.status != 200 or shown.body["server"]["status"] != "ERROR":
            continue
        said: str = shown.body["server"].get("fault", {}).get("message", "")
        cloud.trace.note("error", f"s{booked.ref}: {said}")
        boot: Event | None = asked.get(booked.ref)
        args = {} if boot is None else boot.args
        if not excused(plan, said, args.get("network", ""), args.get("flavor", "nano"), args.get("zone", "")):
            wrong.append(f"s{booked.ref} {booked.id} ended in ERROR, and nothing that happened is a reason: {said}")
    return wrong


async def lost_interfaces(cloud: SimulatedCloud, plan: SimulationPlan) -> list[str]:
    """Interfaces that were attached, and are gone though nobody detached them and nothing failed."""
    harmless = {"boot", "attach", "stray_port", "reconcile", "power", "delete", *ADMINISTRATORS}
    if not all(_is_slow(event) or event.what in harmless for event in plan.events):
        return []
    watch, wrong = cloud.watch, list[str]()
    for booked in watch.book.servers.values():
        if booked.attached and not booked.delete_asked:
            shown = await watch.admin.ask("network", "GET", "/ports", device_id=booked.id)
            ports = {each["id"] for each in shown.body["ports"]} if shown.status == 200 else booked.attached
            wrong += [f"s{booked.ref} {booked.id} lost its interface {each}" for each in booked.attached - ports]
    return wrong


async def lost_images(cloud: SimulatedCloud, plan: SimulationPlan) -> list[str]:
    """Images that were accepted, and are not whole though their server was not deleted and nothing failed that makes them."""
    if kinds_of(plan) & (HOST_FAULTS | NEIGHBOURS | {"restore"}):
        return []
    watch, wrong = cloud.watch, list[str]()
    for image, ref in watch.book.images.items():
        if not watch.book.of(ref).delete_asked:
            shown = await watch.admin.ask("image", "GET", f"/v2/images/{image}")
            status = shown.body["status"] if shown.status == 200 else shown.status
            if status != "active":
                wrong.append(f"image {image} of s{ref} was accepted, and is {status}")
    return wrong


def _is_slow(event: Event) -> bool:
    return event.what == "neighbour" and event.args.get("trouble") == "slow"
