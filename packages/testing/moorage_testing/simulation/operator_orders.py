"""What operators order beside what users do: audits that repair, hosts that are drained, hosts whose approval is taken and given back;
and databases that fail over to a copy that is some seconds old, of which nobody tells the cloud.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from moorage.conductor.reconcilers.orphan_images import GRACE_S
from moorage_testing.simulation.life_scenes import begins, event
from moorage_testing.simulation.move_scenes import BUILT_S, lasts
from moorage_testing.simulation.orders import named_host, watch_of
from moorage_testing.simulation.plan import LATER_FAULTS, LATER_ORDERS, Arguments, Draft, Event, later_scene
from moorage_testing.simulation.restores import adopt
from moorage_testing.simulation.roles import RegionRole
from moorage_testing.simulation.scenes import CONDUCTORS

if TYPE_CHECKING:
    from moorage_testing.simulation.cloud import SimulatedCloud

STORES = ("region", "cell1", "cell2")


@LATER_ORDERS.add("audit", 1, lambda dice, _: {"repair": dice.random() < 0.8})
async def audit(cloud: "SimulatedCloud", args: Arguments) -> None:
    """An audit is asked for; whatever goes on meanwhile, it repairs nothing that is right: the rules at rest see to that."""
    watch = watch_of(cloud)
    reply = await watch.admin.ask("compute", "POST", "/ext/audits", {"audit": {"repair": args["repair"]}})
    watch.answered("an audit", reply)


@LATER_ORDERS.add("drain_host", 1, lambda dice, _: {"host": "host of 0"})
async def drain_host(cloud: "SimulatedCloud", args: Arguments) -> None:
    """A host is emptied: its servers are moved, and confirmed."""
    watch, host = watch_of(cloud), named_host(cloud, args["host"])
    for booked in watch.book.servers.values():
        booked.move_asked = True
        watch.resized(booked)
    body = {"drain": {"host": host, "partial": True}}
    reply = await watch.admin.ask("compute", "POST", "/ext/drains", body)
    watch.answered(f"drain {host}", reply)
    watch.book.setting(host, "disabled").unsure = True


@LATER_ORDERS.add("revoke_host", 1, lambda dice, _: {"host": "host of 0", "for_s": 20.0})
async def revoke_host(cloud: "SimulatedCloud", args: Arguments) -> None:
    """A host's approval is taken, and given back some time later."""
    watch, host = watch_of(cloud), named_host(cloud, args["host"])
    before = await watch.admin.ask("compute", "GET", f"/ext/host-approvals/{host}")
    if before.status != 200:
        return
    watch.answered(f"revoke {host}", await watch.admin.ask("compute", "DELETE", f"/ext/host-approvals/{host}"))
    await asyncio.sleep(args["for_s"])
    reply = await watch.admin.ask("compute", "PUT", f"/ext/host-approvals/{host}", {"approval": {}})
    watch.answered(f"approve {host}", reply)


@LATER_FAULTS.add("fail_over", 1, lambda dice, _: {"stores": ["region"], "age_s": 3.0})
async def fail_over(cloud: "SimulatedCloud", args: Arguments) -> None:
    """Databases are replaced by copies that are some seconds old, as when a standby takes over that had not received the last ones.

    Processes of the region lose their connections, and start again by themselves. `moorage db adopt` is run only where the databases
    themselves show that one of them is older, because nothing starts then.
    """
    if cloud.restores.begun:
        return
    cloud.restores.begun = True
    copies = {name: cloud.stores[name].dump() for name in args["stores"]}
    before = cloud.restores.turns()
    try:
        await asyncio.sleep(args["age_s"])
    except asyncio.CancelledError:  # they never fail over
        cloud.restores.begun = False
        raise
    roles = [each for each in cloud.roles.values() if isinstance(each, RegionRole)]
    for role in roles:
        role.wanted = False
        role.kill()
    cloud.restores.begin(before)
    cloud.trace.note("fault", f"{' and '.join(copies)} fail over to copies of {args['age_s']} s ago")
    for name, whole in copies.items():
        cloud.stores[name].become(whole)
    cloud.watch.listen()
    if cloud.restores.detects_restore():  # no process starts then, and an operator is told why
        await adopt(cloud)
    cloud.restores.done = True
    for role in roles:
        role.start()


@later_scene
def operators_act(dice: random.Random, draft: Draft) -> list[Event]:
    """Two servers live, and meanwhile an operator audits, drains or takes an approval back."""
    at_s = begins(dice)
    events: list[Event] = []
    for _ in range(2):
        draft.boots += 1
        events.append(event(at_s, "boot", server=draft.boots - 1, network="private"))
    first = draft.boots - 2
    moment_s = at_s + BUILT_S + 2.0
    acts: tuple[Callable[[float], Event], ...] = (
        lambda at: event(at, "attach", server=first, network="private"),
        lambda at: event(at, "attach_volume", server=first, volume=draft.volumes, goes=False),
        lambda at: event(at, "shelve", server=first),
        lambda at: event(at, "migrate", server=first, host=None),
        lambda at: event(at, "delete", server=first + 1),
    )
    events += [dice.choice(acts)(moment_s + dice.uniform(0.0, 6.0)) for _ in range(dice.choice((1, 2, 3)))]
    draft.volumes += 1
    events += [
        event(moment_s + dice.uniform(0.0, 10.0), "audit", repair=dice.random() < 0.8)
        for _ in range(dice.choice((1, 2)))
    ]
    if dice.random() < REVOKED:
        events.append(event(moment_s + dice.uniform(0.0, 8.0), "revoke_host", host=f"host of {first}", for_s=15.0))
    if dice.random() < DRAINS:
        events.append(event(moment_s + dice.uniform(0.0, 8.0), "drain_host", host=f"host of {first}"))
    lasts(draft, moment_s + 40.0)
    return events


DRAINS, REVOKED = 0.4, 0.1


@later_scene
def a_database_fails_over(dice: random.Random, draft: Draft) -> list[Event]:
    """A server moves, is shelved, or gets a volume, and seconds later a database has forgotten it."""
    at_s = begins(dice)
    draft.boots += 1
    server = draft.boots - 1
    moment_s = at_s + BUILT_S + 2.0
    what, args = dice.choice(
        (
            ("live_migrate", {"host": None}),
            ("migrate", {"host": None}),
            ("shelve", {}),
            ("attach_volume", {"volume": draft.volumes, "goes": False}),
        )
    )
    draft.volumes += what == "attach_volume"
    stores = dice.choice((["region"], ["cell1"], ["cell2"], list(STORES)))
    age_s = dice.uniform(2.0, 12.0)
    events = [event(at_s, "boot", server=server, network="private"), event(moment_s, what, server=server, **args)]
    if what == "live_migrate":  # a guest that is sent at once has arrived before a copy can be made in the middle of it
        pace = {"mib_per_s": 100.0, "dirty_mib_per_s": 0.0, "switch_s": dice.choice((0.0, 1.0)), "for_s": 10.0}
        events.append(event(moment_s - 0.5, "live_pace", host=f"host of {server}", **pace))
    copied_s = moment_s + dice.uniform(-1.0, 3.0)
    events.append(event(copied_s, "fail_over", stores=stores, age_s=round(age_s, 3)))
    lasts(draft, copied_s + age_s + 30.0)
    if what == "shelve" and dice.random() < IMAGES_LOOKED_THROUGH:
        again_s = copied_s + age_s + 40.0
        for look_s in (again_s, again_s + GRACE_S + 5.0):
            events += [event(look_s, "reconcile", role=role, name="stray_images") for role in CONDUCTORS]
        lasts(draft, again_s + GRACE_S + 10.0)
    return events


IMAGES_LOOKED_THROUGH = 0.5
"""Of the shelved ones: it goes on until an image that nobody needs is deleted."""

__all__ = ["a_database_fails_over", "operators_act"]
