"""The ports of a boot when every host is of level 3: the conductor makes and binds them (RULES §7, §13).

`ports_of` in `legacy_ports.py` chooses between this and the way of older hosts, once for a boot.
"""

from collections.abc import Mapping

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.network import BindOptions, NetworkFacts, Port
from moorage.model.server import Nic
from moorage.operations.boot.boot_input import BootRun, Claim, Made
from moorage.operations.steps.ports import made_macs
from moorage.operations.steps.vif_plugging import await_plugged


class BootPorts:
    """The ports of one boot; errors of the network service are raised as its client raises them."""

    def __init__(self, run: BootRun) -> None:
        self._run = run

    async def make(self) -> Made:
        """Read the user's ports and make the missing ones; none is bound."""
        boot, network = self._run.input, self._run.context.network
        ports = await network.ensure_ports(
            boot.server.id,
            boot.server.project,
            boot.nics,
            unsure=self._run.unsure,
            security_groups=boot.security_groups,
            hostname=boot.server.hostname,
        )
        unknown = {port.network for port in ports} - boot.networks.keys()
        return Made(ports, {each: await network.network(each) for each in unknown})

    async def release(self, claim: Claim | None) -> None:
        """Delete our ports, release the user's."""
        boot = self._run.input
        await self._run.context.network.release_ports(boot.server.id, made_macs(boot.nics), users=())

    async def bind(self, claim: Claim, ports: tuple[Port, ...], options: BindOptions) -> tuple[Port, ...]:
        """Bind the ports to the host. Raises BindRefused when the network service refuses it."""
        return await self._run.context.network.bind_ports(
            self._run.input.server.id, claim.name, claim.availability_zone, ports, options
        )

    async def unbind(self, ports: tuple[Port, ...]) -> None:
        """Remove the host from the ports."""
        await self._run.context.network.unbind_ports(self._run.input.server.id, ports)

    async def start(
        self, command_context: CommandContext, claim: Claim, ports: tuple[Port, ...], guest: GuestSpec
    ) -> PowerState:
        """Let the host start the guest; its ports are bound. Raises HostFailed when the host cannot."""
        return await self._run.context.hosts.start_guest(HostAddress(claim.cell, claim.name), command_context, guest)

    async def await_plugged(self, claim: Claim, ports: tuple[Port, ...], started: object) -> None:
        """Wait until the network service reports the ports as plugged. Raises HostFailed when that is late and
        configured as fatal.
        """
        await await_plugged(self._run, ports, claim.name)

    def result(
        self, started: object, networks: Mapping[str, NetworkFacts]
    ) -> tuple[PowerState | None, tuple[Nic, ...] | None]:
        """The guest's state, and its NICs where they differ from those that were bound."""
        return started if isinstance(started, PowerState) else None, None
