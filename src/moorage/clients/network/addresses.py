"""Adds and removes fixed addresses of ports that servers have, with our own credentials and at the ports' newest revision."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from moorage.clients.http import Json
from moorage.clients.network.binding_rules import same_nic
from moorage.clients.network.concurrency import all_of
from moorage.clients.network.decoding import port_of
from moorage.clients.network.fixed_ips import wire_ip, without
from moorage.clients.network.network_api import NetworkApi
from moorage.clients.network.queries import NetworkQueries
from moorage.model.errors import Conflict, Invalid, NotFound, Stale
from moorage.model.network import Port, SubnetFacts


class PortAddresses:
    """Adds and removes fixed addresses."""

    def __init__(self, api: NetworkApi, queries: NetworkQueries) -> None:
        self._api, self._queries = api, queries

    async def add_address(self, server: str, network: str, *, held: Collection[str] = ()) -> None:
        """Add an address on the network to the first of the server's ports there that can get one.

        `held`: addresses that its ports only keep; they do not limit the choice of subnets.
        Raises NotFound when the server has no port on the network, and Conflict when no subnet has an address left.
        """
        ports = [port for port in await self._queries.ports_of(server) if port.network == network]
        subnets = await self._queries.subnets(network)
        if not ports or not subnets:
            raise NotFound(f"Network could not be found for instance {server}.")
        for port in ports:
            for subnet in near(port, subnets, held):
                try:
                    await self._change(server, port, partial(_with, subnet.id))
                    return
                except Stale:
                    raise
                except (Conflict, Invalid):  # this port gets none; the next one may
                    continue
        raise Conflict(f"No fixed IP addresses available for network: {network}", code="no_address")

    async def drop_address(self, server: str, address: str) -> None:
        """Remove an address from the server's port. Raises NotFound when no port of the server has it."""
        for port in await self._queries.ports_of(server):
            if address in {each.address for each in port.fixed_ips}:
                await self._change(server, port, partial(_without, address))
                return
        raise NotFound(f"Instance {server} does not have fixed IP '{address}'.")

    async def leave_addresses(self, server: str, left: Mapping[str, Collection[str]]) -> None:
        """Remove these addresses from the ports, and keep all others. A missing address or port is success."""

        async def leave(port: str, addresses: Collection[str]) -> None:
            row = await self._api.port_of_server(server, port)
            if row is not None:
                await self._change(server, port_of(row), partial(_leaving, addresses))

        await all_of([leave(port, addresses) for port, addresses in left.items()])

    async def _change(self, server: str, port: Port, change: Callable[[Port], Json]) -> None:
        await self._api.change_port(server, port, change, partial(same_nic, port))


def near(port: Port, subnets: Sequence[SubnetFacts], held: Collection[str]) -> list[SubnetFacts]:
    """Return the subnets of which a bound port can get addresses: on a routed network only those of its segment.

    The segment follows from the port's addresses, except those that it only keeps (`held`).
    """
    segment = {subnet.id: subnet.segment for subnet in subnets}
    on = {segment.get(each.subnet) for each in port.fixed_ips if each.address not in held} - {None}
    return [subnet for subnet in subnets if not on or subnet.segment in on]


def _with(subnet: str, now: Port) -> Json:
    return {"fixed_ips": [*map(wire_ip, now.fixed_ips), {"subnet_id": subnet}]}


def _without(address: str, now: Port) -> Json:
    kept = [each for each in now.fixed_ips if each.address != address]
    return {} if len(kept) == len(now.fixed_ips) else {"fixed_ips": [*map(wire_ip, kept)]}


def _leaving(addresses: Collection[str], now: Port) -> Json:
    left = without(now.fixed_ips, addresses)
    return {} if left is None else {"fixed_ips": left}
