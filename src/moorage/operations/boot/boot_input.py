"""The input of a boot, the results of its first steps, and its request to the scheduler; all are kept in journals.

Fields are only ever added, with defaults (RULES §19).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.model import local_disks
from moorage.model.guest import InjectedFile
from moorage.model.ids import CellId, HostId
from moorage.model.network import NetworkFacts, NicAsk, Port
from moorage.model.resources import Needs
from moorage.model.server import Server
from moorage.model.verdict import DecisionRecord
from moorage.model.waiting import Wait
from moorage.model.world import Ask, GroupAsk
from moorage.operations.context import SagaContext
from moorage.operations.gates import ANY_LEVEL, OPEN, PORTS_ARRIVE_BOUND, Gates
from moorage.operations.steps import groups
from moorage.operations.steps.ports import segments_for
from moorage.saga import Run


class NoRoom(msgspec.Struct, frozen=True):
    """There was no room for all servers of a request, so none of them gets a host."""

    fault: str
    ledger: DecisionRecord


class Boot(msgspec.Struct, frozen=True):
    """Everything a boot needs; nothing is looked up by name after this."""

    server: Server
    seq: int = 1
    request_id: str = ""
    global_request_id: str = ""
    """The request id that services get; the caller's own, if they sent one."""
    nics: tuple[NicAsk, ...] = ()
    networks: dict[str, NetworkFacts] = {}
    security_groups: tuple[str, ...] = ()
    auto: bool = False
    needs: Needs = Needs({})
    group: GroupAsk | None = None
    forced_host: str | None = None
    forced_node: str | None = None
    same_host: tuple[HostId, ...] | None = None
    different_host: tuple[HostId, ...] = ()
    min_level: int = 3
    gates: Gates = OPEN
    """Who makes and binds the ports; decided when the boot was accepted (RULES §13)."""
    no_room: NoRoom | None = None
    sealed_password: str = ""
    """The guest's administrator password for its config drive; empty: there is none, or it is not returned."""
    files: tuple[InjectedFile, ...] = ()
    """Put into the guest when it is made (below 2.57)."""
    wait: Wait | None = None
    """Where no host will do, it sleeps until one may; None: it ends then."""


class Claim(msgspec.Struct, frozen=True):
    """The chosen host, what is claimed there, and the reasons against the other hosts."""

    host: HostId
    name: str
    node: str
    cell: CellId
    availability_zone: str
    level: int = PORTS_ARRIVE_BOUND
    """The level of the host's agent when it was chosen."""
    subnets: dict[int, str] = {}
    """NIC index → the subnet of its address, on routed networks."""
    ledger: DecisionRecord = DecisionRecord(0, 0, {})
    lost: tuple[str, ...] = ()
    """Claims that another request won first, as sentences."""
    order: Server | None = None
    """The order as it was at the claim, if its owner changed it after the request (a new name, metadata …)."""
    profiles: dict[int, dict[str, Any]] = {}
    """NIC index → the binding profile of its port: which providers give what the port was guaranteed."""
    given: tuple[groups.GroupShare, ...] = ()
    attempt: int = 0
    """The attempt that made the claim; 0: a boot, or a release that does not record it."""


class Made(msgspec.Struct, frozen=True):
    """The ports of a boot, and facts of networks that did not exist when it was accepted (`auto`)."""

    ports: tuple[Port, ...] = ()
    networks: dict[str, NetworkFacts] = {}


BootRun = Run[Boot, SagaContext]


def networks_of(boot: Boot, made: Made | None) -> Mapping[str, NetworkFacts]:
    """The facts of all networks of a boot, once its ports are made."""
    return boot.networks if made is None or not made.networks else {**boot.networks, **made.networks}


def cells_with(networks: Iterable[NetworkFacts]) -> tuple[CellId, ...] | None:
    """The cells that have addresses of every network; None: all cells do."""
    cells: set[CellId] | None = None
    for network in networks:
        if network.cells:
            cells = set(network.cells) if cells is None else cells & set(network.cells)
    return None if cells is None else tuple(sorted(cells))


def ask_of(
    boot: Boot, networks: Mapping[str, NetworkFacts], ports: tuple[Port, ...], *, not_on: tuple[HostId, ...]
) -> Ask:
    """The request to the scheduler: needs of flavor and image, segments for each NIC, and request groups."""
    wanted = groups.wanted(ports, networks, boot.needs)
    return Ask(
        resources=boot.needs.resources,
        required=(*boot.needs.required, *local_disks.traits_of(boot.server.block_devices)),
        forbidden=boot.needs.forbidden,
        nics=tuple(segments_for(port, networks.get(port.network)) for port in ports),
        availability_zone=boot.server.availability_zone,
        host=boot.forced_host,
        node=boot.forced_node,
        not_on=not_on,
        same_host=boot.same_host,
        different_host=boot.different_host,
        group=boot.group,
        groups=wanted.groups,
        same_subtree=wanted.same_subtree,
        same_device=wanted.same_device,
        group_policy=wanted.group_policy,
        project=boot.server.project,
        extra_specs=dict(boot.server.flavor.extra_specs),
        image_properties=dict(boot.server.image_properties),
        min_level=boot.min_level,
        cells=cells_with(networks.values()),
        max_level=boot.gates.max_level if boot.nics else ANY_LEVEL,
        seed=int(boot.server.id.replace("-", ""), 16) & 0xFFFFFFFF,
    )
