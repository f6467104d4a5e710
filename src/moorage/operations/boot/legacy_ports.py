"""Ports while a gate is shut (RULES §13): who makes and who binds them, as the boot decided when it began.

    early_ports  bind_in_conductor   made by                    bound by
    yes          yes                 the conductor, at first    the conductor
    yes          no                  the conductor, at first    the host; the conductor for a host of level 3
    no           no                  the host; the conductor for a host of level 3, when it was chosen

Until a port is made, the saga describes it as it will be: with its NIC and its minted MAC, without an id.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.guest_payloads import DestroyGuest
from moorage.bus.messages import NO_NETWORK_CLIENT
from moorage.model.errors import HostFailed, Unavailable
from moorage.model.fencing_token import LAST_ATTEMPT, UNDO, FencingToken
from moorage.model.guest import GuestSpec, PowerState, VifData
from moorage.model.host_ports import Plumbed, PortOrder, refuse_unclaimed, with_ports
from moorage.model.ids import CellId, HostId, NetworkId, PortId
from moorage.model.network import BindOptions, BindRefused, NetworkFacts, NicAsk, Port
from moorage.model.server import Nic
from moorage.operations.boot.boot_input import BootRun, Claim, Made
from moorage.operations.boot.boot_ports import BootPorts
from moorage.operations.context import SagaContext
from moorage.operations.gates import OPEN, PORTS_ARRIVE_BOUND, Gates
from moorage.operations.steps.hosts import names_of
from moorage.operations.steps.ports import made_macs, nics_of, other_subnets
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


class LegacyStart(msgspec.Struct, frozen=True):
    """The answer of a host that made or bound the ports itself."""

    power: PowerState
    plumbed: Plumbed = Plumbed()


class LegacyPorts:
    """The ports of one boot that began while a gate was shut."""

    def __init__(self, run: BootRun) -> None:
        self._run = run
        self._by_conductor = BootPorts(run)

    async def make(self) -> Made:
        """Make the ports if that is allowed before a host is chosen; otherwise return them as they will be."""
        if self._run.input.gates.early_ports:
            return await self._by_conductor.make()
        return Made(ports_to_be(self._run.input.nics))

    async def release(self, claim: Claim | None) -> None:
        """Delete our ports, release the user's. Where the conductor has no credentials, the host that was asked last
        does it.
        """
        boot = self._run.input
        if not boot.gates.credentials:
            await _release_by_host(self._run, claim)
        else:
            users = () if boot.gates.early_ports else _users_ports(boot.nics)
            await self._run.context.network.release_ports(boot.server.id, made_macs(boot.nics), users=users)

    async def bind(self, claim: Claim, ports: tuple[Port, ...], options: BindOptions) -> tuple[Port, ...]:
        """Bind the ports for a host of level 3; older hosts bind them when they start the guest."""
        if _host_plumbs(self._run.input, claim):
            return ports
        return await self._by_conductor.bind(claim, await _made_late(self._run, ports), options)

    async def unbind(self, ports: tuple[Port, ...]) -> None:
        """Remove the host from the ports, if they were made before it was chosen."""
        if self._run.input.gates.early_ports:
            await self._by_conductor.unbind(ports)

    async def start(
        self, command_context: CommandContext, claim: Claim, ports: tuple[Port, ...], guest: GuestSpec
    ) -> PowerState | LegacyStart:
        """Let the host start the guest: from complete data, or after it has made or bound the ports itself (S0.12)."""
        run = self._run
        if not _host_plumbs(run.input, claim):
            return await self._by_conductor.start(command_context, claim, ports, guest)
        made = (lambda: _made_late(run, ports)) if run.input.gates.credentials else None
        return await build(run, command_context, claim, _order_for(run, claim, ports), guest, made)

    async def await_plugged(
        self, claim: Claim, ports: tuple[Port, ...], started: PowerState | LegacyStart | None
    ) -> None:
        """Wait until the network service reports the ports as plugged, if the conductor can call it."""
        if self._run.input.gates.credentials:
            await self._by_conductor.await_plugged(claim, bound(started, ports), started)

    def result(
        self, started: PowerState | LegacyStart | None, networks: Mapping[str, NetworkFacts]
    ) -> tuple[PowerState | None, tuple[Nic, ...] | None]:
        """The guest's state, and its NICs where the host had to report them."""
        return answered(started, networks)


def ports_of(run: BootRun) -> BootPorts | LegacyPorts:
    """Choose who makes and binds a boot's ports. The gates at the beginning of the boot decide, so the choice never
    changes.
    """
    return BootPorts(run) if run.input.gates == OPEN else LegacyPorts(run)


def ports_to_be(nics: Sequence[NicAsk]) -> tuple[Port, ...]:
    """The ports as they will be when they are made; on a routed network the host decides the address."""
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


def _users_ports(nics: Sequence[NicAsk]) -> tuple[Port, ...]:
    """The user's ports as they were before we used them: this is restored when they are released."""
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


def _host_plumbs(boot: AsksPorts, place: ChosenHost) -> bool:
    """Whether the host makes or binds the ports itself: it is of level 1 or 2, and the gates were shut when the boot
    began.
    """
    return bool(boot.nics) and not boot.gates.bind_in_conductor and place.level < PORTS_ARRIVE_BOUND


async def _made_late(run: Run[AsksPorts, SagaContext], ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """For a host of level 3: make the ports now if they do not exist, or take them over from an older host."""
    if all(port.id for port in ports):
        return ports
    left = _left_by_hosts(run.causes)
    if len(left.ports) == len(ports):
        return left.ports
    boot = run.input
    made = await run.context.network.ensure_ports(
        boot.server.id,
        boot.server.project,
        boot.nics,
        unsure=True,  # another host may have made them, or this host before its upgrade
        security_groups=boot.security_groups,
        hostname=boot.server.hostname,
    )
    refuse_unclaimed(made)
    return made


def _left_by_hosts(causes: Sequence[Cause]) -> Plumbed:
    """The ports that the newest failure reports, of those failures that report any (S0.5)."""
    for cause in reversed(causes):
        left = msgspec.json.decode(cause.left, type=Plumbed | None)
        if left is not None and left.ports:
            return left
    return Plumbed()


def _order_for(run: Run[AsksPorts, SagaContext], place: ChosenHost, ports: tuple[Port, ...]) -> PortOrder:
    """What the host is asked to do about the ports."""
    boot = run.input
    early = boot.gates.early_ports
    left = _left_by_hosts(run.causes)
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


async def build(
    run: Run[AboutServer, SagaContext],
    command_context: CommandContext,
    place: ChosenHost,
    order: PortOrder,
    guest: GuestSpec,
    made: Callable[[], Awaitable[tuple[Port, ...]]] | None,
) -> LegacyStart:
    """Let a host make or bind the ports and start the guest.

    If the host was upgraded to level 3 after it was claimed, the conductor makes and binds the ports, with `made`; this
    costs one message. `made` is None when the conductor cannot reach the network service.
    """
    to, bare = HostAddress(place.cell, place.name), msgspec.structs.replace(guest, vifs=())
    try:
        now = await run.context.hosts.build_guest(to, command_context, bare, order)
    except HostFailed as failed:
        if failed.code != NO_NETWORK_CLIENT or made is None:
            await note_exhausted_at_host(run.context, failed, order.networks, order.subnets)
            raise
        return await _start_bound(run, command_context, place, order, bare, await made())
    return LegacyStart(now.power_state, now.plumbed or Plumbed())


async def _start_bound(
    run: Run[AboutServer, SagaContext],
    command_context: CommandContext,
    place: ChosenHost,
    order: PortOrder,
    guest: GuestSpec,
    ports: tuple[Port, ...],
) -> LegacyStart:
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
    bound_context = msgspec.structs.replace(command_context, step=f"{command_context.step}/bound")
    to = HostAddress(place.cell, place.name)
    state = await run.context.hosts.start_guest(
        to, bound_context, with_ports(guest, bound_now, {**order.networks, **facts})
    )
    return LegacyStart(state, Plumbed(bound_now, facts))


def bound(started: PowerState | LegacyStart | None, ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """The ports on the host: as the conductor bound them, or as the host reports that it did."""
    return started.plumbed.ports if isinstance(started, LegacyStart) else ports


def answered(
    started: PowerState | LegacyStart | None, networks: Mapping[str, NetworkFacts]
) -> tuple[PowerState | None, tuple[Nic, ...] | None]:
    """The guest's state, and its NICs where the host had to report them."""
    if not isinstance(started, LegacyStart):
        return started, None
    return started.power, nics_of(started.plumbed.ports, {**networks, **started.plumbed.networks})


async def _release_by_host(run: Run[AsksPorts, SagaContext], place: ChosenHost | None) -> None:
    """Let the host that was asked last release the ports: the saga unwinds, and the conductor cannot reach the network
    service.

    If no host was asked, no port was made or taken.
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
    """Which ports a host that deletes a server deletes (ours) and which it only releases (the user's) (S0.8)."""
    if not nics:
        return None
    return DestroyGuest(
        True,
        tuple(
            VifData(nic.port or PortId(""), nic.network, nic.mac or "", preserve_on_delete=not nic.ours) for nic in nics
        ),
    )
