"""A small region with old hosts: some make and bind ports themselves, with the agents' own code (RULES §13).

The network service counts how often each port was made: once in a saga, by whichever process, however often a build was
tried.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
from typing_extensions import override

from moorage.agent.legacy_ports import PORTS_ARRIVE_BOUND, Plumbing
from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.guest_payloads import DestroyGuest, GuestNow
from moorage.bus.messages import NO_NETWORK_CLIENT
from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed, Unavailable
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.host_ports import PortOrder
from moorage.model.ids import OperationId, ServerId
from moorage.model.network import NicAsk, Port
from moorage.model.resources import Inventory
from moorage.model.server import Server
from moorage.operations.gates import ConductorCredentials, Credentials, GateFacts, Gates, HostLevel, decide
from moorage.placement.inventory import HostInventory
from moorage_testing.region_fixture import HOSTS, SmallRegion
from moorage_testing.region_hosts import DictHosts
from moorage_testing.region_network import DictNetwork

FIRST_READS = frozenset({Verb.CONSOLE_OUTPUT})
FIRST_VERBS = FIRST_READS | {
    Verb.START_GUEST,
    Verb.DESTROY_GUEST,
    Verb.POWER_ON,
    Verb.POWER_OFF,
    Verb.REBOOT,
    Verb.PAUSE,
    Verb.UNPAUSE,
    Verb.SUSPEND,
    Verb.RESUME,
    Verb.ATTACH_INTERFACE,
    Verb.DETACH_INTERFACE,
    Verb.ATTACH_VOLUME,
    Verb.DETACH_VOLUME,
}
"""What the first release's agents know."""


class CountingNetwork(DictNetwork):
    """Ports by MAC, and how often each was made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[str] = Counter()

    @override
    def _ensure(self, server: str, nic: NicAsk) -> Port:
        if nic.port is None and nic.mac not in self.ports:
            self.made[nic.mac] += 1
        return super()._ensure(server, nic)


class NoCredentials:
    """The network service as a conductor without credentials meets it."""

    def __getattr__(self, name: str) -> Any:
        async def refused(*_: Any, **__: Any) -> Any:
            raise Unavailable("the network service does not accept our credentials", private=name, code="credentials")

        return refused


@dataclass
class OldHosts(DictHosts):
    """Hosts of several levels: those of 1 and 2 with the plumbing of real agents."""

    levels: Mapping[str, int] = field(default_factory=dict)
    network: CountingNetwork = field(default_factory=CountingNetwork)
    results: dict[tuple[str, ServerId, Any, str], GuestNow] = field(default_factory=dict)
    ordered: list[tuple[str, PortOrder]] = field(default_factory=list)
    refuse_builds: dict[str, int] = field(default_factory=dict)
    """Host → how many builds fail there, after their ports were seen to."""

    def plumbing(self, host: str) -> Plumbing:
        """The network client of a host. Raises HostFailed for a host of level 3, which has none."""
        if self.levels[host] >= PORTS_ARRIVE_BOUND:
            raise HostFailed("the host has no way to the network service", code=NO_NETWORK_CLIENT)
        return Plumbing(host, self.levels[host], self.network)

    async def build_guest(
        self, to: HostAddress, command_context: CommandContext, guest: GuestSpec, order: PortOrder
    ) -> GuestNow:
        """Build a guest. Raises HostFailed when the test planted a failure."""
        self._execute_once(to, command_context, guest.server, lambda: PowerState.RUNNING)  # the turn, or its refusal
        key = (to.host, guest.server, command_context.turn, command_context.step)
        if key not in self.results:
            self.ordered.append((to.host, order))
            plumbing = self.plumbing(to.host)
            guest = await plumbing.plumb(guest, order)
            if self.refuse_builds.get(to.host, 0) > 0:
                self.refuse_builds[to.host] -= 1
                raise HostFailed("planted", left=msgspec.json.encode(plumbing.take_left(guest.server)))
            self.results[key] = GuestNow(
                self._set(to, guest.server, PowerState.RUNNING), plumbing.take_left(guest.server)
            )
        return self.results[key]

    @override
    async def destroy_guest(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, release: DestroyGuest | None = None
    ) -> None:
        await super().destroy_guest(to, command_context, server)
        if release is not None and self.levels[to.host] < PORTS_ARRIVE_BOUND:
            await self.plumbing(to.host).release(server, release)


class OldRegion(SmallRegion):
    """A small region with hosts of these levels; the conductor's credentials work, or do not."""

    network: CountingNetwork
    hosts: OldHosts
    levels: Mapping[str, int] = {name: PORTS_ARRIVE_BOUND for name, _ in HOSTS}
    credentials: bool = True
    upgraded: bool = False
    """All hosts are of level 3 by the time of the build command."""

    async def of(self, levels: Mapping[str, int], *, credentials: bool = True) -> "OldRegion":
        """The same hosts with other agents."""
        self.levels, self.credentials = levels, credentials
        for host, cell in HOSTS:
            inventories = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(8192), "DISK_GB": Inventory(100)}
            await self.engine.report_host(
                HostInventory(host=host, cell=cell, inventories=inventories, level=levels[host])
            )
        return self

    def gates(self) -> Gates:
        """What whatever begins now is to do."""
        state = Credentials.WORKING if self.credentials else Credentials.REFUSED
        hosts = tuple(HostLevel(host, cell, self.levels[host]) for host, cell in HOSTS)
        return decide(GateFacts(hosts, (ConductorCredentials("conductor", state),)))

    @override
    async def fresh(
        self, server: Server | None, operation: OperationId, seq: int = 1, *, guarantees: bool = False
    ) -> "OldRegion":
        await super().fresh(server, operation, seq, guarantees=guarantees)
        network = CountingNetwork()
        network.guarantees = guarantees
        network.ports = self.network.ports
        self.network = network
        levels = dict.fromkeys(self.levels, PORTS_ARRIVE_BOUND) if self.upgraded else self.levels
        self.hosts = OldHosts(levels=levels, network=network, images=self.images)
        self.context = replace(
            self._context(),
            network=cast("Any", network if self.credentials else NoCredentials()),
            gates=self.gates,
        )
        return self

    @override
    async def settle(self) -> None:
        """One round of the reconcilers, where they can see the ports at all."""
        if self.credentials:
            await super().settle()
