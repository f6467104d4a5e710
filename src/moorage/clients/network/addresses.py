"""More and fewer fixed addresses on a port that a server already has: with our own credentials, at the newest revision."""

from collections.abc import Sequence
from functools import partial

from moorage.clients.http import Json
from moorage.clients.network.ports import Ports
from moorage.model.errors import Conflict, Invalid, NotFound, Stale
from moorage.model.network import FixedIp, Port, SubnetFacts


class Addresses(Ports):
    async def add_address(self, server: str, network: str) -> None:
        """One more address on the network, for the first of the server's ports there that can have one.

        Raises NotFound when it has none there, Conflict when no subnet gives any.
        """
        ports = [port for port in await self.ports_of(server) if port.network == network]
        subnets = await self.subnets(network)
        if not ports or not subnets:
            raise NotFound(f"Network could not be found for instance {server}.")
        for port in ports:
            for subnet in _near(port, subnets):
                try:
                    await self._put_while_ours(server, port, partial(_with, subnet.id))
                    return
                except Stale:
                    raise
                except (Conflict, Invalid):  # this one gives none; the next may
                    continue
        raise Conflict(f"No fixed IP addresses available for network: {network}", code="no_address")

    async def drop_address(self, server: str, address: str) -> None:
        """The server's port has the address no more. Raises NotFound when none has it."""
        for port in await self.ports_of(server):
            if address in {each.address for each in port.fixed_ips}:
                await self._put_while_ours(server, port, partial(_without, address))
                return
        raise NotFound(f"Instance {server} does not have fixed IP '{address}'.")


def _near(port: Port, subnets: Sequence[SubnetFacts]) -> list[SubnetFacts]:
    """The subnets a bound port can have addresses of: on a routed network only those of its segment."""
    segment = {subnet.id: subnet.segment for subnet in subnets}
    on = {segment.get(each.subnet) for each in port.fixed_ips} - {None}
    return [subnet for subnet in subnets if not on or subnet.segment in on]


def _wire(fixed: Sequence[FixedIp]) -> list[Json]:
    return [{"subnet_id": each.subnet, "ip_address": each.address} for each in fixed]


def _with(subnet: str, now: Port) -> Json:
    return {"fixed_ips": [*_wire(now.fixed_ips), {"subnet_id": subnet}]}


def _without(address: str, now: Port) -> Json:
    kept = [each for each in now.fixed_ips if each.address != address]
    return {} if len(kept) == len(now.fixed_ips) else {"fixed_ips": _wire(kept)}
