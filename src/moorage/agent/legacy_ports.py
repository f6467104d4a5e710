"""Hosts of level 1 and 2, which make or bind their guests' ports themselves, with a network client of their own (RULES §13, §14).

    level 1   makes missing ports, and binds all, when it builds the guest
    level 2   binds ports that were made before a host was chosen; makes them if it is ordered to, as level 1 does
    level 3   has no `HostPortClient`: ports arrive bound (S0.20)

The ports of a build are returned with its success or its failure, so that the next host uses the same ports (S0.5).
A port is recognised by the MAC that was minted for it before a host was chosen, so no host makes it a second time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from moorage.agent.authority import AuthorityOver
from moorage.agent.commands import VERBS, Answer, payload_of
from moorage.bus.command_messages import Command
from moorage.bus.guest_payloads import DestroyGuest, GuestNow, StartGuest
from moorage.bus.verbs import Verb
from moorage.drivers.driver import Driver
from moorage.model.errors import HostFailed, Internal, Problem, Unavailable, UnknownOutcome
from moorage.model.guest import GuestSpec
from moorage.model.host_ports import Plumbed, PortOrder, refuse_unclaimed, with_ports
from moorage.model.ids import ServerId
from moorage.model.network import BindOptions, NetworkFacts, NicAsk, Port

T = TypeVar("T")

MAKES_PORTS = 1
BINDS_PORTS = 2
PORTS_ARRIVE_BOUND = 3
LEVEL_TOO_LOW = "level_too_low"
AGAIN_FIRST_S, AGAIN_MOST_S = 0.25, 5.0

_log = logging.getLogger(__name__)


class HostPortClient(Protocol):
    """The calls to the network service that a host needs; `clients.network.NetworkBackend` has them."""

    async def ensure_ports(
        self,
        server: str,
        project: str,
        nics: Sequence[NicAsk],
        *,
        unsure: bool = False,
        security_groups: Sequence[str] = (),
        hostname: str = "",
    ) -> tuple[Port, ...]: ...

    async def bind_ports(
        self, server: str, host: str, az: str, ports: Sequence[Port], options: BindOptions | None = None
    ) -> tuple[Port, ...]: ...

    async def release_ports(self, server: str, macs: Collection[str] = ()) -> None: ...

    async def network(self, network: str) -> NetworkFacts: ...


@dataclass
class Plumbing:
    """Makes, binds and releases the ports of one host's guests, for an agent of level 1 or 2."""

    host: str
    level: int
    plumber: HostPortClient
    may_start: Callable[[], bool] = lambda: True
    """Tells whether a guest may still be started; called after the ports are bound, which may take long."""
    _left: dict[ServerId, Plumbed] = field(default_factory=dict)
    """The ports that the build under way has so far."""

    def __post_init__(self) -> None:
        if not MAKES_PORTS <= self.level < PORTS_ARRIVE_BOUND:
            raise Internal(
                f"an agent of level {self.level} sees to no ports: it is given no way to the network service"
            )

    def verbs(self) -> Mapping[str, Callable[[Driver, Command], Awaitable[Answer]]]:
        """Return the agent's verbs; two of them do more here than on a host of level 3."""
        return {**VERBS, Verb.START_GUEST: self.start_guest, Verb.DESTROY_GUEST: self.destroy_guest}

    def take_left(self, server: ServerId) -> Plumbed | None:
        """Return the ports that a failed build leaves to the next host, once."""
        return self._left.pop(server, None)

    async def start_guest(self, driver: Driver, command: Command) -> Answer:
        """Make or bind the ports as the command orders, then start the guest.

        Raises AuthorityOver when the host must not start guests any more.
        """
        payload = payload_of(command, StartGuest)
        if payload.order is None:
            return await VERBS[Verb.START_GUEST](driver, command)
        guest = await self.plumb(payload.guest, payload.order)
        if not self.may_start():
            raise AuthorityOver
        state = await driver.start_guest(guest)
        return GuestNow(state, self.take_left(guest.server)), guest.power_on

    async def destroy_guest(self, driver: Driver, command: Command) -> Answer:
        done = await VERBS[Verb.DESTROY_GUEST](driver, command)
        await self.release(command.server, payload_of(command, DestroyGuest))
        return done

    async def release(self, server: ServerId, payload: DestroyGuest) -> None:
        """Release the ports after the guest is destroyed, if the server is deleted: ours are deleted, the user's released (S0.8)."""
        self._left.pop(server, None)
        if payload.release:
            macs = [vif.mac for vif in payload.vifs if not vif.preserve_on_delete]
            await self._patiently(lambda _: self.plumber.release_ports(server, macs))

    async def plumb(self, guest: GuestSpec, order: PortOrder) -> GuestSpec:
        """Make the ports (if the order says so) and bind them; returns the guest with its interfaces.

        Raises HostFailed with the network service's reason; ports that were made by then are kept for `take_left`.
        """
        if order.how == "bind" and self.level < BINDS_PORTS:
            raise HostFailed(
                "the host's agent is too old for ports that were made before it was chosen",
                private=f"{self.host} is at level {self.level}",
                code=LEVEL_TOO_LOW,
            )
        self._keep(guest.server, order.ports, {})
        ports = order.ports if order.how == "bind" else await self._made(guest, order)
        facts = await self._facts({port.network for port in ports} - order.networks.keys())
        self._keep(guest.server, ports, facts)
        if order.how == "make":
            refuse_unclaimed(ports)
        bound = await self._patiently(
            lambda _: self.plumber.bind_ports(
                guest.server,
                self.host,
                order.availability_zone,
                ports,
                BindOptions(
                    subnets=order.subnets, other_subnets=order.beside, profiles=order.profiles, tried=order.tried
                ),
            )
        )
        self._keep(guest.server, bound, facts)
        return with_ports(guest, bound, {**order.networks, **facts})

    async def _made(self, guest: GuestSpec, order: PortOrder) -> tuple[Port, ...]:
        """The ports of the order, and new ones for NICs without a port."""
        have = {port.index: port for port in order.ports}
        missing = [nic for nic in order.nics if nic.index not in have]
        if missing:
            made = await self._patiently(
                lambda unsure: self.plumber.ensure_ports(
                    guest.server,
                    order.project,
                    missing,
                    unsure=unsure or order.unsure,
                    security_groups=order.security_groups,
                    hostname=guest.hostname,
                )
            )
            have.update({port.index: port for port in made})
        return tuple(have[nic.index] for nic in order.nics)

    async def _facts(self, networks: Collection[str]) -> dict[str, NetworkFacts]:
        facts: dict[str, NetworkFacts] = {}
        for network in networks:
            facts[network] = await self._patiently(lambda _: self.plumber.network(network))  # noqa: B023  awaited here
        return facts

    def _keep(self, server: ServerId, ports: Sequence[Port], networks: Mapping[str, NetworkFacts]) -> None:
        self._left[server] = Plumbed(tuple(ports), dict(networks))

    async def _patiently(self, once: Callable[[bool], Awaitable[T]]) -> T:
        """Retry while the network service is out, until the command's deadline cancels this; a refusal becomes HostFailed."""
        pause_s, unsure = AGAIN_FIRST_S, False
        while True:
            try:
                return await once(unsure)
            except Unavailable as out:
                if out.code == "credentials":
                    raise HostFailed(out.public, private=out.private, code=out.code) from out
                unsure = unsure or isinstance(out, UnknownOutcome)
                _log.warning("%s: %s; tried again in %.1f s", self.host, out.private or out.public, pause_s)
            except Problem as refused:
                raise HostFailed(refused.public, private=refused.private, code=refused.code) from refused
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, AGAIN_MOST_S)
