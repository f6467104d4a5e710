"""The network service of a small region, in a dict, as RULES §10 describes the real one.

A MAC is unique, a bind names a host, and protected ports are not deleted.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from moorage.model.errors import NotFound, Stale
from moorage.model.network import (
    BindOptions,
    FixedIp,
    NetworkFacts,
    NetworkNames,
    NicAsk,
    Port,
    SegmentFacts,
    SubnetFacts,
    minted_macs,
)  # fmt: skip
from moorage.model.port_description import ChangedHosts, HostDescriptions
from moorage_testing.region_guarantees import ONE_GROUP, in_groups
from moorage_testing.region_ports import DictBindings, addresses_of, taken_off

NETWORK = "network-1"
SUBNET = "subnet-1"
ROUTED = "routed-1"
SEGMENTS = {
    "11111111-0000-4000-8000-000000000001": ("host1", "host3"),
    "11111111-0000-4000-8000-000000000002": ("host2",),
}
"""Segments of the routed network, and the hosts wired to them."""
NETWORK_FACTS = NetworkFacts(id=NETWORK, name="net", subnets=(SubnetFacts(SUBNET, "10.0.0.0/24"),))
ROUTED_FACTS = NetworkFacts(
    id=ROUTED,
    name="routed",
    subnets=tuple(SubnetFacts(f"subnet-of-{each}", "10.1.0.0/24", segment=each) for each in SEGMENTS),
    segments=tuple(SegmentFacts(each, network=ROUTED) for each in SEGMENTS),
)


@dataclass
class DictNetwork(DictBindings):
    """The network service, as far as the sagas use it."""

    guarantees: bool = False
    """Our ports follow their network's policy (bandwidth and packets, in groups), the user's have one (the older form)."""
    groups: dict[str, str] | None = None
    """Security groups and their names."""
    network_names: dict[str, str] = field(
        default_factory=lambda: {NETWORK: NETWORK_FACTS.name, ROUTED: ROUTED_FACTS.name}
    )
    floating_addresses: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Port → floating addresses, each with its fixed one."""
    blind: bool = False
    """Our account lost its role: every list is empty, every port unknown."""

    async def ensure_ports(
        self,
        server: str,
        project: str,
        nics: Sequence[NicAsk],
        *,
        unsure: bool = False,
        security_groups: Sequence[str] = (),
        hostname: str = "",
    ) -> tuple[Port, ...]:
        """By MAC, or the user's own by id."""
        return tuple([self._ensure(server, nic) for nic in nics])

    def _ensure(self, server: str, nic: NicAsk) -> Port:
        key = nic.port or nic.mac
        found = self.ports.get(key) or Port(id=key, network=nic.network, mac=nic.mac, ours=nic.ours)
        request = (in_groups(key) if nic.ours else ONE_GROUP) if self.guarantees else None
        self.ports[key] = msgspec.structs.replace(
            found,
            device_id=server,
            index=nic.index,
            ours=nic.ours,
            revision=found.revision + 1,
            resource_request=request,
        )
        return self.ports[key]

    async def bind_ports(
        self, server: str, host: str, az: str, ports: Sequence[Port], options: BindOptions | None = None
    ) -> tuple[Port, ...]:
        """Bind ports. Raises Stale when another host or server has one of them."""
        asked = options or BindOptions()
        mine = None if asked.tried is None else {*asked.tried, host, ""}
        for port in ports:
            now = self.ports.get(port.id)
            if now is None or now.device_id != server or (mine is not None and now.host not in {*mine, port.host}):
                raise Stale(f"port {port.id} was changed by somebody else")
        bound = [
            msgspec.structs.replace(
                self.ports[port.id],
                host=host,
                profile=dict(asked.profiles.get(port.index, {})),
                vif_type="ovs",
                fixed_ips=addresses_of(self.ports[port.id], port.index, SUBNET, asked.subnets, asked.keeps),
                revision=self.ports[port.id].revision + 1,
            )
            for port in ports
        ]
        self.ports.update({port.id: port for port in bound})
        return tuple(bound)

    async def unbind_ports(self, server: str, ports: Sequence[Port]) -> None:
        for port in ports:
            if port.id in self.ports:
                now = self.ports[port.id]
                device = now.device_id if now.ours else ""
                if not now.ours:
                    self.forget_inactive(port.id)
                self.ports[port.id] = msgspec.structs.replace(
                    now, host="", vif_type="unbound", device_id=device, profile={}, revision=now.revision + 1
                )

    async def take_off_host(
        self, server: str, ports: Collection[str], *, keeps: Mapping[str, Sequence[FixedIp]] | None = None
    ) -> None:
        self.ports |= taken_off(self.ports, server, ports, keeps or {})

    async def release_ports(self, server: str, macs: Collection[str] = (), *, users: Sequence[Port] = ()) -> None:
        minted = minted_macs(server) | set(macs)
        for key, port in list(self.ports.items()):
            if port.mac in minted and port.ours:
                del self.ports[key]
            elif port.device_id == server:
                self.ports[key] = self._unbound(port)

    def _unbound(self, port: Port) -> Port:
        self.forget_inactive(port.id)
        return msgspec.structs.replace(
            port, device_id="", host="", vif_type="unbound", profile={}, revision=port.revision + 1
        )

    async def release_nic(self, server: str, nic: NicAsk) -> None:
        await self.drop_port(server, nic.port or nic.mac, ours=nic.ours)

    async def drop_port(self, server: str, port: str, *, ours: bool) -> None:
        found = self.ports.get(port)
        if found is None or found.device_id != server:
            return
        if ours:
            del self.ports[port]
        else:
            self.ports[port] = self._unbound(found)

    async def ports_of(self, server: str, token: str | None = None) -> tuple[Port, ...]:
        return tuple(port for port in self.ports.values() if port.device_id == server and not self.blind)

    async def port(self, port: str, token: str | None = None) -> Port:
        """A port. Raises NotFound."""
        if port not in self.ports or self.blind:
            raise NotFound(f"Port {port} could not be found.")
        return self.ports[port]

    async def held_by_ports(self) -> dict[str, dict[str, Port]]:
        return self._by_device()

    def _by_device(self) -> dict[str, dict[str, Port]]:
        found: dict[str, dict[str, Port]] = {}
        for key, port in self.ports.items():
            if port.device_id and not self.blind:
                found.setdefault(port.device_id, {})[key] = port
        return found

    async def group_names(self, groups: Sequence[str]) -> tuple[str, ...] | None:
        """There are no groups here, unless a test names some."""
        return None if self.groups is None else tuple(self.groups[each] for each in groups)

    async def names(self) -> NetworkNames:
        return NetworkNames(dict(self.network_names), self.groups)

    async def floating_of(self, ports: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """Floating addresses that a test gave to these ports."""
        return {port: rows for port, rows in self.floating_addresses.items() if port in ports}

    async def floating(self) -> dict[str, list[tuple[str, str]]]:
        return self.floating_addresses

    async def described_hosts(self, after: int, wait_s: int) -> ChangedHosts | None:
        """Nobody describes ports here."""
        return None

    async def port_descriptions(self, host: str, after: int) -> HostDescriptions | None:
        """Nobody describes ports here."""
        return None

    async def devices(self) -> dict[str, dict[str, Port]]:
        return self._by_device()

    async def release_strays(self, server: str, ports: Sequence[Port]) -> int:
        """Each only at the revision it was seen with, as the service does it."""
        went = 0
        for port in ports:
            now = self.ports.get(port.id)
            if now is None or now.revision != port.revision:
                continue
            went += 1
            if now.mac in minted_macs(server):
                del self.ports[port.id]
            else:
                self.ports[port.id] = self._unbound(now)
        return went

    async def ports_gone(self, ports: Collection[str], project: str) -> frozenset[str]:
        """Who may not see ports is shown none by id either, and cannot prove otherwise."""
        return frozenset() if self.blind else frozenset(ports) - self.ports.keys()

    async def subnets(self, network: str | None = None) -> tuple[SubnetFacts, ...]:
        return tuple(each for facts in (ROUTED_FACTS, NETWORK_FACTS) for each in facts.subnets)

    async def network(self, network: str) -> NetworkFacts:
        return ROUTED_FACTS if network == ROUTED else NETWORK_FACTS
