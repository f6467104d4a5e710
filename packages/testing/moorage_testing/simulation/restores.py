"""One database is put back to what it was some seconds before, as docs/operating/restore.md describes; and what must hold after it.

Every process of the region is stopped, the database is restored, `moorage db adopt` is run until it has succeeded, and all start
again.  Somebody may try to start before: that is refused, where the databases can detect it.  What was ordered between the backup and
the restore is lost, or half known; it may be deleted, and then nothing of it is left.  What stood still all the time is as it was,
and no guest of it is ever destroyed.
"""

import asyncio
import random
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from moorage.conductor.audit.doubt_checks import BY_HAND
from moorage.conductor.audit.doubt_checks import KIND as DOUBTFUL
from moorage.main.adopt import adopt_opened
from moorage.main.databases import connect_databases
from moorage.model.errors import Conflict, Problem
from moorage.model.ids import ServerId
from moorage_testing.simulation.cloud import Role, SimulatedCloud
from moorage_testing.simulation.plan import FAULTS_BY_NAME, Arguments, Draft
from moorage_testing.simulation.roles import RegionRole

if TYPE_CHECKING:
    from moorage_testing.simulation.invariants import InvariantWatch

STORES = ("region", "cell1", "cell2")
AGAIN_S = 2.0
WRONG_FOR_S = 8.0
"""How long somebody tries to start what is not adopted."""
LEFT_ALONE = "is left alone until an administrator has decided"
DRAINED_S = 1.0
"""What was on its way to a database when its sender was stopped has come or is lost."""


class Turned(msgspec.Struct, frozen=True):
    """How far the operations of a server were."""

    seq: int
    operation: str | None


class Restores:
    """Of one simulation."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud
        self.begun = False
        self.done = False
        self.decided = False
        self.touched: set[str] = set()
        """Servers with an operation between a backup and its restore: what is known of them differs."""
        self.tidied: set[str] = set()
        """Those that were deleted after it; that a server can be restored is known by its cell alone, which may have forgotten it."""
        self.by_hand: set[str] = set()
        """Doubtful servers about which an audit says that a person must decide by hand: nothing may be done to them, and nobody can delete them."""
        self.audits: dict[str, str] = {}
        """Doubtful server → the audit that was asked to settle it."""
        self.protected: dict[str, str] = {}
        """Server → the host whose guest of it nobody may destroy."""
        self.disks: dict[str, str] = {}
        """Server → the image that is all that is left of its disk."""

    # ------------------------------------------------------------------------------------------------- looks

    def turns(self) -> dict[str, Turned]:
        """Of every server that the region knows."""
        rows = self._cloud.stores["region"].raw.execute("SELECT id, op_seq, operation FROM servers")
        return {row[0]: Turned(row[1], row[2]) for row in rows}

    def missing(self) -> set[str]:
        """Servers that the region has in a cell whose database has no record of them."""
        region = self._cloud.stores["region"].raw
        found: set[str] = set()
        for cell in self._cloud.config.cells:
            placed = region.execute(
                "SELECT id FROM servers WHERE cell = ? AND doc IS NULL AND deleted_at IS NULL", (cell.name,)
            )
            there = {row[0] for row in self._cloud.stores[cell.name].raw.execute("SELECT id FROM servers")}
            found |= {row[0] for row in placed} - there
        return found

    def lost(self) -> set[str]:
        """Servers that were promised or have a guest, and of which no database knows."""
        known = set(self.turns())
        watch: InvariantWatch = self._cloud.watch
        ordered = {each.id for each in watch.book.servers.values() if each.id}
        return (ordered | set(self._cloud.guests)) - known

    def detects_restore(self) -> bool:
        """Whether one of the databases is older than another remembers it."""
        region = self._cloud.stores["region"].raw
        (mark,) = region.execute("SELECT mark FROM store_identity").fetchone()
        remembered = dict(region.execute("SELECT cell, mark FROM known_cells"))
        for cell in self._cloud.config.cells:
            its, of_region = (
                self._cloud.stores[cell.name].raw.execute("SELECT mark, region_mark FROM store_identity").fetchone()
            )
            if its < remembered.get(cell.name, 0) or mark < of_region:
                return True
        return False

    def standing(self) -> dict[str, str]:
        """Server → the host of its only guest, of those that are there and that no operation holds."""
        found: dict[str, str] = {}
        watch: InvariantWatch = self._cloud.watch
        free = {server for server, turned in self.turns().items() if turned.operation is None}
        wanted = {each.id for each in watch.book.servers.values() if each.id and not each.delete_asked}
        for cell in self._cloud.config.cells:
            rows = self._cloud.stores[cell.name].raw.execute(
                "SELECT id, host FROM servers WHERE deleted_at IS NULL AND NOT hidden"
            )
            for server, host in rows:
                guests = self._cloud.guests.get(ServerId(server), {})
                if server in free & wanted and list(guests) == [host]:
                    found[server] = host
        return found

    # ------------------------------------------------------------------------------------------------- invariants

    def gone(self, host: str, server: str) -> None:
        """Called for every guest that was destroyed. A server that moves leaves one guest behind, and never its only one."""
        watch: InvariantWatch = self._cloud.watch
        elsewhere = bool(self._cloud.guests.get(ServerId(server)))
        asked = any(
            each.id == server and (each.delete_asked or each.leave_asked or (each.move_asked and elsewhere))
            for each in watch.book.servers.values()
        )
        if self.protected.get(server) == host and not asked:
            self._cloud.violated(f"the guest of {server} on {host} was destroyed, and nobody had asked for it")

    def shelved(self) -> dict[str, str]:
        """Server → its image, of those that have no guest any more and that no operation holds."""
        found: dict[str, str] = {}
        free = {server for server, turned in self.turns().items() if turned.operation is None}
        for cell in self._cloud.config.cells:
            rows = self._cloud.stores[cell.name].raw.execute(
                "SELECT id, doc FROM servers WHERE vm_state = 'shelved_offloaded' AND deleted_at IS NULL AND NOT hidden"
            )
            for server, doc in rows:
                shelved = msgspec.json.decode(doc).get("shelved")
                if server in free and shelved is not None and shelved.get("image"):
                    found[server] = shelved["image"]
        return found

    def disks_lost(self) -> list[str]:
        """Shelved servers whose images are gone, and nobody had asked for it."""
        watch: InvariantWatch = self._cloud.watch
        left = dict(self._cloud.stores["image"].raw.execute("SELECT id, status FROM image_images"))
        asked = {each.id for each in watch.book.servers.values() if each.delete_asked or each.return_asked}
        return [
            f"image {image}, the only disk of {server}, is {left.get(image, 'gone')}"
            for server, image in sorted(self.disks.items())
            if server not in asked and left.get(image) != "active"
        ]

    def begin(self, before: dict[str, Turned]) -> None:
        """The database is about to be put back to when this was `turns`."""
        self.protected |= self.standing()
        self.disks |= self.shelved()
        now = self.turns()
        self.touched |= {server for server in {*before, *now} if before.get(server) != now.get(server)}
        self.touched |= {server for server, turned in {**before, **now}.items() if turned.operation is not None}

    def excepted(self) -> set[str]:
        """Servers of which nothing is compared: nothing can repair what no database knows, or its cell has lost; and their moves."""
        servers = self.missing() | self.lost() | self.by_hand if self.done else set()
        return servers | self._moves_of(servers) if servers else servers

    def _moves_of(self, servers: set[str]) -> set[str]:
        """What moves of them hold stays, as their claims do."""
        read = "SELECT c.uuid, o.server FROM consumers c JOIN operations o ON o.id = c.operation"
        return {move for move, server in self._cloud.stores["region"].raw.execute(read) if server in servers}


# ----------------------------------------------------------------------------------------------------- the procedure


def _draw_restore(dice: random.Random, _: Draft) -> Arguments:
    return {"store": dice.choice(STORES), "age_s": round(dice.uniform(2.0, 25.0), 3), "wrong": dice.random() < 0.5}


@FAULTS_BY_NAME.add("restore", 2, _draw_restore)
async def restore(cloud: SimulatedCloud, args: Arguments) -> None:
    """A backup is made, and restored some seconds later; `wrong`: somebody starts the processes before it was adopted."""
    if cloud.restores.begun:
        return
    cloud.restores.begun = True
    store = cloud.stores[args["store"]]
    cloud.trace.note("fault", f"a backup of {store.name} is made")
    whole, before = store.dump(), cloud.restores.turns()
    try:
        await asyncio.sleep(args["age_s"])
    except asyncio.CancelledError:  # it is never restored
        cloud.restores.begun = False
        raise
    cloud.work = asyncio.ensure_future(_restored(cloud, args, whole, before))
    await asyncio.shield(cloud.work)  # once begun it is finished, whatever else ends


async def _restored(cloud: SimulatedCloud, args: Arguments, whole: bytes, before: dict[str, Turned]) -> None:
    store, roles = cloud.stores[args["store"]], [each for each in cloud.roles.values() if isinstance(each, RegionRole)]
    await _stop(roles)
    await asyncio.sleep(DRAINED_S)
    cloud.restores.begin(before)
    cloud.trace.note("fault", f"the {store.name} database is put back by {args['age_s']} s")
    store.become(whole)
    cloud.watch.listen()
    if args["wrong"] and cloud.restores.detects_restore():
        await _start_too_early(cloud, roles)
    await adopt(cloud)
    cloud.restores.done = True
    for role in roles:
        role.barred = False
        role.start()


async def _stop(roles: Collection[Role]) -> None:
    for role in roles:
        role.barred = True
    await asyncio.gather(*(role.stop() for role in roles))


async def _start_too_early(cloud: SimulatedCloud, roles: Collection[Role]) -> None:
    """Each is refused, where every database answers."""
    cloud.trace.note("fault", "somebody starts before it is adopted")
    for role in roles:
        role.barred = False
        role.start()
    well = True
    for _ in range(int(WRONG_FOR_S)):
        well = well and all(store.serves(role.name) for store in cloud.stores.values() for role in roles)
        await asyncio.sleep(1.0)
        if not well:
            break
        for role in roles:
            if role.ready:
                cloud.violated(f"{role.name} serves with a database that was restored and not adopted")
    await _stop(roles)
    await asyncio.sleep(DRAINED_S)


async def adopt(cloud: SimulatedCloud) -> None:
    """Until it has succeeded: a conductor that was killed counts for the rest of its lease, and databases may be out."""
    while True:
        try:
            said = await adopt_opened(await connect_databases(cloud.config, opened=cloud.connected))
        except (Problem, Conflict) as failure:
            cloud.trace.note("adopt", f"not yet: {failure}")
            await asyncio.sleep(AGAIN_S)
        else:
            for line in said:
                cloud.trace.note("adopt", line)
            return


# ----------------------------------------------------------------------------------------------------- after it


async def tidy_up(cloud: SimulatedCloud) -> bool:
    """What an administrator does at last: servers that were changed since the backup are deleted, and nothing of them is left.

    False: to be called again, because one of them could not be deleted yet.
    """
    watch: InvariantWatch = cloud.watch
    for each in cloud.restores.disks_lost():
        cloud.violated(each)
    excepted = cloud.restores.excepted()
    for booked in watch.book.servers.values():
        again = booked.id not in cloud.restores.tidied if cloud.config.compute.reclaim_instance_interval else False
        if booked.id in cloud.restores.touched - excepted and (again or not booked.deleted):
            booked.delete_asked = True
            reply = await watch.admin.ask("compute", "DELETE", f"/servers/{booked.id}")
            watch.answered(f"delete s{booked.ref}, which was changed since the backup", reply)
            booked.deleted = reply.status in {204, 404}
            if booked.deleted:
                cloud.restores.tidied.add(booked.id)
            elif not (LEFT_ALONE in str(reply.body) and await _settle(cloud, booked.id)):
                return False
    return True


async def decide_stuck(cloud: SimulatedCloud) -> None:
    """Operations that went further than their journals say wait for an administrator, who stops every process and adopts, once.

    What is stuck then is decided by hand: nothing of its server is compared.
    """
    restores, left = cloud.restores, cloud.watch.unended()
    if not restores.done or not left or not all(LEFT_ALONE in each for each in left):
        return
    if restores.decided:
        restores.by_hand |= cloud.watch.stuck_servers()
        return
    restores.decided = True
    cloud.trace.note("adopt", f"an administrator decides: {left[0]}")
    roles = [each for each in cloud.roles.values() if isinstance(each, RegionRole)]
    await _stop(roles)
    await asyncio.sleep(DRAINED_S)
    await adopt(cloud)
    for role in roles:
        role.barred = False
        role.start()


async def _settle(cloud: SimulatedCloud, server: str) -> bool:
    """What restore.md says of a doubtful server: an audit is asked to settle it. True: it says that only a person can decide."""
    admin, restores = cloud.watch.admin, cloud.restores
    if (known := restores.audits.get(server)) is None:
        wanted = {"kinds": [DOUBTFUL], "servers": [server], "repair": True}
        reply = await admin.ask("compute", "POST", "/ext/audits", {"audit": wanted})
        if reply.status == 202:
            restores.audits[server] = reply.body["audit"]["id"]
        return False
    shown = await admin.ask("compute", "GET", f"/ext/audits/{known}")
    if shown.status != 200 or shown.body["audit"]["status"] in {"waiting", "running"}:
        return False
    del restores.audits[server]
    findings = [each for each in shown.body["audit"]["findings"] if each["server"] == server]
    if not any(BY_HAND in each["repair"] for each in findings):
        return False  # it was settled, or the audit is asked again
    cloud.trace.note("audit", f"{server} is decided by hand: {findings[0]['expected']}; {findings[0]['found']}")
    restores.by_hand.add(server)
    return True
