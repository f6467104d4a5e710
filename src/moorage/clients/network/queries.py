"""Reads from the network service, with our own credentials: networks, segments, addresses left, ports of a server."""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from moorage.clients.http import Json, Params
from moorage.clients.network.decoding import devices_of, network_of, port_of, segment_of, subnet_of, wiring_of
from moorage.clients.network.network_api import NetworkApi, path_of
from moorage.clients.replies import CREDENTIALS
from moorage.model.errors import Internal, Invalid, NotFound, Unavailable, UnknownOutcome
from moorage.model.network import (
    AgentDevices,
    Availability,
    HostWiring,
    NetworkFacts,
    NetworkNames,
    Port,
    SegmentFacts,
    SubnetFacts,
    minted_macs,
)
from moorage.model.network_providers import NIC_SWITCH, OVS, known
from moorage.model.port_description import ChangedHosts, HostDescriptions

ResponseT = TypeVar("ResponseT")
NO_PORT = "00000000-0000-0000-0000-000000000000"
"""An id that no port and no project has."""
BINDERS = frozenset(
    {OVS, NIC_SWITCH, "Linux bridge agent", "Macvtap agent", "OVN Controller agent", "OVN Controller Gateway agent"}
)
"""Kinds of agents that bind the ports of their host."""
DEVICE_FIELDS = (
    "id",
    "network_id",
    "mac_address",
    "device_id",
    "revision_number",
    "binding:host_id",
    "binding:profile",
    "dns_name",
)
HELD_FIELDS = (
    "id",
    "network_id",
    "mac_address",
    "device_id",
    "device_owner",
    "revision_number",
    "fixed_ips",
    "resource_request",
    "security_groups",
    "binding:host_id",
    "binding:profile",
)


def _dead_for(port: Port, agents: Iterable[Json]) -> bool:
    binders = [each for each in agents if each.get("agent_type") in BINDERS]
    if port.vnic_type == "normal":
        binders = [each for each in binders if each["agent_type"] != NIC_SWITCH]
    return bool(binders) and not any(each.get("alive") for each in binders)


def _unlisted(network: Json, subnets: Iterable[SubnetFacts]) -> list[str]:
    """Subnets that the network names and the list lacks: a shorter list does not mean that they are deleted (RULES §22)."""
    listed = {each.id for each in subnets}
    return [each for each in network.get("subnets") or () if each not in listed]


class NetworkQueries:
    """Reads with our own credentials, except where a token is given."""

    def __init__(self, api: NetworkApi) -> None:
        self._api = api

    async def port(self, port: str, token: str | None = None) -> Port:
        """Return one port as the user of the token sees it. Raises NotFound."""
        return port_of(await self._api.port(port, token))

    async def ports_of(self, server: str, token: str | None = None) -> tuple[Port, ...]:
        """Return every port whose device is this server; `ours` is decided by the MAC."""
        minted = minted_macs(server)
        return tuple(
            [port_of(row, ours=row["mac_address"] in minted) for row in await self._api.ports_of(server, token)]
        )

    async def devices(self) -> dict[str, dict[str, Port]]:
        """Return device id → port id → the values that are needed to release the port: revision, MAC, host and binding profile."""
        by_device: dict[str, dict[str, Port]] = {}
        async for row in self._api.pages("ports", {"fields": list(DEVICE_FIELDS)}):
            if row["device_id"]:
                by_device.setdefault(row["device_id"], {})[row["id"]] = port_of(row)
        return by_device

    async def held_by_ports(self) -> dict[str, dict[str, Port]]:
        """Return device id → port id → its addresses, guarantees, groups and host, for all ports with a device, from one list."""
        by_device: dict[str, dict[str, Port]] = {}
        async for row in self._api.pages("ports", {"fields": list(HELD_FIELDS)}):
            if row["device_id"]:
                by_device.setdefault(row["device_id"], {})[row["id"]] = port_of(row)
        return by_device

    async def ports_gone(self, ports: Collection[str], project: str) -> frozenset[str]:
        """Return those ports of `project`'s server that no longer exist: the service answers 404 for the id (RULES §22).

        A user without the right to see a port gets the same answer.  So the 404 is believed only if the service shows us something
        else that needs the same rights, both before and after; otherwise no port counts as gone.
        """
        return await self._gone("ports", ports, (("agents", {}), ("ports", {"project_id": project})))

    async def segments_gone(self, segments: Collection[str]) -> frozenset[str]:
        """Do the same for segments, which only administrators see."""
        return await self._gone("segments", segments, (("segments", {}), ("agents", {})))

    async def _gone(
        self, things: str, ids: Collection[str], proofs: Sequence[tuple[str, Mapping[str, str]]]
    ) -> frozenset[str]:
        if not ids or not await self._shows_any(proofs):
            return frozenset()
        gone = frozenset([each for each in ids if await self._has_no(things, each)])
        return gone if gone and await self._shows_any(proofs) else frozenset()

    async def _has_no(self, things: str, id: str) -> bool:
        try:
            await self._api.call("GET", path_of(things, id))
        except NotFound:
            return True
        return False

    async def _shows_any(self, proofs: Sequence[tuple[str, Mapping[str, str]]]) -> bool:
        """Whether the service shows anything that needs these rights: only administrators see agents, but not every service has agents."""
        for things, only in proofs:
            try:
                query: Params = {**only, "limit": 1, "fields": "id"}
                if (await self._api.call("GET", path_of(things), params=query)).body[things]:
                    return True
            except NotFound:  # this service has none of these
                continue
            except Unavailable as out:
                if out.code != CREDENTIALS:
                    raise
        return False

    async def ports_on(self, network: str) -> tuple[Port, ...]:
        """Return every port of a network, of all projects."""
        return tuple([port_of(row) async for row in self._api.pages("ports", {"network_id": network})])

    async def segments(self, network: str | None = None) -> tuple[SegmentFacts, ...]:
        """Return the segments of one network, or of all."""
        if "segment" not in await self._api.extensions():
            return ()
        params = {"network_id": network} if network else {}
        return tuple([segment_of(row) async for row in self._api.pages("segments", params)])

    async def subnets(self, network: str | None = None) -> tuple[SubnetFacts, ...]:
        """Return the subnets of one network, or of all."""
        params = {"network_id": network} if network else {}
        return tuple([subnet_of(row) async for row in self._api.pages("subnets", params)])

    async def network(self, network: str) -> NetworkFacts:
        """Return one network with its segments and subnets. Raises NotFound, and Unavailable when the list lacks one of its subnets."""
        reply, segments, subnets = await asyncio.gather(
            self._api.call("GET", path_of("networks", network)), self.segments(network), self.subnets(network)
        )
        row: Json = reply.body["network"]
        if lacking := _unlisted(row, subnets):
            raise Unavailable(
                f"The network service does not list all subnets of network {network} now.",
                private=f"not listed: {', '.join(lacking)}",
            )
        return network_of(row, segments, subnets)

    async def networks(self) -> tuple[NetworkFacts, ...]:
        """Return every network of the region with its segments and subnets, from three lists.

        A network with a subnet that the list lacks is left out, because its addresses are not known.
        """
        segments: dict[str, list[SegmentFacts]] = {}
        subnets: dict[str, list[SubnetFacts]] = {}
        for segment in await self.segments():
            segments.setdefault(segment.network, []).append(segment)
        for subnet in await self.subnets():
            subnets.setdefault(subnet.network, []).append(subnet)
        return tuple(
            [
                network_of(row, segments.get(row["id"], ()), subnets.get(row["id"], ()))
                async for row in self._api.pages("networks", {})
                if not _unlisted(row, subnets.get(row["id"], ()))
            ]
        )

    async def rules_of(self, policy: str) -> tuple[Json, ...]:
        """Return the rules of a QoS policy; none if the policy does not exist, or the service has no QoS."""
        try:
            reply = await self._api.call("GET", path_of("qos", "policies", policy))
        except NotFound:
            return ()
        return tuple(reply.body["policy"].get("rules") or ())

    async def availability(self, network: str) -> tuple[Availability, ...]:
        """Return each subnet's number of addresses, and how many are in use."""
        body = (await self._api.call("GET", path_of("network-ip-availabilities", network))).body
        rows: list[Json] = body["network_ip_availability"]["subnet_ip_availability"]
        return tuple(
            Availability(row["subnet_id"], row["ip_version"], row["cidr"], int(row["total_ips"]), int(row["used_ips"]))
            for row in rows
        )

    async def wirings(self) -> tuple[HostWiring, ...]:
        """Return the physical networks of hosts, as the service's own agents report them."""
        return tuple([wiring_of(row) async for row in self._api.pages("agents", {}) if row.get("configurations")])

    async def binds_nothing(self, host: str, ports: Sequence[Port]) -> bool:
        """Tell whether all agents that could bind one of these ports on this host are dead; false if the service has no such agents."""
        if not ports:
            return False
        rows = [row async for row in self._api.pages("agents", {"host": host}) if row.get("host") == host]
        return any(_dead_for(port, rows) for port in ports)

    async def guarantees(self) -> tuple[AgentDevices, ...]:
        """Return what the service's own agents can guarantee; agents that guarantee nothing are left out."""
        devices = [devices_of(row) async for row in self._api.pages("agents", {})]
        return tuple(each for each in devices if known(each.kind) and (each.bandwidths or each.packets))

    async def port_descriptions(self, host: str, after: int) -> HostDescriptions | None:
        """How the host is to wire its ports: what is newer than version `after`. None where the service describes none.

        Raises Internal when the answer cannot be read.
        """
        try:
            reply = await self._api.call("GET", path_of("port-descriptions"), params={"host": host, "after": after})
        except NotFound:
            return None
        try:
            return msgspec.convert(reply.body, HostDescriptions)
        except msgspec.ValidationError as garbled:
            raise Internal(
                "the network service describes ports in a way that is not known", private=str(garbled)
            ) from garbled

    async def described_hosts(self, after: int, wait_s: int) -> ChangedHosts | None:
        """Which hosts have ports that are to be wired otherwise than by version `after`; the service waits so many seconds for the first.

        None where the service does not say; its release may describe ports nevertheless. Raises Internal when the answer cannot be read.
        """
        try:
            reply = await self._api.call("GET", path_of("port-descriptions"), params={"after": after, "wait_s": wait_s})
        except (NotFound, Invalid):
            return None
        try:
            return msgspec.convert(reply.body, ChangedHosts)
        except msgspec.ValidationError as garbled:
            raise Internal(
                "the network service says in a way that is not known which hosts changed", private=str(garbled)
            ) from garbled

    async def try_credentials(self) -> None:
        """Check our credentials with cheap calls that change nothing, for each role that we need.

        Lists do not show whether we are an administrator: who is none gets empty ones, and ports without the attribute
        `resource_request`, with which guarantees are claimed.  So a port that is there must show that attribute; while there is no
        port, the service must tell the quota of a project that is not ours, which it tells to administrators only.  Binding a port and writing its binding profile needs the role `service` (or
        what the service's policy asks instead): we ask for a binding of a port that cannot exist.  The answer is 403 if we may not
        bind ports, and 404 if we may.  Neutron 29 answers 500 if we may: that failure happens after the policy check, so it means that
        our account is accepted.
        Raises a Refusal, or Unavailable with the code `credentials` when a role is missing.
        """
        await self._prove_administrator()
        try:
            bindings, nowhere = path_of("ports", NO_PORT, "bindings"), {"binding": {"host": "nowhere"}}
            await _allowed("service", self._api.service.call_uncounted("POST", bindings, body=nowhere))
        except (NotFound, UnknownOutcome):
            return

    async def _prove_administrator(self) -> None:
        """Raises Unavailable with the code `credentials` when nothing that only administrators get is given to us."""
        if "port-resource-request" in await self._api.extensions():
            query: Params = {"limit": 1, "fields": ["id", "resource_request"]}
            shown = (await _allowed("admin", self._api.call("GET", path_of("ports"), params=query))).body["ports"]
            if any("resource_request" not in row for row in shown):
                raise _lacks("admin", "it is not shown what ports are guaranteed (`get_port:resource_request`)")
            if shown:
                return
        try:
            quota = (await _allowed("admin", self._api.call("GET", path_of("quotas", NO_PORT)))).body.get("quota")
        except NotFound:
            quota = None
        if not quota:
            raise _lacks("admin", "it is not told the quota of another project (`get_quota`)")

    async def security_groups_of(self, server: str, token: str) -> list[dict[str, Any]]:
        """Return the security groups of a server's ports, as the service describes them, with the user's token."""
        ids: dict[str, None] = {}
        async for row in self._api.pages("ports", {"device_id": server, "fields": ["id", "security_groups"]}, token):
            ids.update(dict.fromkeys(row.get("security_groups", ())))
        if not ids:
            return []
        return [row async for row in self._api.pages("security-groups", {"id": list(ids)}, token)]

    async def group_names(self, groups: Sequence[str]) -> tuple[str, ...] | None:
        """Return the names of these security groups, or ids if they have none; None: the service has no security groups."""
        if "security-group" not in await self._api.extensions():
            return None
        if not groups:
            return ()
        query = {"id": list(groups), "fields": ["id", "name"]}
        names = {row["id"]: row.get("name") or row["id"] async for row in self._api.pages("security-groups", query)}
        return tuple(dict.fromkeys(names[each] for each in groups if each in names))

    async def names(self) -> NetworkNames:
        """Return the names of all networks and security groups, from two lists."""
        query = {"fields": ["id", "name"]}
        networks = {row["id"]: row.get("name") or "" async for row in self._api.pages("networks", query)}
        if "security-group" not in await self._api.extensions():
            return NetworkNames(networks)
        groups = {row["id"]: row.get("name") or row["id"] async for row in self._api.pages("security-groups", query)}
        return NetworkNames(networks, groups)

    async def floating_of(self, ports: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """Return the floating addresses of these ports: port → (floating address, its fixed address)."""
        return await self._floating({"port_id": list(ports)}) if ports else {}

    async def floating(self) -> dict[str, list[tuple[str, str]]]:
        """Return the floating addresses of all ports, in the same form."""
        return await self._floating({})

    async def _floating(self, which: Params) -> dict[str, list[tuple[str, str]]]:
        by_port: dict[str, list[tuple[str, str]]] = {}
        if "router" not in await self._api.extensions():
            return by_port
        query = {**which, "fields": ["id", "port_id", "floating_ip_address", "fixed_ip_address"]}
        async for row in self._api.pages("floatingips", query):
            if row["port_id"]:
                by_port.setdefault(row["port_id"], []).append((row["floating_ip_address"], row["fixed_ip_address"]))
        return by_port


async def _allowed(role: str, call: Awaitable[ResponseT]) -> ResponseT:
    """Says which role our user lacks, where the service refuses the call with 403."""
    try:
        return await call
    except Unavailable as out:
        if out.code == CREDENTIALS and out.private.startswith("403"):
            raise _lacks(role, out.private, out.public) from out
        raise


def _lacks(role: str, why: str, public: str = "The network service does not give us what we need.") -> Unavailable:
    return Unavailable(public, private=f"the user of [service_user] lacks the role {role}: {why}", code=CREDENTIALS)
