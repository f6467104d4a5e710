"""The ports of a move: whether they may have two bindings, and how they are bound to a host."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from moorage.model.errors import Conflict, HostFailed, NotFound, Stale
from moorage.model.network import BindOptions, FixedIp, Port
from moorage.model.request_groups import ALLOCATION
from moorage.model.world import World
from moorage.operations.context import SagaContext
from moorage.operations.gates import PORTS_ARRIVE_BOUND
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.moving import End, MoveRun
from moorage.operations.steps.ports import other_subnets

logger = logging.getLogger(__name__)

PROVIDERS_AND_DEVICES = (ALLOCATION, "pci_slot", "pci_vendor_info", "physical_network", "card_serial_number",
                         "pf_mac_address", "vf_num", "device_mac_address")  # fmt: skip
"""The parts of a binding profile that concern the host."""
HOST_TOO_OLD = "host_too_old"


def refuse_silent(context: SagaContext, host: str) -> None:
    """Raises Conflict when the host is silent."""
    world = context.placement.world()
    at = world.slots_by_name.get(host)
    if at is None or not bool(world.alive[at]):
        raise Conflict("Service is unavailable at this time.")


def refuse_old_hosts(context: SagaContext, source: str, ports: Iterable[Port], done: str) -> None:
    """Raises HostFailed when a port has a resource request, and the server's host or the pin is below the level at
    which ports arrive bound.

    The claim makes sure that the other host's level is high enough (S1.11); the pin limits what is used with it,
    whatever its level (S1.12).
    """
    if too_old(context, source) and any(port.resource_request for port in ports):
        raise HostFailed(
            f"Ports with a resource request cannot be {done} before all of the hosts concerned are upgraded.",
            private=f"{source} has level {_level_of(context.placement.world(), source)}, the pin is {context.settings.level_pin}",
            code=HOST_TOO_OLD,
        )


def too_old(context: SagaContext, source: str) -> bool:
    """Whether the server's host, or the pin, is below the level at which ports arrive bound."""
    pin, level = context.settings.level_pin, _level_of(context.placement.world(), source)
    return level < PORTS_ARRIVE_BOUND or (pin is not None and pin < PORTS_ARRIVE_BOUND)


def _level_of(world: World, host: str) -> int:
    """The level of a host's agent; 0 when there is no such host."""
    at = world.slots_by_name.get(host)
    return 0 if at is None else int(world.level[at])


async def second_bindings(context: SagaContext, cards: Cards, source: str, destination: str) -> bool:
    """Whether its ports may have bindings on both hosts: they have one on the source, and the network service supports
    several.
    """
    if source == destination or any(port.host != source for port in cards.ports):
        return False
    return bool(cards.ports) and await context.network.has_bindings()


def profiles_of(cards: Cards) -> dict[int, dict[str, Any]]:
    """NIC index → the part of its binding profile about providers and devices of its host."""
    return {
        port.index: {key: port.profile[key] for key in PROVIDERS_AND_DEVICES if key in port.profile}
        for port in cards.ports
    }


class BindTarget(msgspec.Struct, frozen=True):
    """Where and how the ports of a move are bound."""

    end: End
    profiles: Mapping[int, Mapping[str, Any]]
    """NIC index → the binding profile with its providers."""
    left: str
    """The host where the ports may have been until now."""
    subnets: Mapping[int, str] | None = None
    """NIC index → the subnet for another address of the port; only without second bindings."""
    keeps: Mapping[int, Sequence[FixedIp]] | None = None
    """NIC index → the addresses that the port keeps; only without second bindings."""


async def without_deleted(
    run: MoveRun, ports: Sequence[Port], bind: Callable[[Sequence[Port]], Awaitable[tuple[Port, ...]]]
) -> tuple[Port, ...]:
    """Bind the ports of a server that moves or stays; of those that somebody deleted meanwhile only the others.

    Only what the network service says to be gone by its own id is left out: the guest goes on without it, and the record
    follows later.
    """
    server = run.input.server
    try:
        return await bind(ports)
    except (NotFound, Stale):
        gone = await run.context.network.ports_gone({port.id for port in ports}, server.project)
        if not gone:
            raise
    logger.warning("%s: ports %s were deleted, and are left out", run.operation, ", ".join(sorted(gone)))
    return await bind(tuple(port for port in ports if port.id not in gone))


async def bound_at(
    run: MoveRun,
    cards: Cards,
    to: BindTarget,
    *,
    second: bool,
) -> tuple[Port, ...]:
    """Make the ports active on a host; `second`: by an existing second binding. A repeat is safe."""

    async def bind(ports: Sequence[Port]) -> tuple[Port, ...]:
        return await _bound_at(run, msgspec.structs.replace(cards, ports=tuple(ports)), to, second=second)

    return await without_deleted(run, cards.ports, bind)


async def _bound_at(run: MoveRun, cards: Cards, to: BindTarget, *, second: bool) -> tuple[Port, ...]:
    server = run.input.server.id
    if not cards.ports:
        return ()
    if second:
        return await run.context.network.activate_binding(server, to.end.name, cards.ports)
    end, subnets = to.end, to.subnets
    return await run.context.network.bind_ports(
        server,
        end.name,
        end.availability_zone,
        cards.ports,
        BindOptions(
            subnets=subnets or {},
            other_subnets=other_subnets(cards.ports, cards.networks, subnets) if subnets else {},
            profiles=to.profiles,
            tried=(to.left, end.name),
            keeps=to.keeps,
        ),
    )
