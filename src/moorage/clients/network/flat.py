"""A network back-end without ports: `[network] backend = "flat"` (S0.16, S0.17).

There is nothing to get or to make before a host is chosen: `ensure_ports` is a no-op, and all of the allocation is one call in
the conductor right after scheduling, from the pool of the cell that the host is in.  What people and drivers see of a NIC
looks like a bound port all the same, so no story and no host knows the difference.

Whatever a network service alone could do is refused, in one sentence.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from typing_extensions import override

from moorage.clients.http import Body, Params, ServiceClient, ServiceResponse
from moorage.clients.network import NetworkClient
from moorage.clients.network.nic_validation import Wanted as WantedNics
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.flat_network import AddressLease, AddressRequest, Exhausted, FlatPool, flat_id, vif_id
from moorage.model.ids import CellId
from moorage.model.network import (
    AgentDevices,
    Binding,
    BindRefused,
    CheckedNics,
    FixedIp,
    HostWiring,
    NetworkFacts,
    NicAsk,
    OtherSubnets,
    Port,
    SubnetFacts,
    minted_macs,
)

NO_PORTS = "This cloud has flat networks: addresses come from pools of the cells, and there are no ports."
DEFAULT_GROUP = "default"
VIF_TYPE = "bridge"


class AddressBook(Protocol):
    """Who holds which address; `main/flat_networks.py` keeps it in the region's database."""

    async def take(
        self, server: str, host: str, wants: Sequence[AddressRequest]
    ) -> tuple[AddressLease, ...] | Exhausted: ...

    async def give_back(self, server: str, nics: Collection[int] | None = None) -> None: ...

    async def of_server(self, server: str) -> Sequence[AddressLease]: ...

    async def holder(self, pool: FlatPool, slot: int) -> str | None: ...

    async def every(self) -> Sequence[AddressLease]: ...

    async def give_back_exactly(self, leases: Sequence[AddressLease]) -> int: ...


class NoService(ServiceClient):
    """What a call to the network service meets where there is none."""

    def __init__(self) -> None:
        super().__init__("network", "flat:")

    @override
    async def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: Body | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        counted: bool = True,
    ) -> ServiceResponse:
        raise Invalid(NO_PORTS, code="no_ports")


class FlatNetwork(NetworkClient):
    """The part of a network client that can be done without a network service."""

    def __init__(self, pools: Sequence[FlatPool], book: AddressBook, cell_of: Callable[[str], CellId | None]) -> None:
        super().__init__(NoService())
        self._pools = {(pool.network_id, pool.cell): pool for pool in pools}
        self._book = book
        self._cell_of = cell_of
        self._facts = {each: _facts(each, pools) for each in dict.fromkeys(pool.network_id for pool in pools)}

    # ------------------------------------------------------------------------------------------------- asking

    @override
    async def check(
        self,
        token: str,
        project: str,
        nics: WantedNics,
        *,
        security_groups: Sequence[str] = (),
        servers: int = 1,
        hostname: str = "",
        external_allowed: bool = False,
    ) -> CheckedNics:
        """Networks by id, or the only one there is, and addresses of their pools; neither ports nor security groups."""
        if nics == "none":
            return CheckedNics()
        asks = self._usual(nics) if isinstance(nics, str) else tuple(nics)
        for nic in asks:
            if nic.port is not None:
                raise Invalid(f"{NO_PORTS} Name a network.", code="no_ports")
        unknown = [nic.network for nic in asks if nic.network not in self._facts]
        if unknown:
            raise Invalid(f"Network {', '.join(unknown)} could not be found.", code="network_not_found")
        if set(security_groups) - {DEFAULT_GROUP}:
            raise Invalid(f"{NO_PORTS} So there are no security groups.", code="security_group_cannot_be_applied")
        asks = tuple(msgspec.structs.replace(nic, port_security=False) for nic in asks)
        return CheckedNics(asks, await self._where(asks))

    async def _where(self, asks: Sequence[NicAsk]) -> dict[str, NetworkFacts]:
        """The networks; of one with chosen addresses, only the cell whose pool they are of. Raises Invalid as Nova refuses addresses."""
        networks = {nic.network: self._facts[nic.network] for nic in asks}
        chosen: set[str] = set()
        for nic in [each for each in asks if each.address is not None]:
            address = nic.address or ""
            pool, slot = self._pool_with(nic.network, address)
            holder = "" if address in chosen else await self._book.holder(pool, slot)
            chosen.add(address)
            if holder is not None:
                said = f"Fixed IP address {address} is already in use."  # by whom, may be another project's affair
                raise Invalid(said, private=f"on instance {holder}", code="fixed_ip_in_use")
            facts = networks[nic.network]
            if pool.cell not in facts.cells:
                raise Invalid(f"Fixed IP {address} is of another cell than the others.", code="fixed_ip_outside")
            networks[nic.network] = msgspec.structs.replace(facts, cells=(pool.cell,))
        return networks

    def _pool_with(self, network: str, address: str) -> tuple[FlatPool, int]:
        """The pool that an address is of, and its slot. Raises Invalid."""
        for (each, _), pool in self._pools.items():
            if each == network and (slot := pool.slot(address)) is not None:
                return pool, slot
        raise Invalid(f"Fixed IP {address} is not a valid ip address for network {network}.", code="fixed_ip_outside")

    def _usual(self, how: str) -> tuple[NicAsk, ...]:
        if len(self._facts) > 1:
            raise Conflict(
                "Multiple possible networks found, use a Network ID to be more specific.", code="network_ambiguous"
            )
        if not self._facts and how == "auto":
            raise Conflict("Unable to automatically allocate a network: there is none.", code="auto_allocate_refused")
        return tuple(NicAsk(index=0, network=network) for network in self._facts)

    @override
    async def network(self, network: str) -> NetworkFacts:
        if network not in self._facts:
            raise NotFound(f"Network {network} could not be found.")
        return self._facts[network]

    @override
    async def networks(self) -> tuple[NetworkFacts, ...]:
        return tuple(self._facts.values())

    @override
    async def wirings(self) -> tuple[HostWiring, ...]:
        return ()

    @override
    async def binds_nothing(self, host: str, ports: Sequence[Port]) -> bool:
        return False

    @override
    async def guarantees(self) -> tuple[AgentDevices, ...]:
        return ()

    @override
    async def extensions(self) -> frozenset[str]:
        return frozenset()

    @override
    async def try_credentials(self) -> None:
        """There is nobody to refuse them."""

    @override
    async def ports_of(self, server: str, token: str | None = None) -> tuple[Port, ...]:
        return tuple(self._bound(lease) for lease in await self._book.of_server(server))

    @override
    async def port(self, port: str, token: str | None = None) -> Port:
        raise NotFound(f"Port id {port} could not be found.")

    @override
    async def devices(self) -> dict[str, dict[str, Port]]:
        found: dict[str, dict[str, Port]] = {}
        for port in map(self._bound, await self._book.every()):
            found.setdefault(port.device_id, {})[port.id] = port
        return found

    @override
    async def security_groups_of(self, server: str, token: str) -> list[dict[str, Any]]:
        return []

    # ------------------------------------------------------------------------------------- getting, giving, letting go

    @override
    async def ensure_ports(
        self,
        server: str,
        project: str,
        nics: Sequence[NicAsk],
        *,
        unsure: bool = False,
        security_groups: Sequence[str] = (),
    ) -> tuple[Port, ...]:
        """Nothing to get or to make (S0.16)."""
        return tuple(
            Port(
                id=vif_id(server, nic.index),
                network=nic.network,
                mac=nic.mac,
                index=nic.index,
                ip_allocation="deferred",
                device_id=server,
                tag=nic.tag,
                fixed_ips=() if nic.address is None else (FixedIp("", nic.address),),
                address_chosen=nic.address is not None,
            )
            for nic in nics
        )

    @override
    async def bind_ports(
        self,
        server: str,
        host: str,
        az: str,
        ports: Sequence[Port],
        *,
        subnets: Mapping[int, str] | None = None,
        beside: Mapping[int, OtherSubnets] | None = None,
        profiles: Mapping[int, Mapping[str, Any]] | None = None,
        tried: Collection[str] | None = None,
        unsure: bool = False,
        keeps: Mapping[int, Sequence[FixedIp]] | None = None,
    ) -> tuple[Port, ...]:
        """The whole allocation: an address for every NIC, of the pools of the host's cell. Raises BindRefused."""
        wants = [self._wanted(port, host) for port in ports]
        taken = await self._book.take(server, host, wants)
        if isinstance(taken, Exhausted):
            reason = f"no address of network {taken.pool.network} is left in cell {taken.pool.cell}"
            if taken.slot is not None:
                reason = f"{taken.pool.address(taken.slot)} of network {taken.pool.network} is in use"
            raise _refused(ports, taken.nic, host, reason)
        tags = {port.index: port.tag for port in ports}
        return tuple(msgspec.structs.replace(self._bound(lease), tag=tags[lease.nic]) for lease in taken)

    def _wanted(self, port: Port, host: str) -> AddressRequest:
        """An address of the pool of the host's cell, the chosen one if one was chosen."""
        pool = self._pool(port, host)
        if not port.address_chosen or not port.fixed_ips:
            return AddressRequest(port.index, port.mac, pool)
        address = port.fixed_ips[0].address
        slot = pool.slot(address)
        if slot is None:
            raise _refused(
                [port], port.index, host, f"{address} is no address of network {pool.network} in cell {pool.cell}"
            )
        return AddressRequest(port.index, port.mac, pool, slot)

    def _pool(self, port: Port, host: str) -> FlatPool:
        cell = self._cell_of(host)
        pool = None if cell is None else self._pools.get((port.network, cell))
        if pool is None:
            raise _refused([port], port.index, host, f"the network has no addresses in cell {cell}")
        return pool

    def _bound(self, lease: AddressLease) -> Port:
        pool = self._pools.get((lease.network, lease.cell))
        fixed = () if pool is None else (FixedIp(pool.subnet_id, pool.address(lease.slot)),)
        return Port(
            id=vif_id(lease.server, lease.nic),
            network=lease.network,
            mac=lease.mac,
            index=lease.nic,
            fixed_ips=fixed,
            status="ACTIVE",
            device_id=lease.server,
            host=lease.host,
            vif_type=VIF_TYPE,
            vif_details={"bridge": pool.bridge} if pool is not None and pool.bridge else {},
        )

    @override
    async def has_bindings(self) -> bool:
        """There is nothing to bind: an address of the pool of a cell is good on all its hosts."""
        return True

    @override
    async def bindings(self, port: str) -> tuple[Binding, ...]:
        leases = {vif_id(each.server, each.nic): each for each in await self._book.every()}
        if port not in leases:
            raise NotFound(f"Port id {port} could not be found.")
        now = self._bound(leases[port])
        return (Binding(port, now.host, True, vif_type=now.vif_type, vif_details=now.vif_details),)

    @override
    async def bind_inactive(
        self,
        server: str,
        host: str,
        ports: Sequence[Port],
        *,
        profiles: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> tuple[Port, ...]:
        """Nothing is written: whether the host's cell has the network is all there is to find out. Raises BindRefused."""
        for port in ports:
            self._pool(port, host)
        return tuple(msgspec.structs.replace(port, host=host) for port in ports)

    @override
    async def activate_binding(self, server: str, host: str, ports: Sequence[Port]) -> tuple[Port, ...]:
        return await self.bind_ports(server, host, "", ports)

    @override
    async def delete_binding(self, server: str, host: str, ports: Collection[str]) -> None:
        """There is none."""

    @override
    async def unbind_ports(self, server: str, ports: Sequence[Port]) -> None:
        await self._book.give_back(server, [port.index for port in ports])

    @override
    async def take_off_host(
        self, server: str, ports: Collection[str], *, keeps: Mapping[str, Sequence[FixedIp]] | None = None
    ) -> None:
        """An address of a flat network is its cell's, and the server stays in it."""

    @override
    async def release_ports(self, server: str, macs: Collection[str] = (), *, users: Sequence[Port] = ()) -> None:
        await self._book.give_back(server)

    @override
    async def release_strays(self, server: str, ports: Sequence[Port]) -> int:
        seen = {port.id: port for port in ports}
        held = [
            lease
            for lease in await self._book.of_server(server)
            if self._bound(lease) == seen.get(vif_id(server, lease.nic))
        ]
        return await self._book.give_back_exactly(held)

    @override
    async def delete_made_ports(self, server: str, macs: Collection[str] = ()) -> None:
        mine = minted_macs(server) | frozenset(macs)
        held = await self._book.of_server(server)
        await self._book.give_back(server, [each.nic for each in held if each.mac in mine])

    @override
    async def release_nic(self, server: str, nic: NicAsk) -> None:
        await self._book.give_back(server, [nic.index])

    @override
    async def drop_port(self, server: str, port: str, *, ours: bool) -> None:
        held = await self._book.of_server(server)
        await self._book.give_back(server, [each.nic for each in held if vif_id(server, each.nic) == port])


def _refused(ports: Sequence[Port], nic: int, host: str, reason: str) -> BindRefused:
    port = next((port.id for port in ports if port.index == nic), "")
    sentence = f"no address could be given to NIC {nic}"
    problem = BindRefused(sentence, code="no_address", port=port, host=host, reason=reason, index=nic)
    return problem.naming(f"{sentence} on host {host}: {reason}")


def _facts(network: str, pools: Sequence[FlatPool]) -> NetworkFacts:
    mine = [pool for pool in pools if pool.network_id == network]
    return NetworkFacts(
        id=flat_id(mine[0].network),
        name=mine[0].network,
        subnets=tuple(
            SubnetFacts(
                pool.subnet_id,
                pool.cidr,
                gateway=pool.gateway,
                dns=pool.dns,
                network=network,
                dhcp=False,
                pools=((pool.first, pool.last),),
            )
            for pool in mine
        ),
        shared=True,
        port_security=False,
        network_type="flat",
        cells=tuple(pool.cell for pool in mine),
    )
