"""Random fleets in plain data, and an oracle that tries everything on every host; the explanation of a decision is compared with it.

Nothing here is shared with the scheduler but the names of its filters: amounts are plain integers, sets are sets, and where
several things must be placed together every way of placing them is tried.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.resources import DISABLED_TRAIT
from moorage.model.world import Ask, Group, GroupAsk, NicRequirement, Unfit, World
from tests.helpers.world_builder import Cloud

EGR, IGR = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"
TRAITS = ("CUSTOM_FAST", "CUSTOM_OLD", "HW_CPU_X86_AVX")
PHYSNET_TRAITS = ("CUSTOM_PHYSNET_P1", "CUSTOM_PHYSNET_P2")
PHYSNETS, ZONES, PROJECTS = ("p1", "p2", "p3"), ("nova", "z2"), ("mine", "theirs")
CELLS = (CellId("c"), CellId("d"))
SPEC = "aggregate_instance_extra_specs:ssd"
MIB = {"VCPU": "vCPUs", "MEMORY_MB": "memory"}

Found = tuple[str, frozenset[str]]
"""A filter that refuses, and what it says, in parts whose order does not matter."""


@dataclass
class Stock:
    total: int
    used: int
    least: int = 1
    step: int = 1

    @property
    def free(self) -> int:
        return self.total - self.used

    def gives(self, amount: int) -> bool:
        return amount <= self.free and self.least <= amount <= self.total and amount % self.step == 0


@dataclass
class Device:
    name: str
    stock: dict[str, Stock]
    traits: frozenset[str]


@dataclass
class Host:
    name: str
    stock: dict[str, Stock]
    traits: frozenset[str]
    zone: str
    level: int
    alive: bool
    enabled: bool
    physnets: tuple[str, ...] | None
    segments: frozenset[str]
    devices: list[Device]
    members: int
    """Of the server group."""
    cell: CellId


@dataclass
class Fleet:
    hosts: list[Host]
    segments: dict[str, Stock]
    aggregates: list[tuple[str, dict[str, str], list[str]]]
    home: str | None
    by_name: dict[str, Host] = field(init=False)

    def __post_init__(self) -> None:
        self.by_name = {host.name: host for host in self.hosts}

    def world(self) -> World:
        """The same, as the scheduler looks at it."""
        cloud = Cloud()
        for host in self.hosts:
            traits = host.traits if host.enabled else host.traits | {DISABLED_TRAIT}
            cloud.host(
                host.name,
                traits=tuple(sorted(traits)),
                wired=tuple(sorted(host.segments)),
                zone=host.zone,
                physnets=None if host.physnets is None else ",".join(host.physnets),
                level=host.level,
                cell=host.cell,
            )
            del cloud.rows["whole"][-2:]
            for resource, stock in host.stock.items():
                cloud.stock(host.name, resource, stock.total, stock.used, min_unit=stock.least, step=stock.step)
            for device in host.devices:
                cloud.device(host.name, device.name, {}, traits=tuple(sorted(device.traits)))
                for resource, stock in device.stock.items():
                    cloud.stock(device.name, resource, stock.total, stock.used)
        for name, stock in self.segments.items():
            cloud.segment(name, stock.free, stock.total)
        picture = cloud.picture()
        picture.set_host_aggregates(self.aggregates)
        for host in self.hosts:
            picture.set_alive(host.name, host.alive)
        group = picture.groups.setdefault("g", Group())
        group.hosts.update({HostId(host.name): host.members for host in self.hosts if host.members})
        group.home = None if self.home is None else HostId(self.home)
        return picture.world()


# ------------------------------------------------------------------------------------------------------------ the dice


def a_fleet(dice: random.Random) -> Fleet:
    segments = {f"s{n}": Stock(total := dice.randint(1, 4), dice.randint(0, total)) for n in range(dice.randint(1, 3))}
    hosts = [_a_host(dice, f"h{number}", list(segments)) for number in range(dice.randint(1, 10))]
    names = [host.name for host in hosts]
    aggregates: list[tuple[str, dict[str, str], list[str]]] = []
    for number in range(dice.randint(0, 2)):
        metadata = dice.choice([{"filter_tenant_id": "mine"}, {"filter_tenant_id": "other, theirs"}, {"ssd": "yes"}])
        aggregates.append((f"a{number}", metadata, dice.sample(names, dice.randint(0, len(names)))))
    return Fleet(hosts, segments, aggregates, dice.choice([None, *names]))


def _a_host(dice: random.Random, name: str, segments: list[str]) -> Host:
    stock = {"VCPU": Stock(8, dice.randint(0, 8)), "MEMORY_MB": Stock(8192, dice.choice((0, 4096, 7000, 8192)))}
    if dice.random() < 0.4:
        stock["VGPU"] = Stock(4, dice.randint(0, 4), dice.choice((1, 2)), dice.choice((1, 2)))
    if dice.random() < 0.1:
        del stock["MEMORY_MB"]
    devices = [
        Device(
            f"{name}:br{number}",
            {each: Stock(10, dice.randint(0, 8)) for each in (EGR, IGR) if dice.random() < 0.9},
            frozenset({dice.choice(PHYSNET_TRAITS)}),
        )
        for number in range(dice.randint(0, 3))
    ]
    return Host(
        name=name,
        stock=stock,
        traits=frozenset(each for each in TRAITS if dice.random() < 0.5),
        zone=dice.choice(ZONES),
        level=dice.choice((1, 2, 3, 3)),
        alive=dice.random() < 0.9,
        enabled=dice.random() < 0.9,
        physnets=None if dice.random() < 0.2 else tuple(each for each in PHYSNETS if dice.random() < 0.6),
        segments=frozenset(each for each in segments if dice.random() < 0.6),
        devices=devices,
        members=dice.choice((0, 0, 1, 2)),
        cell=dice.choice(CELLS),
    )


def an_ask(dice: random.Random, fleet: Fleet) -> Ask:
    """Mostly few demands, so that some host passes most of them."""
    if dice.random() < 0.15:  # devices alone: each group has its place, all together may have none
        kind = (dice.choice(PHYSNET_TRAITS),)
        amounts = [dice.randint(3, 6) for _ in range(dice.randint(2, 4))]
        ports = tuple(RequestGroup(f"port{at}", {EGR: n}, kind, port=f"port{at}") for at, n in enumerate(amounts))
        return Ask(resources={"VCPU": 1}, groups=ports, seed=dice.getrandbits(32))
    names = [host.name for host in fleet.hosts]
    resources = {"VCPU": dice.randint(1, 4), "MEMORY_MB": dice.choice((512, 1024, 4096))}
    if dice.random() < 0.2:
        resources["VGPU"] = dice.randint(1, 3)

    def sometimes(chance: float) -> bool:
        return dice.random() < chance

    return Ask(
        resources=resources,
        required=tuple(dice.sample(TRAITS, 1)) if sometimes(0.3) else (),
        forbidden=tuple(dice.sample(TRAITS, 1)) if sometimes(0.2) else (),
        nics=tuple(_a_nic(dice, list(fleet.segments), number) for number in range(dice.randint(0, 4))),
        availability_zone=dice.choice((*ZONES, "nowhere")) if sometimes(0.2) else None,
        host=dice.choice([*names, "nobody"]) if sometimes(0.1) else None,
        leaves=HostId(dice.choice(names)) if sometimes(0.1) else None,
        not_on=tuple(HostId(name) for name in dice.sample(names, 1)) if sometimes(0.2) else (),
        same_host=tuple(HostId(name) for name in dice.sample(names, len(names) // 2)) if sometimes(0.1) else None,
        different_host=tuple(HostId(name) for name in dice.sample(names, 1)) if sometimes(0.2) else (),
        group=GroupAsk("g", dice.choice(("affinity", "anti-affinity")), dice.randint(1, 2)) if sometimes(0.2) else None,
        groups=tuple(_a_group(dice, f"port{number}") for number in range(dice.randint(1, 3))) if sometimes(0.4) else (),
        project=dice.choice(PROJECTS),
        extra_specs={SPEC: "yes"} if sometimes(0.15) else {},
        min_level=dice.choice((0, 0, 0, 2, 3)),
        cells_out=(dice.choice(CELLS),) if sometimes(0.1) else (),
        cells_unfit={dice.choice(CELLS): Unfit("not linked", "x")} if sometimes(0.1) else {},
        prefer_cell=dice.choice(CELLS) if sometimes(0.1) else None,
        seed=dice.getrandbits(32),
    )


def _a_nic(dice: random.Random, segments: list[str], number: int) -> NicRequirement:
    """Of a routed network (any of its segments, or the one of its address), wired, or neither."""
    match dice.choice(("routed", "fixed", "wired", "plain")):
        case "routed":
            return NicRequirement(f"n{number}", tuple(ProviderId(each) for each in segments))
        case "fixed":
            return NicRequirement(f"n{number}", (ProviderId(dice.choice(segments)),), addresses=dice.choice((0, 1, 1)))
        case "wired":
            return NicRequirement(f"n{number}", physnets=tuple(dice.sample(PHYSNETS, dice.randint(1, 2))))
        case _:
            return NicRequirement(f"n{number}")


def _a_group(dice: random.Random, port: str) -> RequestGroup:
    resources = {EGR: dice.randint(2, 6)} | ({IGR: dice.randint(1, 8)} if dice.random() < 0.3 else {})
    return RequestGroup(port, resources, (dice.choice(PHYSNET_TRAITS),), port=port)


# ----------------------------------------------------------------------------------------------------------- the judge


def verdicts(ask: Ask, fleet: Fleet, host: Host) -> Iterator[Found]:
    """Every filter that refuses this host, in the order in which hosts are judged, with what should be said."""
    yield from _by_name(ask, host)
    yield from _by_state(ask, host)
    yield from _by_aggregates(ask, fleet, host)
    if said := _traits(ask, host):
        yield "has_traits", said
    if said := _reach(ask, fleet, host):
        yield "network_reach", said
    if said := _group(ask, fleet, host):
        yield "server_group", said
    if said := frozenset(each for name, amount in ask.resources.items() if (each := _amount(host, name, amount))):
        yield "fits", said
    yield from _devices(ask, host)
    if any(nic.segments for nic in ask.nics) and not _addresses_suffice(ask, fleet, host):
        here = {s for nic in ask.nics for s in nic.segments if s in host.segments}
        yield (
            "segment_addresses",
            frozenset(f"{s} has {fleet.segments[s].free} of {fleet.segments[s].total} addresses free" for s in here),
        )
    if ask.groups and not _placed_together(ask, host):
        yield "devices_together", frozenset()


def _by_name(ask: Ask, host: Host) -> Iterator[Found]:
    if ask.host not in (None, host.name):
        yield "forced_host", frozenset({f"not {ask.host}, which was asked for"})
    if host.name == ask.leaves:
        yield "host_it_leaves", frozenset({"it is the host that the server leaves"})
    if host.name in ask.not_on:
        yield "tried_before", frozenset({"tried before"})


def _by_state(ask: Ask, host: Host) -> Iterator[Found]:
    if not host.enabled:
        yield "host_enabled", frozenset({"disabled by an administrator"})
    if not host.alive:
        yield "host_alive", frozenset({"not heard from"})
    if host.level < ask.min_level:
        yield "agent_level", frozenset({f"the agent is at level {host.level}, {ask.min_level} is needed"})
    if host.cell in ask.cells_out:
        yield "cell_answers", frozenset({f"the database of its cell {host.cell} does not answer"})
    if host.cell in ask.cells_unfit:
        yield "cell_fits", frozenset({f"cell {host.cell}: not linked (x)"})
    if ask.availability_zone not in (None, host.zone):
        yield "availability_zone", frozenset({f"in zone {host.zone}, {ask.availability_zone} was asked for"})
    if host.name in ask.different_host:
        yield "hinted_hosts", frozenset({"a server to stay away from is here"})
    elif ask.same_host is not None and host.name not in ask.same_host:
        yield "hinted_hosts", frozenset({"no server to be together with is here"})


def _by_aggregates(ask: Ask, fleet: Fleet, host: Host) -> Iterator[Found]:
    of_host = [metadata for _, metadata, names in fleet.aggregates if host.name in names]
    tenants = [metadata["filter_tenant_id"].split(", ") for metadata in of_host if "filter_tenant_id" in metadata]
    if tenants and not any(ask.project in names for names in tenants):
        yield "tenant_isolation", frozenset({"kept for other projects"})
    if SPEC in ask.extra_specs and not any(metadata.get("ssd") == "yes" for metadata in of_host):
        yield "flavor_aggregates", frozenset({"in no aggregate with ssd=yes"})


def _traits(ask: Ask, host: Host) -> frozenset[str]:
    lacks = [f"lacks trait {', '.join(t for t in ask.required if t not in host.traits)}"]
    has = [f"has trait {', '.join(t for t in ask.forbidden if t in host.traits)}"]
    return frozenset(each for each in (*lacks, *has) if not each.endswith("trait "))


def _reach(ask: Ask, fleet: Fleet, host: Host) -> frozenset[str]:
    said: set[str] = set()
    for nic in ask.nics:
        if nic.physnets and host.physnets is not None and not set(nic.physnets) & set(host.physnets):
            said.add("physical network " + " or ".join(nic.physnets))
        if nic.segments and not set(nic.segments) & host.segments:
            many = f"any of the network's {len(nic.segments)} segments"
            said.add(many if len(nic.segments) > 3 else " or ".join(nic.segments))
    return frozenset(said)


def _group(ask: Ask, fleet: Fleet, host: Host) -> frozenset[str]:
    group = ask.group
    if group is None:
        return frozenset()
    if group.policy == "affinity":
        away = fleet.home is not None and fleet.home != host.name
        return frozenset({"not where the group's servers are"}) if away else frozenset()
    full = host.members >= group.max_per_host
    words = f"has {host.members} of the group's servers, at most {group.max_per_host} may be"
    return frozenset({words}) if full else frozenset()


def _amount(host: Host, name: str, amount: int) -> str:
    stock = host.stock.get(name)
    if stock is None:
        return f"offers no {name}"
    if stock.free < amount:
        return f"{amount} {name} asked, {stock.free} of {stock.total} free"
    if amount > stock.total:
        return f"{amount} {name} asked, at most {stock.total} may be given at once"
    if amount < stock.least:
        return f"{amount} {name} asked, at least {stock.least} must be"
    return f"{amount} {name} asked, given only in steps of {stock.step}" if amount % stock.step else ""


def _addresses_suffice(ask: Ask, fleet: Fleet, host: Host) -> bool:
    """Every way of giving each NIC one of its segments that the host is wired to."""
    nics = [nic for nic in ask.nics if nic.segments]
    for way in itertools.product(*([s for s in nic.segments if s in host.segments] for nic in nics)):
        taken: Counter[str] = Counter()
        for nic, segment in zip(nics, way, strict=True):
            taken[segment] += nic.addresses
        if all(amount <= fleet.segments[segment].free for segment, amount in taken.items()):
            return True
    return False


def _right_kind(group: RequestGroup, device: Device) -> bool:
    return set(group.required) <= device.traits and all(name in device.stock for name in group.resources)


def _devices(ask: Ask, host: Host) -> Iterator[Found]:
    kinds: list[RequestGroup] = []
    for group in ask.groups:
        if not any((each.resources, each.required) == (group.resources, group.required) for each in kinds):
            kinds.append(group)
    if said := frozenset(
        f"no device on physical network {group.required[0][-2:]} that offers {' and '.join(group.resources)}"
        for group in kinds
        if not any(_right_kind(group, device) for device in host.devices)
    ):
        yield "device_kinds", said
    if said := frozenset(words for group in kinds for words in _lacks(group, host)):
        yield "device_room", said
    if said := frozenset(_in_all(ask, host)):
        yield "devices_in_all", said


def _lacks(group: RequestGroup, host: Host) -> Iterator[str]:
    right = [device for device in host.devices if _right_kind(group, device)]
    if any(all(device.stock[name].gives(n) for name, n in group.resources.items()) for device in right):
        return
    most = {name: max((device.stock[name].free for device in right), default=0) for name in group.resources}
    short = [name for name, amount in group.resources.items() if most[name] < amount]
    for name in short:
        yield f"{name}: {group.resources[name]} asked, at most {most[name]} free on one device"
    if not short:
        asked = " and ".join(f"{amount} {name}" for name, amount in group.resources.items())
        yield f"no one device has {asked} free, in portions it gives away"


def _in_all(ask: Ask, host: Host) -> Iterator[str]:
    kinds: dict[tuple[tuple[str, ...], frozenset[str]], list[RequestGroup]] = {}
    for group in ask.groups:
        kinds.setdefault((group.required, frozenset(group.resources)), []).append(group)
    for groups in kinds.values():
        if len(groups) < 2:
            continue
        for name in groups[0].resources:
            asked = sum(group.resources[name] for group in groups)
            free = sum(device.stock[name].free for device in host.devices if _right_kind(groups[0], device))
            if free < asked:
                yield f"{name}: {asked} asked in all, {free} free on all its devices"


def _placed_together(ask: Ask, host: Host) -> bool:
    """Every way of giving each group one device."""
    right = [[device for device in host.devices if _right_kind(group, device)] for group in ask.groups]
    for way in itertools.product(*right):
        taken: Counter[tuple[str, str]] = Counter()
        for group, device in zip(ask.groups, way, strict=True):
            taken.update({(device.name, name): amount for name, amount in group.resources.items()})
        stocks = {device.name: device.stock for device in way}
        if all(amount <= stocks[device][name].free for (device, name), amount in taken.items()):
            return True
    return False
