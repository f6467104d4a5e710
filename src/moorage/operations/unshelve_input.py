"""The input of an unshelve, and the request that it makes to the scheduler; kept in journals.

Fields are only ever added, with defaults (RULES §19).
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from moorage.model import local_disks
from moorage.model.ids import CellId, HostId, ImageId
from moorage.model.network import NetworkFacts, Port
from moorage.model.resources import IPV4_ADDRESS, Needs
from moorage.model.server import Server
from moorage.model.world import Ask, GroupAsk
from moorage.model.world import NicRequirement as SegmentAsk
from moorage.operations.boot.boot_servers import needs_of_flavor
from moorage.operations.gates import BINDS_PORTS, OPEN, PORTS_ARRIVE_BOUND, Gates
from moorage.operations.steps import groups
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.ports import held_by_all, nics_of, segments_for
from moorage.operations.steps.segment_change import Tries, tries
from moorage.operations.steps.segments import without_exhausted
from moorage.store.region.placement.claim_statements import Key


class Unshelve(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    image: ImageId | None = None
    """The image of its disk."""
    zone: str | None = None
    """The zone where it may be, and to which it is pinned afterwards."""
    host: str | None = None
    """The only host where it may be."""
    needs: Needs = Needs({})
    group: GroupAsk | None = None
    same_host: tuple[HostId, ...] | None = None
    different_host: tuple[HostId, ...] = ()
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    gates: Gates = OPEN
    """Who binds the ports on an older host."""
    across: bool = False
    """Whether it may get addresses of other segments."""
    cross_cell: bool = False
    """Whether it may go to other cells."""


def host_may_bind(gates: Gates) -> bool:
    """Whether hosts of level 2 bind the ports, which exist already (S1.5): while `early_ports` is open and
    `bind_in_conductor` is shut.
    """
    return gates.early_ports and not gates.bind_in_conductor


def needs_of_server(server: Server, *, settled: bool = False) -> Needs:
    """What its flavor and its image require of a host. `settled`: without what no driver makes."""
    local_root = not server.volume_backed
    return needs_of_flavor(server.flavor, server.image_properties, local_root=local_root, settled=settled)


def tries_of(
    input: Unshelve,
    server: Server,
    cards: Cards,
    cell: CellId,
    not_on: Iterable[str],
    *,
    exhausted: Collection[str] = frozenset(),
) -> Tries:
    """The requests in order: first the segments of its addresses, then other segments where that is allowed. Raises
    NoCapacity when no segment has an address for a NIC without one.
    """
    ask = without_exhausted(ask_of(input, server, cards, cell, not_on), cards.ports, frozenset(exhausted))
    return tries(ask, server, cards, allowed=input.across, exhausted=exhausted)


def ask_of(input: Unshelve, server: Server, cards: Cards, cell: CellId, not_on: Iterable[str]) -> Ask:
    """The request as a boot makes it, limited to its own cell: another cell would need its record moved."""
    wanted = groups.wanted(cards.ports, cards.networks, input.needs)
    return Ask(
        resources=input.needs.resources,
        required=(*input.needs.required, *local_disks.traits_of(server.block_devices)),
        forbidden=input.needs.forbidden,
        nics=tuple(segments_of(port, cards.networks) for port in cards.ports),
        availability_zone=input.zone,
        host=input.host,
        not_on=tuple(HostId(host) for host in not_on),
        same_host=input.same_host,
        different_host=input.different_host,
        group=input.group,
        groups=wanted.groups,
        same_subtree=wanted.same_subtree,
        same_device=wanted.same_device,
        group_policy=wanted.group_policy,
        project=server.project,
        extra_specs=dict(server.flavor.extra_specs),
        image_properties=dict(server.image_properties),
        min_level=BINDS_PORTS if host_may_bind(input.gates) else PORTS_ARRIVE_BOUND,
        cells=(cell,),
        seed=int(server.id.replace("-", ""), 16) & 0xFFFFFFFF,
    )


def segments_of(port: Port, networks: Mapping[str, NetworkFacts]) -> SegmentAsk:
    """An address that the port has is claimed with the server: no free one is needed, but the host must reach its
    segment.
    """
    input = segments_for(port, networks.get(port.network))
    return msgspec.structs.replace(input, addresses=0) if input.segments and port.fixed_ips else input


def addresses_of(cards: Cards) -> dict[Key, int]:
    """Segment → the number of IPv4 addresses that its ports have there."""
    return {key: n for key, n in held_by_all(nics_of(cards.ports, cards.networks)).items() if key[1] == IPV4_ADDRESS}
