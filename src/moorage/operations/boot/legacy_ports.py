"""Ports while a gate is shut (RULES §13): who makes and who binds them, by what the boot decided at its beginning.

    early_ports  bind_in_conductor   made by                    bound by
    yes          yes                 the conductor, at first    the conductor
    yes          no                  the conductor, at first    the host; the conductor for a host of level 3
    no           no                  the host; the conductor for a host of level 3, when it was chosen

Until a port is made, it stands in the saga as it will be: with its NIC and its minted MAC, without an id.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from moorage.bus.agent_rpc import CommandContext, HostAddress
from moorage.bus.messages import NO_NETWORK_CLIENT, DestroyGuest
from moorage.model.errors import HostFailed, Unavailable
from moorage.model.fencing_token import LAST_ATTEMPT, UNDO, FencingToken
from moorage.model.guest import GuestSpec, PowerState, VifData
from moorage.model.host_ports import Plumbed, PortOrder, refuse_unclaimed, with_ports
from moorage.model.ids import CellId, HostId, NetworkId, PortId
from moorage.model.network import BindOptions, BindRefused, NetworkFacts, NicAsk, Port
from moorage.model.server import Nic
from moorage.operations.context import SagaContext
from moorage.operations.gates import PORTS_ARRIVE_BOUND, Gates
from moorage.operations.steps.hosts import names_of
from moorage.operations.steps.ports import nics_of, other_subnets
from moorage.operations.steps.segments import note_exhausted, note_exhausted_at_host
from moorage.operations.steps.servers import AboutServer
from moorage.saga import Cause, Run


class AsksPorts(AboutServer, Protocol):
    """A saga that makes a server's ports."""

    @property
    def nics(self) -> tuple[NicAsk, ...]: ...
    @property
    def networks(self) -> dict[str, NetworkFacts]: ...
    @property
    def security_groups(self) -> tuple[str, ...]: ...
    @property
    def gates(self) -> Gates: ...


class ChosenHost(Protocol):
    """The host that was chosen."""

    @property
    def host(self) -> HostId: ...
    @property
    def name(self) -> str: ...
    @property
    def cell(self) -> CellId: ...
    @property
    def availability_zone(self) -> str: ...
    @property
    def level(self) -> int: ...
    @property
    def subnets(self) -> dict[int, str]: ...
    @property
    def profiles(self) -> dict[int, dict[str, Any]]: ...


class Built(msgspec.Struct, frozen=True):
    """What a host that saw to the ports itself answered."""

    power: PowerState
    plumbed: Plumbed = Plumbed()


def ports_to_be(nics: Sequence[NicAsk]) -> tuple[Port, ...]:
    """The ports as they will be when they are made: on a routed network their address comes with the host."""
    return tuple(
        Port(
            id="",
            network=nic.network,
            mac=nic.mac,
            index=nic.index,
            ours=nic.ours,
            fixed_ips=nic.original_fixed_ips,
            ip_allocation="deferred",
            vnic_type=nic.vnic_type,
            tag=nic.tag,
            address_chosen=bool(nic.address or nic.original_fixed_ips),
            resource_request=nic.resource_request,
            profile=nic.original_profile,
        )
        for nic in nics
    )


def cells_with(networks: Iterable[NetworkFacts]) -> tuple[CellId, ...] | None:
    """The cells that have addresses of every network; None: all have."""
    found: set[CellId] | None = None
    for network in networks:
        if network.cells:
            found = set(network.cells) if found is None else found & set(network.cells)
    return None if found is None else tuple(sorted(found))


def users_ports(nics: Sequence[NicAsk]) -> tuple[Port, ...]:
    """The user's ports as they were before anybody took them: what is restored when they are let go."""
    return tuple(
        Port(
            id=nic.port,
            network=nic.network,
            mac=nic.mac,
            index=nic.index,
            ours=False,
            original_profile=nic.original_profile,
            original_fixed_ips=nic.original_fixed_ips,
        )
        for nic in nics
        if nic.port is not None
    )


def host_plumbs(boot: AsksPorts, place: ChosenHost) -> bool:
    """The host sees to the ports itself: it is of level 1 or 2, and the boot was begun while that was the way."""
    return bool(boot.nics) and not boot.gates.bind_in_conductor and place.level < PORTS_ARRIVE_BOUND


async def made_late(run: Run[AsksPorts, SagaContext], ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """For a host of level 3: the ports themselves, made now if they were not before, or taken over from an older host."""
    if all(port.id for port in ports):
        return ports
    left = left_by_hosts(run.causes)
    if len(left.ports) == len(ports):
        return left.ports
    boot = run.input
    made = await run.context.network.ensure_ports(
        boot.server.id,
        boot.server.project,
        boot.nics,
        unsure=True,  # whoever else was asked may have made them, this host before it was upgraded too
        security_groups=boot.security_groups,
    )
    refuse_unclaimed(made)
    return made


def left_by_hosts(causes: Sequence[Cause]) -> Plumbed:
    """The ports that came back with the newest failure that has any (S0.5)."""
    for cause in reversed(causes):
        left = msgspec.json.decode(cause.left, type=Plumbed | None)
        if left is not None and left.ports:
            return left
    return Plumbed()


def order_for(run: Run[AsksPorts, SagaContext], place: ChosenHost, ports: tuple[Port, ...]) -> PortOrder:
    """What the host is told to do about the ports."""
    boot = run.input
    early = boot.gates.early_ports
    left = left_by_hosts(run.causes)
    known = left.ports or tuple(port for port in ports if port.id)
    return PortOrder(
        how="bind" if early else "make",
        project=boot.server.project,
        availability_zone=place.availability_zone,
        nics=boot.nics,
        ports=known,
        networks={**boot.networks, **left.networks},
        subnets=place.subnets,
        beside=other_subnets(known or ports, {**boot.networks, **left.networks}, place.subnets),
        profiles=place.profiles,
        security_groups=boot.security_groups,
        tried=names_of(run.context.placement.world(), run.tried),
        unsure=run.unsure or run.attempt > 1,
    )


async def start(
    run: Run[AsksPorts, SagaContext],
    command_context: CommandContext,
    place: ChosenHost,
    ports: tuple[Port, ...],
    guest: GuestSpec,
) -> PowerState | Built:
    """Have the guest started: from finished data, or on a host that sees to the ports first."""
    to = HostAddress(place.cell, place.name)
    if not host_plumbs(run.input, place):
        return await run.context.hosts.start_guest(to, command_context, guest)
    made = (lambda: made_late(run, ports)) if run.input.gates.credentials else None
    return await build(run, command_context, place, order_for(run, place, ports), guest, made)


async def build(
    run: Run[AboutServer, SagaContext],
    command_context: CommandContext,
    place: ChosenHost,
    order: PortOrder,
    guest: GuestSpec,
    made: Callable[[], Awaitable[tuple[Port, ...]]] | None,
) -> Built:
    """Have a host see to the ports and start the guest.

    Where it was brought to level 3 since it was claimed, the conductor sees to them, `made` by then: nothing is lost but a message.
    It has no way to the network service: `made` is None.
    """
    to, bare = HostAddress(place.cell, place.name), msgspec.structs.replace(guest, vifs=())
    try:
        now = await run.context.hosts.build_guest(to, command_context, bare, order)
    except HostFailed as failed:
        if failed.code != NO_NETWORK_CLIENT or made is None:
            await note_exhausted_at_host(run.context, failed, order.networks, order.subnets)
            raise
        return await _start_bound(run, command_context, place, order, bare, await made())
    return Built(now.power_state, now.plumbed or Plumbed())


async def _start_bound(
    run: Run[AboutServer, SagaContext],
    command_context: CommandContext,
    place: ChosenHost,
    order: PortOrder,
    guest: GuestSpec,
    ports: tuple[Port, ...],
) -> Built:
    network = run.context.network
    try:
        bound_now = await network.bind_ports(
            run.input.server.id,
            place.name,
            place.availability_zone,
            ports,
            BindOptions(subnets=order.subnets, other_subnets=order.beside, profiles=order.profiles, tried=order.tried),
        )
    except BindRefused as refused:
        await note_exhausted(run.context, refused, order.networks, order.subnets)
        raise
    unknown = {port.network for port in bound_now} - order.networks.keys()
    facts = {each: await network.network(each) for each in unknown}
    told = msgspec.structs.replace(command_context, step=f"{command_context.step}/bound")
    to = HostAddress(place.cell, place.name)
    state = await run.context.hosts.start_guest(to, told, with_ports(guest, bound_now, {**order.networks, **facts}))
    return Built(state, Plumbed(bound_now, facts))


def bound(started: PowerState | Built | None, ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """The ports as they are on the host: as the conductor bound them, or as the host says that it did."""
    return started.plumbed.ports if isinstance(started, Built) else ports


def answered(
    started: PowerState | Built | None, networks: Mapping[str, NetworkFacts]
) -> tuple[PowerState | None, tuple[Nic, ...] | None]:
    """How the guest is, and its NICs where the host had to tell them."""
    if not isinstance(started, Built):
        return started, None
    return started.power, nics_of(started.plumbed.ports, {**networks, **started.plumbed.networks})


async def release_by_host(run: Run[AsksPorts, SagaContext], place: ChosenHost | None) -> None:
    """The saga is taken back and the conductor cannot reach the network service: the host it last asked releases the ports.

    No host was asked: no port was made or taken.
    """
    if place is None:
        return
    boot = run.input
    command_context = CommandContext(
        operation=run.operation,
        turn=FencingToken(boot.seq, LAST_ATTEMPT, UNDO),
        step="release_ports",
        patience_s=run.context.settings.host_deadline_s,
        request_id=boot.request_id,
    )
    vifs = tuple(
        VifData(PortId(""), NetworkId(nic.network), nic.mac, preserve_on_delete=not nic.ours) for nic in boot.nics
    )
    try:
        await run.context.hosts.destroy_guest(
            HostAddress(place.cell, place.name), command_context, boot.server.id, DestroyGuest(True, vifs)
        )
    except HostFailed as failed:
        raise Unavailable(f"the host could not release the ports: {failed.public}", private=failed.private) from failed


def release_order(nics: Sequence[Nic]) -> DestroyGuest | None:
    """What a host that deletes a server is told of its ports: ours go, the user's are only let go (S0.8)."""
    if not nics:
        return None
    return DestroyGuest(
        True,
        tuple(
            VifData(nic.port or PortId(""), nic.network, nic.mac or "", preserve_on_delete=not nic.ours) for nic in nics
        ),
    )
