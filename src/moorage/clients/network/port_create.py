"""Makes or takes exactly one port for each NIC; none is bound here (RULES §7).

Our own port is recognised by the MAC that we minted: the network service refuses a second port with it, so a POST whose answer
was lost may be repeated.
"""

from collections.abc import Sequence

import msgspec

from moorage.clients.http import Json
from moorage.clients.network.concurrency import all_of
from moorage.clients.network.decoding import port_of
from moorage.clients.network.network_api import TRIES_AT_A_REVISION_MAX, NetworkApi, path_of
from moorage.clients.network.port_batcher import PortBatcher
from moorage.clients.network.queries import NetworkQueries
from moorage.model.errors import Conflict, NotFound, PreconditionFailed, Stale
from moorage.model.network import SALTS_MAX, NicAsk, Port, mint_mac

SALTS = range(SALTS_MAX)
MAC_IN_USE = "MacAddressInUse"
DNS_INTEGRATION = "dns-integration"
"""The extension by which ports have names."""


class PortCreation:
    """Makes ports for NICs without one, and assigns ports that users made to the server."""

    def __init__(self, api: NetworkApi, batcher: PortBatcher, queries: NetworkQueries) -> None:
        self._api, self._batcher, self._queries = api, batcher, queries

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
        """Make or take exactly one port for each NIC; none is bound. One POST for each network, one PUT for each user's port.

        `unsure`: an earlier try may have done a part of it, so existing ports are looked for first. `hostname`: becomes each port's
        `dns_name`, where the service has names. A user's port is returned with its floating addresses: they are read when the port
        is the server's, so that a later change comes as an event of the server.
        Raises OverQuota, Conflict (a port is in use, no address is left) and other Refusals with the service's reason.
        """
        requests = [await self._with_network(project, nic) for nic in nics]
        have: dict[str, Json] = {}
        if unsure:
            have = {row["mac_address"]: row for row in await self._api.ports_of(server)}
        missing: dict[str, list[NicAsk]] = {}
        by_index: dict[int, Port] = {}
        for nic in requests:
            if nic.ours:
                mine = next((have[mac] for mac in macs_of(server, nic) if mac in have), None)
                if mine is None:
                    missing.setdefault(nic.network or "", []).append(nic)
                else:
                    by_index[nic.index] = port_of(mine, nic)
        dns_name = hostname if hostname and DNS_INTEGRATION in await self._api.extensions() else ""
        common: Json = {"project_id": project, "device_id": server, **({"dns_name": dns_name} if dns_name else {})}
        makings = [self._make(common, network, group, security_groups) for network, group in missing.items()]
        takings = [self._take(server, nic, dns_name) for nic in requests if not nic.ours]
        for ports in await all_of([*makings, *takings]):
            by_index.update({port.index: port for port in ports})
        return await self._with_floating(tuple(by_index[nic.index] for nic in requests))

    async def _with_floating(self, ports: tuple[Port, ...]) -> tuple[Port, ...]:
        """The ports with the floating addresses that users gave theirs; a port that we made has none yet."""
        floating = await self._queries.floating_of([port.id for port in ports if not port.ours])
        return tuple(msgspec.structs.replace(port, floating=tuple(floating.get(port.id, ()))) for port in ports)

    async def _with_network(self, project: str, nic: NicAsk) -> NicAsk:
        if nic.network or nic.port:
            return nic
        return msgspec.structs.replace(nic, network=await self._api.auto_network(project))

    async def _make(
        self, common: Json, network: str, nics: Sequence[NicAsk], groups: Sequence[str]
    ) -> tuple[Port, ...]:
        """Make new ports on one network in one POST, perhaps together with other servers' ports; ports that exist already are found."""
        server, project = common["device_id"], common["project_id"]
        bodies = [_new_port(common, nic, nic.mac or mint_mac(server, nic.index), groups) for nic in nics]
        alone = any(nic.address for nic in nics)
        try:
            made = await self._batcher.make(server, project, network, bodies, alone=alone)
        except Conflict as taken:
            if taken.code != MAC_IN_USE:
                raise
            rows = {row["mac_address"]: row for row in await self._api.ports_of(server)}
            ports: list[Port] = []
            for nic in nics:
                mine = next((rows[mac] for mac in macs_of(server, nic) if mac in rows), None)
                ports.append(port_of(mine, nic) if mine else await self._make_one(common, nic, groups))
            return tuple(ports)
        return tuple(port_of(row, nic) for row, nic in zip(made, nics, strict=True))

    async def _make_one(self, common: Json, nic: NicAsk, groups: Sequence[str]) -> Port:
        server = common["device_id"]
        for mac in macs_of(server, nic):
            try:
                body = {"port": _new_port(common, nic, mac, groups)}
                reply = await self._api.call("POST", path_of("ports"), body=body)
                return port_of(reply.body["port"], nic)
            except Conflict as taken:
                if taken.code != MAC_IN_USE:
                    raise
            try:
                row = await self._api.port_by_mac(nic.network or "", mac)
            except NotFound:  # it was deleted between the two calls: the next salt works too
                continue
            if row.get("device_id") == server:
                return port_of(row, nic)
        raise Conflict(f"no free MAC address on network {nic.network} for NIC {nic.index}", code=MAC_IN_USE)

    async def _take(self, server: str, nic: NicAsk, dns_name: str) -> tuple[Port, ...]:
        """Write our server on a user's port, unless it belongs to another device."""
        port = nic.port or ""
        revision = nic.revision
        wanted = {"device_id": server, **({"dns_name": dns_name} if dns_name else {})}
        for _ in range(TRIES_AT_A_REVISION_MAX):
            if revision is None:
                row = await self._api.port(port)
                if row.get("device_id") == server:
                    return (port_of(row, nic),)
                if row.get("device_id"):
                    raise Conflict(f"Port {port} is still in use.", code="port_in_use")
                revision = int(row.get("revision_number", 0))
            try:
                return (port_of(await self._api.put_port(port, wanted, revision), nic),)
            except PreconditionFailed:
                revision = None
            except NotFound as missing:
                raise NotFound(f"Port id {port} could not be found.", code="port_not_found") from missing
        raise Stale(f"port {port} keeps changing")


def macs_of(server: str, nic: NicAsk) -> list[str]:
    """Return the MACs to try for this NIC, in order; the first is the one in the journal."""
    return list(
        dict.fromkeys([nic.mac or mint_mac(server, nic.index), *(mint_mac(server, nic.index, n) for n in SALTS)])
    )


def _new_port(common: Json, nic: NicAsk, mac: str, groups: Sequence[str]) -> Json:
    body: Json = {
        **common,
        "network_id": nic.network,
        "mac_address": mac,
        "admin_state_up": True,
    }
    if nic.address:
        body["fixed_ips"] = [{"ip_address": nic.address}]
    if groups and nic.port_security:
        body["security_groups"] = list(groups)
    if nic.vnic_type != "normal":
        body["binding:vnic_type"] = nic.vnic_type
    return body
