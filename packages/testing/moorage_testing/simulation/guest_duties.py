"""What guests must have at rest of what was asked of them while they ran: their password, their crash dumps; and that they were still
while their volumes were copied, and no longer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.drivers.simulated_life import hashed
from moorage.model.ids import ServerId
from moorage.operations.steps.quiesce import STILL_FOR_S
from moorage_testing.simulation.known_exceptions import HOST_FAULTS, kinds_of
from moorage_testing.simulation.order_book import Booked
from moorage_testing.simulation.plan import SimulationPlan
from moorage_testing.simulation.roles import AgentRole

if TYPE_CHECKING:
    from moorage_testing.simulation.cloud import SimulatedCloud

DUMP = "trigger_crash_dump"
PROGRESS = "os-extended-snapshot-attributes:progress"
CHAIN_ENDS = frozenset({"detach_volume", "swap_volume"})
"""What a volume's chain of files does not outlive."""


def guest_of(cloud: "SimulatedCloud", server: str) -> SimulatedGuest | None:
    """The one on the host that the server shows; None: it is nowhere, or was moved meanwhile."""
    shown = cloud.watch.shown.get(server)
    if shown is None or shown["status"] == "ERROR":
        return None
    role = cloud.roles.get(shown["OS-EXT-SRV-ATTR:host"] or "")
    return role.driver.guest(ServerId(server)) if isinstance(role, AgentRole) and role.driver else None


async def wrong_guests(cloud: "SimulatedCloud", plan: SimulationPlan) -> list[str]:
    """Of servers whose guest is the one that was asked."""
    wrong: list[str] = []
    excepted = cloud.restores.excepted() | cloud.restores.touched
    for booked in cloud.watch.book.servers.values():
        guest = guest_of(cloud, booked.id)
        if guest is None or booked.anew or booked.reset or booked.id in excepted:
            continue
        wrong += _password(booked, guest)
        if booked.dumps:
            wrong += await _dumps(cloud, plan, booked, guest)
    return wrong


def _password(booked: Booked, guest: SimulatedGuest) -> list[str]:
    salt, _, hash_ = guest.password.partition("$")
    if not guest.password and not booked.password_set:
        return []
    if any(hashed(each, salt) == hash_ for each in booked.passwords):
        return []
    return [f"s{booked.ref} {booked.id} has a password ({guest.password[:24]}) that is none of {booked.passwords}"]


async def _dumps(cloud: "SimulatedCloud", plan: SimulationPlan, booked: Booked, guest: SimulatedGuest) -> list[str]:
    """Each that shows as done was made, and where no host fails none is made twice."""
    wrong: list[str] = []
    admin, path = cloud.watch.admin, f"/servers/{booked.id}/os-instance-actions"
    shown = await admin.ask("compute", "GET", path)
    done = 0
    for each in shown.body["instanceActions"] if shown.status == 200 else ():
        if each["action"] == DUMP:
            whole = await admin.ask("compute", "GET", f"{path}/{each['request_id']}")
            events = whole.body["instanceAction"]["events"]
            done += any(event["result"] == "Success" for event in events)
            if not all(event["finish_time"] for event in events):
                wrong.append(f"a crash dump of s{booked.ref} {booked.id} is not ended: {events}")
    if guest.dumps < done:
        wrong.append(f"s{booked.ref} {booked.id} shows {done} crash dumps, and its guest made {guest.dumps}")
    if guest.dumps > booked.dumps and not kinds_of(plan) & HOST_FAULTS:
        wrong.append(f"s{booked.ref} {booked.id} was asked for {booked.dumps} crash dumps, and made {guest.dumps}")
    return wrong


async def wrong_chains(cloud: "SimulatedCloud", plan: SimulationPlan) -> list[str]:
    """The guest writes to the file of each snapshot that its host took for the volume service, once; of no other."""
    book, wrong = cloud.watch.book, list[str]()
    excepted = cloud.restores.excepted() | cloud.restores.touched
    whole = not any(event.what in CHAIN_ENDS for event in plan.events)
    for snapshot, (ref, volume) in book.assisted.items():
        booked = book.of(ref)
        guest = guest_of(cloud, booked.id)
        if guest is None or booked.id in excepted:
            continue
        shown = await cloud.watch.admin.ask("volume", "GET", f"/snapshots/{snapshot}")
        shown_snapshot = shown.body["snapshot"] if shown.status == 200 else {}
        taken = [of for of, _ in guest.chains.get(volume, ())].count(snapshot)
        ready = shown_snapshot.get("status") == "creating" and shown_snapshot.get(PROGRESS) == "90%"
        if taken > 1 or (ready and not taken and whole and not booked.anew and snapshot not in book.dropped):
            wrong.append(f"snapshot {snapshot} of s{ref} {booked.id} was taken {taken} times: {shown_snapshot}")
        if shown_snapshot.get("status") == "creating" and not ready and not booked.delete_asked:
            wrong.append(f"nobody said what became of snapshot {snapshot} of s{ref} {booked.id}: {shown_snapshot}")
    return wrong


# ---------------------------------------------------------------------------------------------------- still guests


def still_too_long(cloud: "SimulatedCloud") -> list[str]:
    """Guests that are still longer than anybody who writes to a disk is to wait."""
    wrong: list[str] = []
    for host, server, why in cloud.copies.past():
        role = cloud.roles.get(host)
        if isinstance(role, AgentRole) and role.driver is not None and role.driver.is_frozen(server):
            cloud.violated(f"{server} on {host} is still for longer than {STILL_FOR_S:.0f} s, for {why}")
            wrong.append(f"{server} is still")
    return wrong


async def written_copies(cloud: "SimulatedCloud", _: SimulationPlan) -> list[str]:
    """Snapshots in whole images of servers whose image says that their guest must be still for it, and was not."""
    watch, wrong = cloud.watch, list[str]()
    for image, ref in watch.book.images.items():
        booked = watch.book.of(ref)
        if booked.quiesced:
            shown = await watch.admin.ask("image", "GET", f"/v2/images/{image}")
            if shown.status == 200 and shown.body["status"] == "active":
                wrong += cloud.copies.written_meanwhile(booked.id, copied(shown.body))
    return wrong


def copied(image: Mapping[str, Any]) -> list[str]:
    """The snapshots that it names."""
    devices: list[dict[str, Any]] = msgspec.json.decode(image.get("block_device_mapping", "[]"))
    return [each["snapshot_id"] for each in devices if each["snapshot_id"]]


__all__ = ["guest_of", "still_too_long", "written_copies", "wrong_chains", "wrong_guests"]
