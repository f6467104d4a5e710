"""Checks progress: conductors come back after every outage, and no request is repeated without a pause."""

import asyncio

from moorage.bus.host_silence import BUS_GRACE_S
from moorage.conductor.bus_reach import OTHERS_NOTICE_S
from moorage.conductor.worker import Conductor
from moorage.model.ids import ServerId
from moorage_testing.simulation.bus import NOTICED_S, Weather
from moorage_testing.simulation.cloud import Role, SimulatedCloud
from moorage_testing.simulation.plan import HOSTS
from moorage_testing.simulation.roles import ConductorRole
from moorage_testing.simulation.storage import writers_text

LOOK_EVERY_S = 1.0
SLACK_S = 5.0
"""In addition to a lease and a renewal period: a request that was under way when the outage ended, and its time-out."""

GUEST_OFF_S = 5.0
"""After an agent can act again: it asks, waits a second for the answer, and switches off what does not count yet."""
TROUBLED_OFF_S = 25.0
"""With a hypervisor that fails, hangs or takes its time."""


async def watch_guests(cloud: SimulatedCloud) -> None:
    """A guest that runs twice, because one host could not be reached, is off soon after its agent can act, reachable or not."""
    since: dict[ServerId, float] = {}
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        for server in list(cloud.guests):
            hosts = cloud.run_twice(server)
            if not hosts or not all(cloud.acts(each) for each in hosts):
                since.pop(server, None)
                continue
            most_s = GUEST_OFF_S if all(cloud.is_well(each) for each in hosts) else TROUBLED_OFF_S
            if cloud.loop.now - since.setdefault(server, cloud.loop.now) > most_s:
                cloud.violated(f"two guests of {server} run, and their hosts could stop one: {' and '.join(hosts)}")


async def watch_volumes(cloud: SimulatedCloud) -> None:
    """A volume that two servers write to, because one host could not be reached, has one writer soon after it can be."""
    since: dict[str, float] = {}
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        now = cloud.storage.written_twice()
        since = {volume: since.get(volume, cloud.loop.now) for volume in now}
        for volume, writers in now.items():
            hosts = [host for host, _ in writers]
            if not all(cloud.acts(each) for each in hosts):
                since[volume] = cloud.loop.now
                continue
            most_s = GUEST_OFF_S if all(cloud.is_well(each) for each in hosts) else TROUBLED_OFF_S
            if cloud.loop.now - since[volume] > most_s:
                cloud.violated(
                    f"volume {volume} has two writers, and their hosts could stop one: {writers_text(writers)}"
                )


ORDER_ENDS_S = 75.0
"""The time in which another conductor has taken it over and ended it, where hosts, databases and services are well."""


async def watch_orders(cloud: SimulatedCloud) -> None:
    """An order ends, although a conductor does not reach the bus, as long as another one is well and nothing else is wrong."""
    since: dict[str, float] = {}
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        conductors = [each for each in cloud.roles.values() if isinstance(each, ConductorRole)]
        cut = [each for each in conductors if each.name in cloud.hub.cut]
        well = [each for each in conductors if each not in cut and each.ready]
        alone = set(cloud.hub.cut) == {each.name for each in cut} and cloud.hub.down_since is None
        quiet = alone and cloud.hub.weather == Weather() and all(cloud.acts(host) for host in HOSTS)
        served = all(store.serves(each.name) for store in cloud.stores.values() for each in conductors)
        if not (cut and well and quiet and served):
            since.clear()
            continue
        waiting = cloud.watch.unended()
        since = {each: since.get(each, cloud.loop.now) for each in waiting}
        for each, from_s in since.items():
            if cloud.loop.now - from_s > ORDER_ENDS_S:
                cloud.violated(f"{each} since {ORDER_ENDS_S:.0f} s, though {well[0].name} is well")


async def watch_conductors(cloud: SimulatedCloud) -> None:
    """A conductor is alive one lease and one beat after it was started, thawed, or could reach the region's database again.

    One that does not reach the bus is not alive while another one, which is alive, does: it leaves its operations to that one.
    """
    compute = cloud.config.compute
    # A request that hung is given up after half a lease, then there is a pause of at most half a beat before the next.
    back_s = compute.lease_s * 1.5 + compute.lease_beat_s * 1.5 + SLACK_S
    left_s = NOTICED_S + BUS_GRACE_S + OTHERS_NOTICE_S + compute.lease_beat_s * 1.5 + compute.lease_s / 2 + SLACK_S
    since: dict[tuple[str, bool], float] = {}
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        now = cloud.loop.now
        able = {role: conductor for role in cloud.roles.values() if (conductor := _able_conductor(cloud, role))}
        reaching = {role for role, conductor in able.items() if conductor.alive and cloud.hub.reaches(role.process)}
        wrong: set[tuple[str, bool]] = set()
        for role, conductor in able.items():
            is_worse_placed = bool(reaching - {role}) and not cloud.hub.reaches(role.process)
            if conductor.alive is is_worse_placed:
                wrong.add((role.name, is_worse_placed))
        since = {each: since.get(each, now) for each in wrong}
        for (name, is_worse_placed), began in since.items():
            if now - began > (left_s if is_worse_placed else back_s):
                cloud.violated(
                    f"{name} keeps its lease without the bus for {left_s:.0f} s, although another conductor reaches it"
                    if is_worse_placed
                    else f"{name} is not alive {back_s:.0f} s after it could have been"
                )
        for store in cloud.stores.values():
            for key in sorted(store.busy):
                cloud.violated(f"the {store.name} database is asked without a pause: {key}")


def _able_conductor(cloud: SimulatedCloud, role: Role) -> Conductor | None:
    """The conductor of a process that runs, and reaches the region's database."""
    if not isinstance(role, ConductorRole) or role.region is None or not role.ready:
        return None
    process = role.process
    able = process is not None and not process.frozen and cloud.stores["region"].serves(role.name)
    return role.region.conductor if able else None
