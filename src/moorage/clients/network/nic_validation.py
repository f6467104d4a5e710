"""Checks whether a user may have these NICs, with the user's own token and before the request is accepted (RULES §7).

Networks and the project's remaining quota are cached for at most ten seconds for each project, so that most boots need no call.
A refusal is never based on the cache: the service is asked first.
"""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from moorage.clients.http import Json
from moorage.clients.network.decoding import port_of
from moorage.clients.network.network_api import NetworkApi, path_of
from moorage.clients.network.queries import NetworkQueries
from moorage.clients.network.ttl_cache import TtlCache
from moorage.model.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota, Refusal
from moorage.model.network import CheckedNics, NetworkFacts, NicAsk, Port
from moorage.model.request_groups import UNCLAIMED_VNIC_TYPES

RequestedNics: TypeAlias = "Sequence[NicAsk] | Literal['auto', 'none', 'unspecified']"

KEPT_S = 10.0
KEPT_MAX = 4096
DEFAULT_GROUP = "default"
OWNED_BY_NETWORKS = ("network:", "trunk:")
"""Owners of ports that the network service uses itself; another owner says who means to plug the port."""


class SecurityGroup(NamedTuple):
    """The id and the name of a security group."""

    id: str
    name: str


def _group(row: Json) -> SecurityGroup:
    return SecurityGroup(row["id"], row.get("name") or "")


class NicValidation:
    """Checks NICs with the user's token. Raises Refusals as Nova does."""

    def __init__(self, api: NetworkApi, queries: NetworkQueries) -> None:
        self._api, self._queries = api, queries
        self._networks: TtlCache[NetworkFacts] = TtlCache(KEPT_S, KEPT_MAX)
        self._groups: TtlCache[tuple[SecurityGroup, ...]] = TtlCache(KEPT_S, KEPT_MAX)
        self._free: TtlCache[int] = TtlCache(KEPT_S, KEPT_MAX)
        """How many ports a project's quota still allows; -1 is no limit."""

    def forget(self) -> None:
        """Empty the caches."""
        self._networks.clear()
        self._groups.clear()
        self._free.clear()

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
    ) -> CheckedNics:
        """Resolve and check everything that the user named. Raises the Refusal that Nova gives, with the reason.

        `servers`: how many servers at least must fit the port quota; `external_allowed`: whether policy lets the user attach to
        external networks (`network:attach_external_network`).
        """
        if nics == "none":
            await self._named_groups(token, project, security_groups)  # a wrong name is refused, even if it is not used
            return CheckedNics()
        auto = False
        if isinstance(nics, str):
            network_id, auto = await self._usual_network(token, project, nics)
            requests: tuple[NicAsk, ...] = (NicAsk(index=0, network=network_id or ""),) if network_id or auto else ()
        else:
            requests = tuple(nics)
        resolved, ports = await self._users_ports(token, project, requests, hostname)
        networks = await self._visible(token, project, resolved, external_allowed)
        resolved = tuple(_judged(nic, networks) for nic in resolved)
        await self._addresses_free(project, resolved)
        named = await self._named_groups(token, project, security_groups)
        groups = tuple(each.id for each in named)
        _groups_fit(groups, resolved, networks)
        free = await self._quota(project, sum(nic.ours for nic in resolved), servers)
        return CheckedNics(
            nics=resolved,
            networks=networks,
            ports=ports,
            security_groups=groups,
            group_names=await self._names_of_groups(token, resolved, ports, named),
            auto=auto,
            ports_free=free,
        )

    async def _usual_network(self, token: str, project: str, how: str) -> tuple[str | None, bool]:
        """The project's only usable network (shared networks count); for `auto` without one, a network that is made later."""
        own, shared = await asyncio.gather(
            self._list_networks(token, {"project_id": project, "shared": "false"}, how),
            self._list_networks(token, {"shared": "true"}, how),
        )
        usable = {row["id"]: row for row in own + shared if row.get("subnets") or how != "auto"}
        if len(usable) > 1:
            raise Conflict(
                "Multiple possible networks found, use a Network ID to be more specific.", code="network_ambiguous"
            )
        if usable:
            return next(iter(usable)), False
        if how == "unspecified":
            return None, False
        try:
            await self._api.call(
                "GET", path_of("auto-allocated-topology", project), token=token, params={"fields": "dry-run"}
            )
        except Refusal as refused:
            raise Conflict(
                f"Unable to automatically allocate a network for project {project}: {refused.public}",
                private=refused.private,
                code="auto_allocate_refused",
            ) from refused
        return None, True

    async def _list_networks(self, token: str, params: dict[str, str], how: str) -> list[Json]:
        query = {**params, "admin_state_up": "true"} if how == "auto" else params
        return [row async for row in self._api.pages("networks", query, token)]

    async def _users_ports(
        self, token: str, project: str, requests: Sequence[NicAsk], hostname: str
    ) -> tuple[tuple[NicAsk, ...], dict[str, Port]]:
        named = [nic.port for nic in requests if nic.port]
        if len(set(named)) < len(named):
            raise Invalid("a port is named twice", code="duplicate_port")
        shown = await asyncio.gather(*(self._users_port(token, project, port, hostname) for port in named))
        ports = {port.id: port for port in shown}
        return tuple(_with_port(nic, ports[nic.port]) if nic.port else nic for nic in requests), ports

    async def _users_port(self, token: str, project: str, port: str, hostname: str) -> Port:
        try:
            await self._api.port(port, token)  # checks that this user may see it
            users_port = port_of(
                await self._api.port(port)
            )  # all fields, with our own account: users do not see the binding
        except NotFound as missing:
            raise Invalid(f"Port id {port} could not be found.", code="port_not_found") from missing
        if users_port.project != project:
            raise Invalid(f"Port {port} not usable for this server.", code="port_not_usable")
        if users_port.device_id:
            raise Conflict(f"Port {port} is still in use.", code="port_in_use")
        if users_port.device_owner.startswith(OWNED_BY_NETWORKS):
            text = f"Port {port} is still in use: its device_owner is {users_port.device_owner}."
            raise Conflict(text, code="port_in_use")
        if users_port.wants_address and users_port.ip_allocation != "deferred" and not users_port.fixed_ips:
            raise Invalid(f"Port {port} requires a FixedIP in order to be used.", code="port_requires_fixed_ip")
        if users_port.dns_name and hostname and users_port.dns_name != hostname:
            raise Invalid(
                f"Port {port} not usable: its dns_name {users_port.dns_name} is not the server's hostname {hostname}.",
                code="port_not_usable_dns",
            )
        return users_port

    async def _visible(
        self, token: str, project: str, requests: Sequence[NicAsk], external_allowed: bool
    ) -> dict[str, NetworkFacts]:
        wanted = list(dict.fromkeys(nic.network for nic in requests if nic.network))
        answers = await asyncio.gather(*(self._one_network(token, project, network) for network in wanted))
        networks = {network.id: network for network in answers if network is not None}
        if lost := [network for network in wanted if network not in networks]:
            raise Invalid(f"Network {', '.join(lost)} could not be found.", code="network_not_found")
        for nic in requests:
            if nic.network and nic.ours:
                _may_attach(networks[nic.network], external_allowed)
        return networks

    async def _one_network(self, token: str, project: str, network: str) -> NetworkFacts | None:
        return await self._networks.once(lambda: self._ask_network(token, project, network), project, network)

    async def _ask_network(self, token: str, project: str, network: str) -> NetworkFacts | None:
        try:
            reply, full = await asyncio.gather(
                self._api.call("GET", path_of("networks", network), token=token), self._queries.network(network)
            )
        except NotFound:
            return None
        row: Json = reply.body["network"]
        facts = msgspec.structs.replace(full, shared=bool(row.get("shared")))
        if (
            facts.project == project or facts.shared
        ):  # an administrator sees more than other users, so this is not cached
            self._networks.put(facts, project, network)
        return facts

    async def _addresses_free(self, project: str, requests: Sequence[NicAsk]) -> None:
        for nic in requests:
            if nic.address and nic.ours and nic.network:
                query = {"network_id": nic.network, "fixed_ips": f"ip_address={nic.address}"}
                async for row in self._api.pages("ports", query):
                    by = ""
                    if row.get("project_id") == project:
                        by = f" on instance {row['device_id']}" if row.get("device_id") else f" by port {row['id']}"
                    raise Invalid(f"Fixed IP address {nic.address} is already in use{by}.", code="fixed_ip_in_use")

    async def _named_groups(self, token: str, project: str, groups: Sequence[str]) -> "tuple[SecurityGroup, ...]":
        """The named groups; none if only the default is named, which the network service assigns by itself.

        A name is that of one of the project's groups; an id may be that of any group that the user sees, also a shared one.
        """
        names = tuple(dict.fromkeys(groups))
        if not names or names == (DEFAULT_GROUP,):
            return ()
        if (kept := self._groups.get(project, *names)) is not None:
            return kept
        query = {"project_id": project, "fields": ["id", "name"]}
        known = [_group(row) async for row in self._api.pages("security-groups", query, token)]
        chosen: list[SecurityGroup] = []
        for name in names:
            matching = [each for each in known if each.id == name] or [each for each in known if each.name == name]
            matching = matching or [
                _group(row) async for row in self._api.pages("security-groups", {"id": name}, token)
            ]
            if not matching:
                raise Invalid(f"Security group {name} not found.", code="security_group_not_found")
            if len(matching) > 1:
                raise Conflict(f"Multiple security groups found matching '{name}'. Use an ID to be more specific.")
            chosen.append(matching[0])
        return self._groups.put(tuple(chosen), project, *names)

    async def _names_of_groups(
        self, token: str, requests: Sequence[NicAsk], ports: Mapping[str, Port], named: "Sequence[SecurityGroup]"
    ) -> tuple[str, ...]:
        """The names of the groups that the server's ports will have: the named groups on our ports, and on the user's ports their own."""
        names = [each.name or each.id for each in named] or [DEFAULT_GROUP]
        group_names = names if any(nic.ours and nic.port_security for nic in requests) else []
        theirs = sorted({group for port in ports.values() for group in port.security_groups})
        if theirs:
            query = {"id": theirs, "fields": ["id", "name"]}
            listed = [_group(row) async for row in self._api.pages("security-groups", query, token)]
            group_names = [*group_names, *(each.name or each.id for each in listed)]
        return tuple(dict.fromkeys(group_names))

    async def _quota(self, project: str, each: int, servers: int) -> int | None:
        if each == 0:
            return None
        free = await self._free.once(lambda: self._ports_free(project), project)
        if 0 <= free < each * servers:
            free = await self._ports_free(project)
        if 0 <= free < each * servers:
            raise OverQuota("Maximum number of ports exceeded", code="port_limit_exceeded")
        return None if free < 0 else free

    async def _ports_free(self, project: str) -> int:
        reply = await self._api.call("GET", path_of("quotas", project, "details"))
        port: Json = reply.body["quota"]["port"]
        free = -1 if port["limit"] < 0 else max(0, port["limit"] - port["used"] - port.get("reserved", 0))
        return self._free.put(free, project)


def _with_port(nic: NicAsk, port: Port) -> NicAsk:
    """The NIC with a user's port: its network, and the values that are restored when the port is released.

    Raises Invalid for a port that needs a device which no host has.
    """
    if port.vnic_type in UNCLAIMED_VNIC_TYPES:
        raise Invalid(
            f"Port {port.id} has the vNIC type {port.vnic_type}: no host of this cloud offers a device for it. Use a port of type "
            "normal, direct, macvtap or direct-physical.",
            code="vnic_type_unsupported",
        )
    return msgspec.structs.replace(
        nic,
        network=port.network,
        mac=port.mac,
        ours=False,
        vnic_type=port.vnic_type,
        revision=port.revision,
        original_profile=port.profile,
        original_fixed_ips=port.fixed_ips,
        resource_request=port.resource_request,
    )


def _judged(nic: NicAsk, networks: dict[str, NetworkFacts]) -> NicAsk:
    network = networks.get(nic.network or "")
    if network is None or not nic.ours:
        return nic
    if not network.subnets:
        raise Invalid(
            f"Network {network.id} requires a subnet in order to boot instances on.", code="network_requires_subnet"
        )
    if nic.address:
        _inside(nic.address, network)
    return msgspec.structs.replace(nic, port_security=network.port_security)


def _inside(address: str, network: NetworkFacts) -> None:
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError as wrong:
        raise Invalid(f"{address} is not an IP address", code="bad_address") from wrong
    if not any(wanted in ipaddress.ip_network(subnet.cidr) for subnet in network.subnets):
        raise Invalid(
            f"Fixed IP {address} is not a valid ip address for network {network.id}.", code="fixed_ip_outside"
        )


def _may_attach(network: NetworkFacts, external_allowed: bool) -> None:
    if network.external and not network.shared and not external_allowed:
        raise Forbidden(
            f"It is not allowed to create an interface on external network {network.id}", code="external_network"
        )


def _groups_fit(groups: Sequence[str], requests: Sequence[NicAsk], networks: dict[str, NetworkFacts]) -> None:
    for nic in requests:
        network = networks.get(nic.network or "")
        if groups and network is not None and nic.ours and not network.port_security:
            raise Invalid(
                "Network requires port_security_enabled and subnet associated in order to apply security groups.",
                code="security_group_cannot_be_applied",
            )
