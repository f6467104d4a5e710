"""Builds the world of an invented fleet. Its servers are where the file says, or where the scheduler places them."""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from moorage.model.errors import Invalid
from moorage.model.fleet import SERVERS_MAX, Fleet, FleetHosts, FleetNetwork, FleetServers, names_of
from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.network_providers import BANDWIDTH, physnet_trait, vnic_trait
from moorage.model.request_groups import RequestGroup
from moorage.model.resident import Resident
from moorage.model.world import Ask, Choice, GroupAsk, NicRequirement, World
from moorage.model.world_snapshot import (
    AggregatePhoto,
    Amount,
    DevicePhoto,
    HostPhoto,
    SegmentPhoto,
    WorldSnapshot,
    world_of,
)
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.trial import Trial

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Reports progress: how many are done, of how many."""


class BuiltWorld(NamedTuple):
    world: World
    residents: tuple[Resident, ...]


def build(fleet: Fleet, profile: Profile, progress: Progress = lambda done, of: None) -> BuiltWorld:
    """Build the world of a fleet file. Raises Invalid when a server does not fit on the host that the file names, or on any host."""
    hosts = [each for kind in fleet.hosts for each in _hosts(kind)]
    wired: dict[str, list[HostId]] = {}
    aggregates: dict[str, list[HostId]] = {}
    for kind in fleet.hosts:
        ids = [HostId(name) for name in names_of(kind.name, kind.count)]
        for segment in kind.segments:
            wired.setdefault(segment, []).extend(ids)
        for aggregate in kind.aggregates:
            aggregates.setdefault(aggregate, []).extend(ids)
    segments = tuple(
        SegmentPhoto(ProviderId(name), name, each.addresses - each.used, each.addresses, tuple(wired.get(name, ())))
        for name, each in fleet.segments.items()
    )
    snapshot = WorldSnapshot(
        hosts=tuple(hosts),
        segments=segments,
        aggregates=tuple(AggregatePhoto(name, {}, tuple(ids)) for name, ids in aggregates.items()),
    )
    return _settled(fleet, world_of(snapshot), profile, progress)


def _hosts(kind: FleetHosts) -> Iterable[HostPhoto]:
    amounts = {name: Amount(amount, amount) for name, amount in kind.amounts().items()}
    physnets = tuple(sorted({each.physical_network for each in kind.uplinks}))
    for name in names_of(kind.name, kind.count):
        devices = tuple(
            DevicePhoto(
                ProviderId(f"{name}:{uplink.name}"),
                f"{name}:{uplink.name}",
                ProviderId(name),
                {
                    BANDWIDTH[way]: Amount(amount, amount)
                    for way, amount in (("egress", uplink.egress_kbps), ("ingress", uplink.ingress_kbps))
                    if amount
                },
                (physnet_trait(uplink.physical_network), *(vnic_trait(each) for each in uplink.vnic_types)),
            )
            for uplink in kind.uplinks
        )
        yield HostPhoto(
            id=HostId(name),
            name=name,
            node=name,
            cell=CellId(kind.cell),
            zone=kind.zone,
            enabled=kind.enabled,
            amounts=amounts,
            traits=kind.traits,
            physnets=physnets if kind.uplinks else None,
            devices=devices,
        )


def ask_for(fleet: Fleet, flavor: str, networks: Iterable[str], group: str | None = None) -> Ask:
    """Build the ask of a boot. Raises Invalid when the file has no such flavor, network or group."""
    wanted = _one(fleet.flavors, "flavor", flavor)
    nics = [(name, _one(fleet.networks, "network", name)) for name in networks]
    apart = None if group is None else _one(fleet.groups, "group", group)
    return Ask(
        resources=wanted.amounts(),
        required=wanted.required,
        forbidden=wanted.forbidden,
        nics=tuple(_nic(name, each) for name, each in nics),
        groups=tuple(
            RequestGroup(f"nic{at}", bandwidth, _traits(each), port=f"nic{at}")
            for at, (_, each) in enumerate(nics)
            if (bandwidth := _bandwidth(each))
        ),
        group=None if apart is None or group is None else GroupAsk(group, apart.policy, apart.max_per_host),
    )


def _one(known: Mapping[str, T], kind: str, name: str) -> T:
    entry = known.get(name)
    if entry is None:
        raise Invalid(f"There is no {kind} {name} in the file.")
    return entry


def _nic(name: str, network: FleetNetwork) -> NicRequirement:
    if network.segments:
        return NicRequirement(name, tuple(ProviderId(each) for each in network.segments))
    return NicRequirement(name, physnets=() if network.physical_network is None else (network.physical_network,))


def _bandwidth(network: FleetNetwork) -> dict[str, int]:
    amounts = {BANDWIDTH["egress"]: network.egress_kbps, BANDWIDTH["ingress"]: network.ingress_kbps}
    return {name: amount for name, amount in amounts.items() if amount}


def _traits(network: FleetNetwork) -> tuple[str, ...]:
    return (physnet_trait(network.physical_network or ""), vnic_trait(network.vnic_type))


# --------------------------------------------------------------------------------------- the servers of the file


def _settled(fleet: Fleet, world: World, profile: Profile, progress: Progress) -> BuiltWorld:
    trial = Trial(world, partial(rank, profile=profile))
    wanted = [(kind, host) for kind in fleet.servers for host in _places(kind, world)]
    total = sum(kind.count for kind, _ in wanted)
    if total > SERVERS_MAX:
        raise Invalid(f"The fleet has more than {SERVERS_MAX} servers.")
    residents: list[Resident] = []
    numbers: dict[str, int] = {}
    for kind, host in wanted:
        ask = ask_for(fleet, kind.flavor, kind.networks, kind.group)
        for _ in range(kind.count):
            number = numbers[kind.name] = numbers.get(kind.name, 0) + 1
            name = kind.name.replace("{}", str(number)) if "{}" in kind.name else f"{kind.name}-{number}"
            mine = msgspec.structs.replace(ask, host=host, seed=len(residents))
            verdict = trial.place(mine)
            if not verdict.best:
                where = "on no host" if host is None else f"not on host {host}"
                raise Invalid(f"Server {name} fits {where}: {verdict.explain()[:1000]}")
            residents.append(_resident(fleet, name, mine, verdict.best[0]))
            progress(len(residents), total)
    return BuiltWorld(trial.world, tuple(residents))


def _places(kind: FleetServers, world: World) -> list[str | None]:
    if kind.host is None:
        return [None]
    hosts: list[str | None] = [name for name in world.names if fnmatchcase(name, kind.host)]
    if not hosts:
        raise Invalid(f"Servers {kind.name}: no host is called {kind.host}.")
    return hosts


def _resident(fleet: Fleet, name: str, ask: Ask, at: Choice) -> Resident:
    """A server with the asks of its evacuation: first on the segments of its addresses, then on others if the file allows it."""
    segments = at.segments
    moved = msgspec.structs.replace(
        ask,
        host=None,
        leaves=at.host,
        cells=None if fleet.allow_move_across_cells else (at.cell,),
        group=None if ask.group is None else msgspec.structs.replace(ask.group, own=1),
    )
    stays = tuple(
        nic if segment is None else msgspec.structs.replace(nic, segments=(segment,), addresses=0)
        for nic, segment in zip(ask.nics, segments, strict=True)
    )
    goes = tuple(
        nic
        if segment is None
        else msgspec.structs.replace(nic, segments=tuple(each for each in nic.segments if each != segment))
        for nic, segment in zip(ask.nics, segments, strict=True)
    )
    asks = [msgspec.structs.replace(moved, nics=stays)]
    may_go = all(nic.segments or segment is None for nic, segment in zip(goes, segments, strict=True))
    if fleet.allow_move_across_segments and may_go and goes != stays:
        asks.append(msgspec.structs.replace(moved, nics=goes))
    return Resident(name, at.host, tuple(each for each in segments if each is not None), tuple(asks))
