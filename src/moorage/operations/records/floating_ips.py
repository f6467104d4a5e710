"""Floating addresses, changed at the network service with the user's own token: Nova's proxies, which ended with 2.36
and 2.44.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.clients.http import Json
from moorage.clients.network import NetworkBackend
from moorage.model.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota, Refusal
from moorage.model.server import Floating, Nic, Server
from moorage.operations.records import servers
from moorage.sql import Database

FLOATING = "floatingips"
EXHAUSTED = frozenset({"IpAddressGenerationFailure", "ExternalIpAddressExhausted"})
DEFAULT_POOL = "nova"
"""The network from which addresses come when no pool is named."""


async def by_address(network: NetworkBackend, token: str, address: str) -> Json:
    """The floating address record of this address. Raises NotFound when there is none, Conflict when there are several."""
    rows = await network.list_as(token, FLOATING, {"floating_ip_address": address})
    if not rows:
        raise NotFound(f"Floating IP not found for address {address}.")
    if len(rows) > 1:
        raise Conflict(f"Multiple floating IPs are found for address {address}.")
    return rows[0]


async def device_of(network: NetworkBackend, token: str, floating: Json) -> str:
    """The device of the port to which it belongs; empty when it belongs to none."""
    if not floating.get("port_id"):
        return ""
    if details := floating.get("port_details"):
        return str(details["device_id"])
    try:
        return str((await network.show_as(token, "ports", floating["port_id"]))["device_id"])
    except NotFound:
        return ""


async def allocate(network: NetworkBackend, token: str, pool: str | None) -> Json:
    """Create a floating address from the pool (a network's name or id). Raises NotFound, Forbidden when the quota is
    exceeded, Conflict when several networks have the name, Invalid.
    """
    outside = await _pool(network, token, pool or DEFAULT_POOL)
    of_pool = f" in pool {pool}" if pool else ""
    try:
        return await network.make_as(token, FLOATING, {"floating_network_id": outside})
    except OverQuota as over:
        raise Forbidden(f"IP allocation over quota{of_pool}.", private=over.public) from over
    except Refusal as refused:
        if refused.code not in EXHAUSTED:
            raise
        none_left = f"No more floating IPs{of_pool or ' available'}."
        raise NotFound(none_left, private=refused.public) from refused


async def _pool(network: NetworkBackend, token: str, pool: str) -> str:
    input: dict[str, Any] = {"router:external": "True", "fields": "id"}
    rows = await network.list_as(token, "networks", {**input, "id": pool})
    rows = rows or await network.list_as(token, "networks", {**input, "name": pool})
    if not rows:
        raise NotFound("Floating IP pool not found.")
    if len(rows) > 1:
        raise Conflict(f"Multiple floating IP pools matches found for name '{pool}'")
    return str(rows[0]["id"])


async def release(network: NetworkBackend, token: str, floating: str) -> None:
    await network.remove_as(token, FLOATING, floating)


async def put_on(network: NetworkBackend, token: str, server: Server, address: str, fixed: str) -> None:
    """Associate the floating address with this fixed address. Raises Invalid, NotFound, Forbidden."""
    port = next(nic.port for nic in server.nics if nic.port and fixed in {each.address for each in nic.addresses})
    try:
        floating_ip = await by_address(network, token, address)
    except NotFound as missing:
        raise NotFound("floating IP not found") from missing
    except Conflict as several:
        raise _unable(server, address, fixed, several) from several
    try:
        await network.change_as(token, FLOATING, floating_ip["id"], {"port_id": port, "fixed_ip_address": fixed})
    except Forbidden:
        raise
    except Conflict as taken:
        raise Invalid(taken.public, private=taken.private) from taken
    except Refusal as refused:
        raise _unable(server, address, fixed, refused) from refused


def _unable(server: Server, address: str, fixed: str, why: Refusal) -> Invalid:
    return Invalid(
        f"Unable to associate floating IP {address} to fixed IP {fixed} for instance {server.id}. Error: {why.public}"
    )


async def take_off(network: NetworkBackend, token: str, floating: Json) -> None:
    await network.change_as(token, FLOATING, floating["id"], {"port_id": None})


def with_floating(nics: Sequence[Nic], addresses: Mapping[str, Sequence[tuple[str, str]]]) -> tuple[Nic, ...]:
    """The NICs with the floating addresses that the network service lists for their ports."""
    return tuple(
        msgspec.structs.replace(
            nic, floating=tuple(Floating(address, fixed) for address, fixed in sorted(addresses.get(str(nic.port), ())))
        )
        for nic in nics
    )


async def show_on(
    region: Database, cells: Mapping[str, Database], network: NetworkBackend, server: Server, now: int
) -> None:
    """Write the ports' current floating addresses into the server's record."""
    addresses = await network.floating_of([nic.port for nic in server.nics if nic.port])

    def changed(record: Server) -> Server:
        return msgspec.structs.replace(record, nics=with_floating(record.nics, addresses))

    await servers.change(region, cells, server.id, changed, now)
