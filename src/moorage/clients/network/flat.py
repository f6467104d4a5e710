"""A network back-end without ports: `[network] backend = "flat"` (S0.16, S0.17).

Nothing is reserved or made before a host is chosen: `ensure_ports` only describes the NICs.  The conductor takes all addresses
in one call after scheduling, from the pools of the host's cell.  A NIC looks like a bound port to users and drivers, so
operations and hosts treat both in the same way.

Requests that need a network service are refused with one sentence.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from moorage.clients.http import Json, Params
from moorage.clients.network.flat_validation import NO_PORTS, AddressBook, FlatValidation
from moorage.model.errors import Invalid, NotFound
from moorage.model.flat_network import AddressLease, AddressRequest, Exhausted, FlatPool, vif_id
from moorage.model.ids import CellId
from moorage.model.network import (
    AgentDevices,
    Binding,
    BindOptions,
    BindRefused,
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

VIF_TYPE = "bridge"


NETWORKS = "networks"


def _refuse() -> NoReturn:
    raise Invalid(NO_PORTS, code="no_ports")


class FlatNetwork:
    """`NetworkBackend` without a network service. Methods that need one raise Invalid with the code `no_ports`."""

    def __init__(self, pools: Sequence[FlatPool], book: AddressBook, cell_of: Callable[[str], CellId | None]) -> None:
        self._pools = {(pool.network_id, pool.cell): pool for pool in pools}
        self._book = book
        self._cell_of = cell_of
        validation = FlatValidation(tuple(self._pools.values()), book)
        self._facts = validation.facts
        self.check = validation.check

    def forget(self) -> None:
        """Do nothing: there is no cache."""

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    # ---- reads -------------------------------------------------------------------------------------------------------

    async def network(self, network: str) -> NetworkFacts:
        """Return one network. Raises NotFound."""
        if network not in self._facts:
            raise NotFound(f"Network {network} could not be found.")
        return self._facts[network]

    async def networks(self) -> tuple[NetworkFacts, ...]:
        return tuple(self._facts.values())

    async def names(self) -> NetworkNames:
        return NetworkNames({id: facts.name for id, facts in self._facts.items()})

    async def floating(self) -> dict[str, list[tuple[str, str]]]:
        return {}

    async def wirings(self) -> tuple[HostWiring, ...]:
        return ()

    async def binds_nothing(self, host: str, ports: Sequence[Port]) -> bool:
        return False

    async def guarantees(self) -> tuple[AgentDevices, ...]:
        return ()

    async def described_hosts(self, after: int, wait_s: int) -> ChangedHosts | None:
        """Nobody describes ports here."""
        return None

    async def port_descriptions(self, host: str, after: int) -> HostDescriptions | None:
        """Nobody describes ports here."""
        return None

    async def extensions(self) -> frozenset[str]:
        return frozenset()

    async def try_credentials(self) -> None:
        """Do nothing: there is no service that could refuse them."""

    async def ports_of(self, server: str, token: str | None = None) -> tuple[Port, ...]:
        return tuple(self._bound(lease) for lease in await self._book.of_server(server))

    async def port(self, port: str, token: str | None = None) -> Port:
        """Find no port: there are none. Raises NotFound."""
        raise NotFound(f"Port id {port} could not be found.")

    async def devices(self) -> dict[str, dict[str, Port]]:
        by_device: dict[str, dict[str, Port]] = {}
        for port in map(self._bound, await self._book.every()):
            by_device.setdefault(port.device_id, {})[port.id] = port
        return by_device

    async def security_groups_of(self, server: str, token: str) -> list[dict[str, Any]]:
        return []

    # ------------------------------------------------------------------------------------------ taking, giving, releasing

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
        """Describe the NICs; there are no ports to make or take (S0.16)."""
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

    async def bind_ports(
        self, server: str, host: str, az: str, ports: Sequence[Port], options: BindOptions | None = None
    ) -> tuple[Port, ...]:
        """Take an address for every NIC from the pools of the host's cell. Raises BindRefused when one cannot be had."""
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
        """The wanted address of the pool of the host's cell: the chosen one if the user chose one."""
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

    async def has_bindings(self) -> bool:
        """Return false: there is nothing to bind, because an address of a cell's pool works on all its hosts."""
        return True

    async def bindings(self, port: str) -> tuple[Binding, ...]:
        """Return the only binding of a NIC, which is active. Raises NotFound when no NIC has this id."""
        leases = {vif_id(each.server, each.nic): each for each in await self._book.every()}
        if port not in leases:
            raise NotFound(f"Port id {port} could not be found.")
        now = self._bound(leases[port])
        return (Binding(port, now.host, True, vif_type=now.vif_type, vif_details=now.vif_details),)

    async def bind_inactive(
        self,
        server: str,
        host: str,
        ports: Sequence[Port],
        *,
        profiles: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> tuple[Port, ...]:
        """Check that the host's cell has the networks; nothing is written. Raises BindRefused when it has not."""
        for port in ports:
            self._pool(port, host)
        return tuple(msgspec.structs.replace(port, host=host) for port in ports)

    async def activate_binding(self, server: str, host: str, ports: Sequence[Port]) -> tuple[Port, ...]:
        return await self.bind_ports(server, host, "", ports)

    async def delete_binding(self, server: str, host: str, ports: Collection[str]) -> None:
        """Do nothing: there are no bindings."""

    async def unbind_ports(self, server: str, ports: Sequence[Port]) -> None:
        await self._book.give_back(server, [port.index for port in ports])

    async def take_off_host(
        self, server: str, ports: Collection[str], *, keeps: Mapping[str, Sequence[FixedIp]] | None = None
    ) -> None:
        """Keep the addresses: they belong to the cell, and the server stays in it."""

    async def release_ports(self, server: str, macs: Collection[str] = (), *, users: Sequence[Port] = ()) -> None:
        await self._book.give_back(server)

    async def release_strays(self, server: str, ports: Sequence[Port]) -> int:
        known = {port.id: port for port in ports}
        held = [
            lease
            for lease in await self._book.of_server(server)
            if self._bound(lease) == known.get(vif_id(server, lease.nic))
        ]
        return await self._book.give_back_exactly(held)

    async def release_nic(self, server: str, nic: NicAsk) -> None:
        await self._book.give_back(server, [nic.index])

    async def drop_port(self, server: str, port: str, *, ours: bool) -> None:
        held = await self._book.of_server(server)
        await self._book.give_back(server, [each.nic for each in held if vif_id(server, each.nic) == port])

    # ---- methods that need a network service -------------------------------------------------------------------------

    async def ports_gone(self, ports: Collection[str], project: str) -> frozenset[str]:
        return _refuse() if ports else frozenset()

    async def segments_gone(self, segments: Collection[str]) -> frozenset[str]:
        return _refuse() if segments else frozenset()

    async def held_by_ports(self) -> dict[str, dict[str, Port]]:
        _refuse()

    async def ports_on(self, network: str) -> tuple[Port, ...]:
        _refuse()

    async def segments(self, network: str | None = None) -> tuple[SegmentFacts, ...]:
        return ()

    async def subnets(self, network: str | None = None) -> tuple[SubnetFacts, ...]:
        _refuse()

    async def rules_of(self, policy: str) -> tuple[Json, ...]:
        _refuse()

    async def group_names(self, groups: Sequence[str]) -> tuple[str, ...] | None:
        """Return None: there are no security groups."""
        return None

    async def floating_of(self, ports: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        return _refuse() if ports else {}

    async def add_address(self, server: str, network: str, *, held: Collection[str] = ()) -> None:
        _refuse()

    async def drop_address(self, server: str, address: str) -> None:
        """Refuse to remove an address. Raises NotFound when the server does not have it, and Invalid otherwise."""
        ports = await self.ports_of(server)
        if any(each.address == address for port in ports for each in port.fixed_ips):
            _refuse()
        raise NotFound(f"Instance {server} does not have fixed IP '{address}'.")

    async def leave_addresses(self, server: str, left: Mapping[str, Collection[str]]) -> None:
        if left:
            _refuse()

    async def list_as(self, token: str, things: str, params: Params | None = None) -> list[Json]:
        """List the flat networks: all users may use all of them, and none is external. Raises Invalid for other things."""
        if things != NETWORKS:
            _refuse()
        if params is not None and params.get("router:external") == "True":
            return []
        return [_row(each) for each in self._facts.values()]

    async def show_as(self, token: str, things: str, thing: str) -> Json:
        """Show a flat network. Raises NotFound; Invalid for other things."""
        if things != NETWORKS:
            _refuse()
        return _row(await self.network(thing))

    async def make_as(self, token: str, things: str, fields: Json) -> Json:
        _refuse()

    async def change_as(self, token: str, things: str, thing: str, fields: Json) -> Json:
        _refuse()

    async def remove_as(self, token: str, things: str, thing: str) -> None:
        _refuse()


def _row(facts: NetworkFacts) -> Json:
    return {"id": facts.id, "name": facts.name}


def _refused(ports: Sequence[Port], nic: int, host: str, reason: str) -> BindRefused:
    port = next((port.id for port in ports if port.index == nic), "")
    sentence = f"no address could be given to NIC {nic}"
    problem = BindRefused(sentence, code="no_address", port=port, host=host, reason=reason, index=nic)
    return problem.naming(f"{sentence} on host {host}: {reason}")
