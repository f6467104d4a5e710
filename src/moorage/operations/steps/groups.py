"""Request groups: what a server's ports and flavor need from single providers, and what is written about the chosen
providers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from moorage.model.ids import ProviderId
from moorage.model.network import NetworkFacts, Port
from moorage.model.network_providers import BANDWIDTH, guaranteed_by, physnet_trait
from moorage.model.request_groups import (
    ALLOCATION,
    FUNCTION_VNIC_TYPES,
    WHOLE_VNIC_TYPE,
    RequestGroup,
    ResourceRequest,
    Subtree,
    VirtualFunction,
    allocation_of,
    function_group,
    groups_of,
)
from moorage.model.resources import Needs
from moorage.model.world import Choice, World


class WantedGroups(msgspec.Struct, frozen=True):
    """The request groups of one server."""

    groups: tuple[RequestGroup, ...] = ()
    same_subtree: tuple[Subtree, ...] = ()
    same_device: tuple[Subtree, ...] = ()
    group_policy: Literal["none", "isolate"] = "none"


class GroupShare(msgspec.Struct, frozen=True):
    """Which provider serves a request group; kept with the claim for operators."""

    group: str
    port: str
    """The port's id; empty for a group of the flavor."""
    provider: ProviderId
    name: str
    resources: dict[str, int]


def wanted(ports: Iterable[Port], networks: Mapping[str, NetworkFacts], needs: Needs | None = None) -> WantedGroups:
    """All groups in one request: the flavor's, and those of every port that has a guarantee or is a virtual function."""
    groups = [] if needs is None else list(needs.groups)
    together: list[Subtree] = []
    devices: list[Subtree] = []
    for port in ports:
        own, same = groups_of(port.resource_request, port.key) if port.resource_request else ((), ())
        groups += own
        together += same
        if is_function(port):
            whole = port.vnic_type == WHOLE_VNIC_TYPE
            function = function_group(port.key, _wire(networks.get(port.network)), whole=whole)
            groups.append(function)
            devices += [(each.id, function.id) for each in own if set(each.resources) & set(BANDWIDTH.values())]
    policy = "none" if needs is None else needs.group_policy
    return WantedGroups(tuple(groups), tuple(together), tuple(devices), policy)


def is_function(port: Port) -> bool:
    """Whether we choose a virtual function for the port; a switch on the card makes its ports itself."""
    return port.vnic_type in FUNCTION_VNIC_TYPES and "switchdev" not in port.profile.get("capabilities", ())


def _wire(network: NetworkFacts | None) -> tuple[str, ...]:
    """The trait of the network's first physical network, with the network service's name for bandwidth."""
    first = None if network is None else _physnet(network)
    return (physnet_trait(first),) if first else ()


def _physnet(network: NetworkFacts) -> str | None:
    named = (each.physical_network for each in network.segments if each.physical_network)
    return next(named, network.physical_network)


def expected(port: Port, network: NetworkFacts, rules: Iterable[Mapping[str, Any]]) -> ResourceRequest | None:
    """The resource request of a port that will be made on a network with these rules; we choose the groups' ids."""
    parts = guaranteed_by(rules, _physnet(network), port.vnic_type)
    if not parts:
        return None
    groups = [
        {"id": f"{port.key}/{name}", "required": list(required), "resources": resources}
        for name, (required, resources) in parts.items()
    ]
    return {"request_groups": groups, "same_subtree": [each["id"] for each in groups]}


def with_functions(
    profiles: Mapping[int, Mapping[str, Any]], ports: Iterable[Port], functions: Mapping[str, VirtualFunction]
) -> dict[int, dict[str, Any]]:
    """The binding profiles, completed with the virtual functions that the claim's transaction chose."""
    merged = {index: dict(profile) for index, profile in profiles.items()}
    for port in ports:
        if (function := functions.get(port.key)) is not None:
            whole = port.vnic_type == WHOLE_VNIC_TYPE
            profile = function.profile_of_undivided() if whole else function.profile()
            merged[port.index] = merged.get(port.index, {}) | profile
    return merged


def profiles(ports: Iterable[Port], choice: Choice) -> dict[int, dict[str, Any]]:
    """NIC index → the binding profile with the providers that were chosen for its port."""
    by_index: dict[int, dict[str, Any]] = {}
    for port in ports:
        allocation = allocation_of(port.resource_request, port.key, choice.providers)
        if allocation is not None:
            by_index[port.index] = {ALLOCATION: allocation}
    return by_index


def given(groups: Sequence[RequestGroup], choice: Choice, world: World) -> tuple[GroupShare, ...]:
    """The chosen providers, with their current names."""
    if not groups:
        return ()
    names = {ProviderId(choice.host): choice.name} | world.device_names(choice.host)
    providers: Mapping[str, ProviderId] = choice.providers
    return tuple(
        GroupShare(each.id, each.port, providers[each.id], names.get(providers[each.id], ""), each.resources)
        for each in groups
    )
