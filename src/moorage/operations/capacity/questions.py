"""Capacity questions, as requests to the scheduler; the same functions as for a boot make them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from moorage.model.errors import Invalid
from moorage.model.ids import ServerId, new_uuid
from moorage.model.network import NetworkFacts, NicAsk, Port
from moorage.model.server import Server
from moorage.model.world import Ask, GroupAsk
from moorage.operations.boot.boot_input import Boot, ask_of
from moorage.operations.boot.boot_servers import needs_of_flavor
from moorage.operations.boot.expected_ports import expected_with_addresses
from moorage.operations.context import SagaContext
from moorage.operations.steps import groups
from moorage.scheduler.failover import Kind
from moorage.scheduler.world_changes import Added, Without
from moorage.store.region import flavors, server_groups

NETWORKS_MAX = 64
FAILURES_MAX = 100
"""How many failures one request may name."""
HOSTS_LISTED, HOSTS_LISTED_MAX = 100, 10_000
"""How many hosts an answer lists, those with the most room first: the default, and the maximum."""
KBPS_MAX = 2_147_483_647

Text = Annotated[str, Meta(min_length=1, max_length=255)]
Kbps = Annotated[int, Meta(ge=0, le=KBPS_MAX)]


class WantedNic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A NIC; its bandwidth replaces or adds what the network's policy guarantees."""

    uuid: Text
    egress_kbps: Kbps = 0
    ingress_kbps: Kbps = 0
    vnic_type: Annotated[str, Meta(pattern="^[a-z-]+$", max_length=64)] = "normal"


class CapacityQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many more servers of this kind fit."""

    flavor: Text
    networks: Annotated[tuple[WantedNic, ...], Meta(max_length=NETWORKS_MAX)] = ()
    group: Text | None = None
    availability_zone: Text | None = None
    project: Annotated[str, Meta(max_length=255)] = ""
    """The project that would own the servers; empty: the caller's."""
    without: Without = Without()
    added: Added = Added()
    hosts: Annotated[int, Meta(ge=0, le=HOSTS_LISTED_MAX)] = HOSTS_LISTED


class FailoverQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens if each of these fails by itself."""

    kind: Kind
    names: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=FAILURES_MAX)]
    without: Without = Without()
    added: Added = Added()


async def ask_for(context: SagaContext, question: CapacityQuestion, project: str) -> Ask:
    """The request of one such server to the scheduler. Raises NotFound (flavor, network), Invalid (group), and
    Unavailable.
    """
    flavor = await context.region.read(lambda tx: flavors.visible(tx, question.flavor, project=None, everything=True))
    group = await _group(context, question.group)
    answers = await asyncio.gather(*(context.network.network(each.uuid) for each in question.networks))
    networks = {each.id: each for each in answers}
    gates = context.gates()
    boot = Boot(
        server=Server(
            id=ServerId(new_uuid()),
            project=question.project or project,
            user="",
            name="",
            hostname="",
            created_at=0,
            flavor=flavor.copy(),
            availability_zone=question.availability_zone,
        ),
        nics=tuple(
            NicAsk(at, facts.id, mac=f"nic{at}", vnic_type=wanted.vnic_type)
            for at, (wanted, facts) in enumerate(zip(question.networks, answers, strict=True))
        ),
        networks=networks,
        needs=needs_of_flavor(flavor, {}),
        group=group,
        min_level=gates.min_level,
        gates=gates,
    )
    ports = _guaranteed(await expected_with_addresses(context, boot), question.networks, networks)
    return ask_of(boot, networks, ports, not_on=())


async def _group(context: SagaContext, wanted: str | None) -> GroupAsk | None:
    if wanted is None:
        return None
    group = await context.region.read(lambda tx: server_groups.get(tx, wanted))
    if group is None:
        raise Invalid(f"Server group {wanted} could not be found.")
    return GroupAsk(group.id, group.policy, group.max_per_host or 1)


def _guaranteed(
    ports: Sequence[Port], wanted: Sequence[WantedNic], networks: Mapping[str, NetworkFacts]
) -> tuple[Port, ...]:
    """Bandwidth that the question names replaces what the network's policy guarantees."""
    guaranteed: list[Port] = []
    for port in ports:
        nic = wanted[port.index]
        rules = [
            {"type": "minimum_bandwidth", "direction": way, "min_kbps": amount}
            for way, amount in (("egress", nic.egress_kbps), ("ingress", nic.ingress_kbps))
            if amount
        ]
        request = groups.expected(port, networks[port.network], rules) if rules else port.resource_request
        guaranteed.append(msgspec.structs.replace(port, resource_request=request))
    return tuple(guaranteed)
