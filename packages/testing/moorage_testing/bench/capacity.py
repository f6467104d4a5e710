"""What fits on 10,000 hosts of 64 segments, and whether each of 100 racks may fail: time and memory (N8).

Of hosts, segments and servers that dice fill to different heights; counted in memory, by the functions that the API and the command use.
"""

import random
import time
from pathlib import Path

import msgspec
import numpy as np

from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.resident import Resident
from moorage.model.world import Ask, NicRequirement, World
from moorage.model.world_snapshot import (
    AggregatePhoto,
    Amount,
    DevicePhoto,
    HostPhoto,
    SegmentPhoto,
    WorldSnapshot,
    world_of,
)
from moorage.scheduler.capacity import answer, count
from moorage.scheduler.failover import Residents, fail
from moorage.scheduler.profile import Profile
from moorage_testing.bench.table import BenchRow, Table

HOSTS, SEGMENTS, RACKS, SERVERS_PER_HOST = 10_000, 64, 100, 10
CAPACITY_S, FAILOVER_S, MEMORY_MIB = 1.0, 30.0, 100.0
EGRESS, INGRESS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"
KBPS = 10_000_000
GUARANTEE = {EGRESS: 500_000, INGRESS: 500_000}
FLAVORS = tuple({"VCPU": n, "MEMORY_MB": n * 3_500, "DISK_GB": 20} for n in (1, 2, 4, 6, 8))
SEED = 8


def fleet() -> World:
    """Empty hosts with two uplinks each, every 156 of them on a segment, every 100 in a rack."""
    wired: dict[int, list[HostId]] = {}
    for number in range(HOSTS):
        wired.setdefault(number * SEGMENTS // HOSTS, []).append(HostId(f"h{number}"))
    per_rack = HOSTS // RACKS
    return world_of(
        WorldSnapshot(
            hosts=tuple(map(_host, range(HOSTS))),
            segments=tuple(
                SegmentPhoto(ProviderId(f"s{at}"), f"s{at}", 3_000, 4_000, tuple(hosts)) for at, hosts in wired.items()
            ),
            aggregates=tuple(
                AggregatePhoto(f"rack{at}", {}, tuple(HostId(f"h{at * per_rack + n}") for n in range(per_rack)))
                for at in range(RACKS)
            ),
        )
    )


def _host(number: int) -> HostPhoto:
    name = f"h{number}"
    uplinks = tuple(
        DevicePhoto(
            ProviderId(f"{name}:eth{at}"),
            f"{name}:eth{at}",
            ProviderId(name),
            {EGRESS: Amount(KBPS, KBPS), INGRESS: Amount(KBPS, KBPS)},
            ("CUSTOM_PHYSNET_P", "CUSTOM_VNIC_TYPE_NORMAL"),
        )
        for at in range(2)
    )
    amounts = {"VCPU": Amount(64, 64), "MEMORY_MB": Amount(262_144, 262_144), "DISK_GB": Amount(1_000, 1_000)}
    return HostPhoto(
        id=HostId(name), name=name, node=name, cell=CellId(f"cell{number % 4}"), zone=f"z{number % 3}",
        amounts=amounts, physnets=("p",), devices=uplinks,
    )  # fmt: skip


def populated(world: World) -> list[Resident]:
    """Ten servers on each host, half of them with a guarantee, taken from what is free."""
    dice, residents = random.Random(SEED), list[Resident]()
    segments = tuple(world.segments)
    of_host = {slot: id for id, each in world.segments.items() for slot in np.flatnonzero(each.wired).tolist()}
    for slot, host in enumerate(world.host_ids):
        for number in range(SERVERS_PER_HOST):
            amounts = dice.choice(FLAVORS)
            groups = (
                (RequestGroup(f"p{slot}-{number}", GUARANTEE, ("CUSTOM_PHYSNET_P",), port="p"),) if number % 2 else ()
            )
            for name, amount in amounts.items():
                world.free[name][slot] -= amount
            for group in groups:
                device = dice.choice(world.nested.below[host])
                for name, amount in group.resources.items():
                    world.nested.free[name][device] -= amount
            own = of_host[slot]
            stays = Ask(resources=amounts, nics=(NicRequirement("r", (own,), 0),), groups=groups, leaves=host)
            goes = msgspec.structs.replace(
                stays, nics=(NicRequirement("r", tuple(each for each in segments if each != own)),)
            )
            residents.append(Resident(f"v{slot}-{number}", host, (own,), (stays, goes)))
    return residents


def capacity(table: Table) -> None:
    world, profile = fleet(), Profile()
    residents = Residents(populated(world))
    before = _resident_mib()
    ask = Ask(
        resources=FLAVORS[1],
        nics=(NicRequirement("routed", tuple(world.segments)), NicRequirement("guaranteed", physnets=("p",))),
        groups=(RequestGroup("p", GUARANTEE, ("CUSTOM_PHYSNET_P", "CUSTOM_VNIC_TYPE_NORMAL"), port="p"),),
    )
    began = time.perf_counter()
    result = answer(count(ask, world, profile))
    took = time.perf_counter() - began
    note = f"{result.fits:,} fit; runs out first: {', '.join(result.binds)}"
    name = f"what fits on {HOSTS:,} hosts × {SEGMENTS} segments, routed and guaranteed"
    table.add(BenchRow(name, took, "s", CAPACITY_S, note=note))
    began, spent = time.perf_counter(), time.process_time()
    failures = [fail(world, "aggregate", f"rack{at}", residents, profile) for at in range(RACKS)]
    took, spent = time.perf_counter() - began, time.process_time() - spent
    servers, placed = sum(each.servers for each in failures), sum(each.placed for each in failures)
    note = f"{spent:.1f} s CPU; {placed:,} of {servers:,} servers find a place"
    table.add(BenchRow(f"  each of {RACKS} racks fails", took, "s", FAILOVER_S, note=note))
    table.add(BenchRow("  memory at its highest, more than the fleet's", _highest_mib() - before, "MiB", MEMORY_MIB))


def _resident_mib() -> float:
    return _status("VmRSS")


def _highest_mib() -> float:
    return _status("VmHWM")


def _status(name: str) -> float:
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(name))
    return int(line.split()[1]) / 1024
