"""Copies into placement what the network service's agents can guarantee: bandwidth of bridges and interfaces, and
packet rate.

A network service with its own placement plug-in reports them, and says so (`resources_synced`); then this does nothing.
Another one, also the embedded service, only lists them in its agents' `configurations`. This code makes them providers
below the hosts, with the ids, names, traits and classes that the plug-in would use.
"""

import msgspec

from moorage.clients.network import NetworkBackend
from moorage.model.clock import Clock, SystemClock
from moorage.model.network import AgentDevices
from moorage.model.network_providers import agent_provider, agent_traits, device_provider, device_traits, rates_of
from moorage.model.resources import Inventory
from moorage.placement.engine import Engine
from moorage.placement.inventory import DeviceReport

NAME = "devices"
WHOLE_EVERY_ROUNDS = 30
"""Everything is written again after so many rounds, changed or not: this repairs changes of others, and removes what
was still in use before.
"""

LOOKED_EVERY_S = 1.0
"""How often to check whether a missing hypervisor exists now."""
LONG_S = 86_400.0


class DevicesDone(msgspec.Struct, frozen=True):
    """The result of one round."""

    looked_at: int = 0
    reported: int = 0
    waiting: tuple[str, ...] = ()
    """Hypervisors without a provider yet: their hosts have not reported."""


class DeviceSync:
    """Writes the agents' guarantees into placement."""

    def __init__(self, network: NetworkBackend, engine: Engine, clock: Clock | None = None) -> None:
        self._network = network
        self._engine = engine
        self._clock = clock or SystemClock()
        self._last: dict[str, tuple[DeviceReport, ...]] = {}
        self._missing: frozenset[str] = frozenset()
        self._rounds = 0

    async def run(self) -> DevicesDone:
        """Run one round. Raises Unavailable when the network service does not answer; the next round repeats
        everything.
        """
        self._rounds += 1
        if self._rounds % WHOLE_EVERY_ROUNDS == 0:
            self._last = {}
        agents = [each for each in await self._network.guarantees() if each.synced is None]
        wanted: dict[str, tuple[DeviceReport, ...]] = {}
        for agent in agents:
            for hypervisor in sorted(set(agent.hypervisors.values()) | agent.packets.keys()):
                wanted[f"{agent.kind}/{hypervisor}"] = tuple(_reports(agent, hypervisor))
        changed = {key: reports for key, reports in wanted.items() if self._last.get(key) != reports}
        missing = set(await self._engine.report_devices([each for reports in changed.values() for each in reports]))
        self._last = {
            key: reports for key, reports in wanted.items() if not missing & {each.hypervisor for each in reports}
        }
        self._missing = frozenset(missing)
        return DevicesDone(len(agents), len(changed), tuple(sorted(missing)))

    async def until_host_appears(self) -> None:
        """Wait until a hypervisor exists that was missing in the last round; for ever when none was missing.

        A host that has just reported is used by boots at once: without its agents' guarantees it would refuse ports
        with a guarantee.
        """
        while True:
            await self._clock.sleep(LOOKED_EVERY_S if self._missing else LONG_S)
            if not self._missing.isdisjoint(self._engine.world().nodes):
                return


def _reports(agent: AgentDevices, hypervisor: str) -> list[DeviceReport]:
    """The agent's own provider first, then those below it."""
    above = agent_provider(agent.kind, hypervisor)
    devices = sorted(device for device, where in agent.hypervisors.items() if where == hypervisor)
    made = [
        DeviceReport(
            hypervisor=hypervisor,
            id=above,
            name=f"{hypervisor}:{agent.kind}",
            inventories=_inventories(rates_of("packets", agent.packets.get(hypervisor, {}))),
            traits=agent_traits(agent.kind),
            children=frozenset(device_provider(agent.kind, hypervisor, device) for device in devices),
        )
    ]
    made.extend(
        DeviceReport(
            hypervisor=hypervisor,
            id=device_provider(agent.kind, hypervisor, device),
            name=f"{hypervisor}:{agent.kind}:{device}",
            parent=above,
            inventories=_inventories(rates_of("bandwidth", agent.bandwidths[device])),
            traits=device_traits(agent.kind, device, agent.mappings),
        )
        for device in devices
        if device in agent.bandwidths
    )
    return made


def _inventories(amounts: dict[str, int]) -> dict[str, Inventory]:
    return {resource: Inventory(total=amount) for resource, amount in amounts.items()}
