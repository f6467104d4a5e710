"""Hosts that the request names: only this host, not these hosts, with these servers, not with those servers."""

from collections.abc import Iterable

import numpy as np

from moorage.model.ids import HostId
from moorage.model.world import Ask, Mask, Refusals, World

LEFT = "it is the host that the server leaves"


def _where(world: World, hosts: Iterable[HostId]) -> Mask:
    mask = np.zeros(world.size, dtype=np.bool_)
    mask[[world.slots[host] for host in hosts if host in world.slots]] = True
    return mask


def host_it_leaves(ask: Ask, world: World) -> Refusals | None:
    """Reject the host that a move leaves."""
    if ask.leaves is None:
        return None
    return Refusals(_where(world, (ask.leaves,)), lambda slot: LEFT, LEFT)


def tried_before(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts on which this request has already failed."""
    if not ask.not_on:
        return None
    return Refusals(_where(world, ask.not_on), lambda slot: "tried before", "tried before")


def forced_host(ask: Ask, world: World) -> Refusals | None:
    """Reject all hosts but the one that the request names."""
    if ask.host is None and ask.node is None:
        return None
    mask = np.ones(world.size, dtype=np.bool_)
    for slot, (name, node) in enumerate(zip(world.names, world.nodes, strict=True)):
        if ask.host in (None, name) and ask.node in (None, node):
            mask[slot] = False
    wanted = ask.host or ask.node
    return Refusals(mask, lambda slot: f"not {wanted}, which was asked for", "not the host that was asked for")


def hinted_hosts(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts by the hints `same_host` and `different_host`."""
    if ask.same_host is None and not ask.different_host:
        return None
    away = _where(world, ask.different_host)
    mask = away if ask.same_host is None else away | ~_where(world, ask.same_host)

    def why(slot: int) -> str:
        return "a server to stay away from is here" if away[slot] else "no server to be together with is here"

    return Refusals(mask, why, "not where the scheduler hints ask")
