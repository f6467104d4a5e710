"""Segments without a free address, although placement counts some (S0.15).

The network service also counts addresses that others took, which placement learns later. When an address is refused,
the boot tries other segments, on any host: the host is not to blame, and may fit by another segment.
"""

import logging
from collections.abc import Mapping, Sequence

import msgspec

from moorage.clients.network.binding_rules import NO_ADDRESS, NO_ADDRESS_LEFT
from moorage.model.errors import HostFailed, NoCapacity, Unavailable
from moorage.model.ids import NetworkId
from moorage.model.network import BindRefused, NetworkFacts, Port
from moorage.model.world import Ask
from moorage.operations.context import SagaContext

logger = logging.getLogger(__name__)

NO_ADDRESSES = frozenset({NO_ADDRESS, NO_ADDRESS_LEFT})


async def note_exhausted(
    context: SagaContext, refused: BindRefused, networks: Mapping[str, NetworkFacts], subnets: Mapping[int, str]
) -> None:
    """If the refusal means that no address was left: note the segment to avoid, and copy its network's pools into
    placement again.

    `subnets`: NIC index → the subnet from which its address was to come.
    """
    subnet = subnets.get(refused.index)
    if refused.code not in NO_ADDRESSES or subnet is None:
        return
    for network in networks.values():
        for each in network.subnets:
            if each.id == subnet and each.segment is not None:
                refused.without = (each.segment,)
                await _redraw(context, NetworkId(network.id))


async def note_exhausted_at_host(
    context: SagaContext, failed: HostFailed, networks: Mapping[str, NetworkFacts], subnets: Mapping[int, str]
) -> None:
    """Like `note_exhausted`, for a host that binds ports itself (S1.5). It does not say for which NIC, so the pools of
    all networks are copied again, and a segment is avoided only when it is the only possible one.
    """
    if failed.code not in NO_ADDRESSES or not subnets:
        return
    wanted = set(subnets.values())
    full = {
        each.segment: network.id
        for network in networks.values()
        for each in network.subnets
        if each.id in wanted and each.segment is not None
    }
    if len(full) == 1:
        failed.without = tuple(full)
    for network in sorted(set(full.values())):
        await _redraw(context, NetworkId(network))


async def _redraw(context: SagaContext, network: NetworkId) -> None:
    if context.redraw_segments is None:
        return
    try:
        await context.redraw_segments(network)
    except Unavailable as out:  # the next round copies them; this boot avoids the segment all the same
        logger.info("the pools of network %s cannot be read now: %s", network, out)


def without_exhausted(ask: Ask, ports: Sequence[Port], exhausted: frozenset[str]) -> Ask:
    """The request without segments that had no address left. Raises NoCapacity when a NIC is left with none."""
    if not exhausted:
        return ask
    nics = list(ask.nics)
    for place, (nic, port) in enumerate(zip(ask.nics, ports, strict=True)):
        if (
            not nic.segments or not nic.addresses or port.fixed_ips
        ):  # no addresses are counted for it, or it has its address
            continue
        left = tuple(each for each in nic.segments if each not in exhausted)
        if not left:
            raise NoCapacity("No valid host was found. No segment of the network has a free address.")
        nics[place] = msgspec.structs.replace(nic, segments=left)
    return msgspec.structs.replace(ask, nics=tuple(nics))
