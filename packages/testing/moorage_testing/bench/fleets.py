"""How many servers a fleet holds: spreading, packing and weighing the network, each given the same orders in the same order (N17).

Counted in memory, without databases: the numbers are the same on every machine.  The fleets are those where the order of
placement matters: what one server takes without need, another one lacks.
"""

import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.world import Ask, NicRequirement
from moorage.model.world_snapshot import Amount, DevicePhoto, HostPhoto, SegmentPhoto, WorldSnapshot, world_of
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.trial import Trial
from moorage_testing.bench.table import BenchRow, Table

NETWORK = ("segment_addresses", "last_addresses", "bandwidth")
COMPUTE = ("ram", "cpu", "disk")
SPREAD: Mapping[str, float] = dict.fromkeys(NETWORK, 0.0)
PACK: Mapping[str, float] = {**SPREAD, **dict.fromkeys(COMPUTE, -1.0)}
NETWORK_AWARE: Mapping[str, float] = {}
"""What is configured where nobody says otherwise."""

BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
HOSTS = 100
SEED = 7


class BenchFleet(NamedTuple):
    """Hosts, and what is ordered of them."""

    name: str
    photo: WorldSnapshot
    asks: tuple[Ask, ...]


def _host(number: int, vcpus: int, devices: tuple[DevicePhoto, ...] = ()) -> HostPhoto:
    amounts = {"VCPU": Amount(vcpus, vcpus), "MEMORY_MB": Amount(vcpus * 4096, vcpus * 4096)}
    name = f"host{number:04}"
    return HostPhoto(
        id=HostId(name), name=name, node=name, cell=CellId("cell1"), zone="nova", amounts=amounts, devices=devices
    )


def _size(vcpus: int) -> dict[str, int]:
    return {"VCPU": vcpus, "MEMORY_MB": vcpus * 4096}


def routed(hosts: int, seed: int) -> BenchFleet:
    """A routed network of two segments: one of them has few addresses, and a part of the servers needs it."""
    draw = random.Random(seed)
    scarce, ample = ProviderId("scarce"), ProviderId("ample")
    made = [_host(n, 16) for n in range(hosts)]
    few, many = hosts * 2, hosts * 12
    wires = {scarce: tuple(each.id for each in made[1::2]), ample: tuple(each.id for each in made[::2])}
    segments = (
        SegmentPhoto(scarce, "scarce", few, few, wires[scarce]),
        SegmentPhoto(ample, "ample", many, many, wires[ample]),
    )
    asks: list[Ask] = []
    for number in range(hosts * 6):
        bound = draw.random() < 0.3
        nic = NicRequirement("routed", (scarce,) if bound else (scarce, ample))
        asks.append(Ask(resources=_size(1), nics=(nic,), seed=number))
    return BenchFleet(
        "a routed network, one segment with few addresses",
        WorldSnapshot(hosts=tuple(made), segments=segments),
        tuple(asks),
    )


def guaranteed(hosts: int, seed: int) -> BenchFleet:
    """Half of the hosts have bandwidth to guarantee; as many servers ask for some as there is room for, the others for none."""
    draw = random.Random(seed)

    def card(n: int) -> tuple[DevicePhoto, ...]:
        amounts = {BANDWIDTH: Amount(10_000_000, 10_000_000)}
        return (DevicePhoto(ProviderId(f"card{n:04}"), f"card{n:04}", ProviderId(f"host{n:04}"), amounts),)

    made = [_host(n, 16, card(n) if n % 2 else ()) for n in range(hosts)]
    asks: list[Ask] = []
    for number in range(hosts * 8):
        groups = (RequestGroup("port", {BANDWIDTH: 1_250_000}, port="port"),) if draw.random() < 0.45 else ()
        asks.append(Ask(resources=_size(2), groups=groups, seed=number))
    return BenchFleet("guarantees of bandwidth on half of the hosts", WorldSnapshot(hosts=tuple(made)), tuple(asks))


FLEETS = (routed, guaranteed)


def placed(fleet: BenchFleet, multipliers: Mapping[str, float]) -> int:
    """How many of the servers find a host; who finds none is turned away, and the next one comes."""
    profile = Profile(best=1, placed=1, misses=0)
    trial = Trial(world_of(fleet.photo), partial(rank, profile=profile.weighing(multipliers)))
    return sum(bool(trial.place(ask).best) for ask in fleet.asks)


def compared(hosts: int, seed: int = SEED) -> Iterator[tuple[BenchFleet, dict[str, int]]]:
    """Every fleet, and what each way places on it."""
    for made in FLEETS:
        fleet = made(hosts, seed)
        ways = {"spread": SPREAD, "pack": PACK, "network": NETWORK_AWARE}
        yield fleet, {name: placed(fleet, multipliers) for name, multipliers in ways.items()}


def fleets(table: Table) -> None:
    for fleet, found in compared(HOSTS):
        best = max(found["spread"], found["pack"])
        note = f"of {len(fleet.asks)}; by spreading {found['spread']}, by packing {found['pack']}"
        table.add(
            BenchRow(f"{fleet.name}: placed", found["network"], "", best + 1, "at least", counting=True, note=note)
        )
