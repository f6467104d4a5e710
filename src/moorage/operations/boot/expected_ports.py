"""The ports of a boot before they are made, with what their networks will guarantee."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence

import msgspec

from moorage.clients.http import Json
from moorage.model.network import CheckedNics, FixedIp, NetworkFacts, Port
from moorage.operations.boot.boot_input import Boot
from moorage.operations.boot.legacy_ports import ports_to_be
from moorage.operations.context import SagaContext
from moorage.operations.steps import groups


async def rules_of(context: SagaContext, input: CheckedNics | Boot) -> dict[str, tuple[Json, ...]]:
    """Network → the rules of its policy, for networks on which we make ports."""
    policies = {nic.network: input.networks[nic.network].qos_policy for nic in input.nics if nic.ours and nic.network}
    wanted = {network: policy for network, policy in policies.items() if policy is not None}
    answers = await asyncio.gather(*(context.network.rules_of(policy) for policy in wanted.values()))
    return dict(zip(wanted, answers, strict=True))


def guaranteed(checked: CheckedNics, rules: Mapping[str, Sequence[Json]]) -> bool:
    """Whether a network will guarantee something to a port that we make."""
    ports = ports_to_be([nic for nic in checked.nics if nic.ours and nic.network in rules])
    return any(groups.expected(port, checked.networks[port.network], rules[port.network]) for port in ports)


def ports_expected(boot: Boot, rules: Mapping[str, Sequence[Json]]) -> tuple[Port, ...]:
    """The ports of a boot as they will be, with their resource requests."""
    return tuple(
        msgspec.structs.replace(port, resource_request=groups.expected(port, boot.networks[port.network], own_rules))
        if port.ours and (own_rules := rules.get(port.network))
        else port
        for port in ports_to_be(boot.nics)
    )


async def expected_with_addresses(context: SagaContext, boot: Boot) -> tuple[Port, ...]:
    """The ports of a boot as they will be, with their guarantees; a requested fixed address counts."""
    ports = ports_expected(boot, await rules_of(context, boot))
    chosen = {nic.index: nic.address for nic in boot.nics if nic.address is not None}
    return tuple(
        msgspec.structs.replace(port, fixed_ips=_in_subnet(boot.networks.get(port.network), chosen[port.index]))
        if port.index in chosen and not port.fixed_ips
        else port
        for port in ports
    )


def _in_subnet(network: NetworkFacts | None, address: str) -> tuple[FixedIp, ...]:
    ip = ipaddress.ip_address(address)
    subnets = () if network is None else network.subnets
    return tuple(FixedIp(each.id, address) for each in subnets if ip in ipaddress.ip_network(each.cidr))
