"""What a server's ports and flavor ask of single providers, and what is written of the providers that were chosen."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from moorage.model.ids import ProviderId
from moorage.model.network import Port
from moorage.model.request_groups import ALLOCATION, RequestGroup, Subtree, allocation_of, groups_of
from moorage.model.resources import Needs
from moorage.model.world import Choice, World


class Wanted(msgspec.Struct, frozen=True):
    """The groups of one server."""

    groups: tuple[RequestGroup, ...] = ()
    same_subtree: tuple[Subtree, ...] = ()
    group_policy: Literal["none", "isolate"] = "none"


class Given(msgspec.Struct, frozen=True):
    """Which provider gives what a group asks: kept with the claim, for people."""

    group: str
    port: str
    """Empty: the flavor asks."""
    provider: ProviderId
    name: str
    resources: dict[str, int]


def wanted(ports: Iterable[Port], needs: Needs | None = None) -> Wanted:
    """All groups in one question: the flavor's, and those of every port with a guarantee."""
    groups = [] if needs is None else list(needs.groups)
    together: list[Subtree] = []
    for port in ports:
        if port.resource_request:
            own, same = groups_of(port.resource_request, port.id)
            groups += own
            together += same
    return Wanted(tuple(groups), tuple(together), "none" if needs is None else needs.group_policy)


def profiles(ports: Iterable[Port], choice: Choice) -> dict[int, dict[str, Any]]:
    """NIC index → what its binding profile says of the providers that were chosen for its port."""
    found: dict[int, dict[str, Any]] = {}
    for port in ports:
        allocation = allocation_of(port.resource_request, port.id, choice.providers)
        if allocation is not None:
            found[port.index] = {ALLOCATION: allocation}
    return found


def given(groups: Sequence[RequestGroup], choice: Choice, world: World) -> tuple[Given, ...]:
    """The chosen providers with their names as they are now."""
    if not groups:
        return ()
    names: dict[ProviderId, str] = {ProviderId(choice.host): choice.name}
    for slot in world.nested.below.get(choice.host, ()):
        names[world.nested.ids[slot]] = world.nested.names[slot]
    providers: Mapping[str, ProviderId] = choice.providers
    return tuple(
        Given(each.id, each.port, providers[each.id], names.get(providers[each.id], ""), each.resources)
        for each in groups
    )
