"""The Protocol for networks, ports and addresses, with two implementations.

`NetworkClient` uses a network service (Neutron, or the embedded one).  `FlatNetwork` (`flat.py`) has none; its addresses come
from pools of the cells.  The parts of `NetworkClient` document each method: its parameters, its result and the errors that it raises.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from moorage.clients.http import Json, Params
from moorage.clients.network.nic_validation import RequestedNics
from moorage.model.network import (
    AgentDevices,
    Binding,
    BindOptions,
    CheckedNics,
    FixedIp,
    HostWiring,
    NetworkFacts,
    NetworkNames,
    NicAsk,
    Port,
    SegmentFacts,
    SubnetFacts,
)
from moorage.model.port_description import ChangedHosts, HostDescriptions


class NetworkBackend(Protocol):
    """Networks, ports and addresses of servers. Methods raise a Refusal as Nova does, and Unavailable when the service is out."""

    async def extensions(self) -> frozenset[str]: ...

    # ---- reads

    async def port(self, port: str, token: str | None = None) -> Port: ...

    async def ports_of(self, server: str, token: str | None = None) -> tuple[Port, ...]: ...

    async def ports_on(self, network: str) -> tuple[Port, ...]: ...

    async def ports_gone(self, ports: Collection[str], project: str) -> frozenset[str]: ...

    async def devices(self) -> dict[str, dict[str, Port]]: ...

    async def held_by_ports(self) -> dict[str, dict[str, Port]]: ...

    async def network(self, network: str) -> NetworkFacts: ...

    async def networks(self) -> tuple[NetworkFacts, ...]: ...

    async def subnets(self, network: str | None = None) -> tuple[SubnetFacts, ...]: ...

    async def segments(self, network: str | None = None) -> tuple[SegmentFacts, ...]: ...

    async def segments_gone(self, segments: Collection[str]) -> frozenset[str]: ...

    async def rules_of(self, policy: str) -> tuple[Json, ...]: ...

    async def wirings(self) -> tuple[HostWiring, ...]: ...

    async def guarantees(self) -> tuple[AgentDevices, ...]: ...

    async def port_descriptions(self, host: str, after: int) -> HostDescriptions | None: ...

    async def described_hosts(self, after: int, wait_s: int) -> ChangedHosts | None: ...

    async def binds_nothing(self, host: str, ports: Sequence[Port]) -> bool: ...

    async def security_groups_of(self, server: str, token: str) -> list[dict[str, Any]]: ...

    async def group_names(self, groups: Sequence[str]) -> tuple[str, ...] | None: ...

    async def names(self) -> NetworkNames: ...

    async def floating(self) -> dict[str, list[tuple[str, str]]]: ...

    async def floating_of(self, ports: Sequence[str]) -> dict[str, list[tuple[str, str]]]: ...

    async def try_credentials(self) -> None: ...

    # ---- validation, with the user's token

    async def check(
        self,
        token: str,
        project: str,
        nics: RequestedNics,
        *,
        security_groups: Sequence[str] = (),
        servers: int = 1,
        hostname: str = "",
        external_allowed: bool = False,
    ) -> CheckedNics: ...

    def forget(self) -> None: ...

    # ---- ports

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

    # ---- second bindings, for moves

    async def has_bindings(self) -> bool: ...

    async def bindings(self, port: str) -> tuple[Binding, ...]: ...

    async def bind_inactive(
        self, server: str, host: str, ports: Sequence[Port], *, profiles: Mapping[int, Mapping[str, Any]] | None = None
    ) -> tuple[Port, ...]: ...

    async def activate_binding(self, server: str, host: str, ports: Sequence[Port]) -> tuple[Port, ...]: ...

    async def delete_binding(self, server: str, host: str, ports: Collection[str]) -> None: ...

    # ---- ports taken off a host and let go

    async def unbind_ports(self, server: str, ports: Sequence[Port]) -> None: ...

    async def take_off_host(
        self, server: str, ports: Collection[str], *, keeps: Mapping[str, Sequence[FixedIp]] | None = None
    ) -> None: ...

    async def release_ports(self, server: str, macs: Collection[str] = (), *, users: Sequence[Port] = ()) -> None: ...

    async def release_strays(self, server: str, ports: Sequence[Port]) -> int: ...

    async def release_nic(self, server: str, nic: NicAsk) -> None: ...

    async def drop_port(self, server: str, port: str, *, ours: bool) -> None: ...

    # ---- addresses of a server's ports

    async def add_address(self, server: str, network: str, *, held: Collection[str] = ()) -> None: ...

    async def drop_address(self, server: str, address: str) -> None: ...

    async def leave_addresses(self, server: str, left: Mapping[str, Collection[str]]) -> None: ...

    # ---- passed on with the user's token

    async def list_as(self, token: str, things: str, params: Params | None = None) -> list[Json]: ...

    async def show_as(self, token: str, things: str, thing: str) -> Json: ...

    async def make_as(self, token: str, things: str, fields: Json) -> Json: ...

    async def change_as(self, token: str, things: str, thing: str, fields: Json) -> Json: ...

    async def remove_as(self, token: str, things: str, thing: str) -> None: ...

    async def close(self) -> None: ...
