"""Ports exactly once, bound, let go: what the sagas do, with our own credentials (RULES §7).

A port of ours is found again by the MAC we minted: the network service refuses a second port with it, so a POST whose answer
was lost may be repeated.  Every PUT carries the revision it was decided on; when that is no longer the newest, the port is
read, and only if it is still this server's (and where we left it) is the PUT repeated with the new number.

The same functions do and repeat.  Nothing here remembers: what exists is asked of the service, by server and by MAC.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from moorage.clients.http import CREDENTIALS, Json, ServiceClient
from moorage.clients.network.decoding import BINDING_KEYS, port_of
from moorage.clients.network.fixed_ips import beside, exactly, wire_ip
from moorage.clients.network.port_create import TRIES_AT_A_REVISION_MAX, Making, all_of, macs_of
from moorage.clients.network.queries import path_of
from moorage.clients.network.subnet_rotation import SubnetsInTurn
from moorage.model.errors import (
    NotFound,
    PreconditionFailed,
    Refusal,
    Stale,
    Unauthenticated,
    Unavailable,
)
from moorage.model.network import (
    BindRefused,
    FixedIp,
    NicAsk,
    OtherSubnets,
    Port,
    minted_macs,
)

T = TypeVar("T")

UNBOUND = frozenset({"", "unbound"})
BINDING_FAILED = "binding_failed"
NO_ADDRESS_LEFT = "IpAddressGenerationFailure"
"""The network service's name of it."""
NO_ADDRESS = "no_address"
OWNERS_REASONS = {
    BINDING_FAILED: ": no mechanism of the network service can bind it where the server was to be",
    NO_ADDRESS: ": it was given no address",
    NO_ADDRESS_LEFT: ": no more IP addresses are available for it",
    "IpAddressGenerationFailureNoMatchingSubnet": ": its network has no subnet where the server was to be",
    "HostNotConnectedToAnySegment": ": its network does not reach where the server was to be",
}
"""By the service's kind of refusal: what is told of it without the names of hosts, segments and physical networks."""
"""It was said to be bound, and has no address."""


class Ports(Making):
    def __init__(self, network: ServiceClient) -> None:
        super().__init__(network)
        self._subnets = SubnetsInTurn()

    # ------------------------------------------------------------------------------------------------ binding

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
        """Bind every port to `host`, each by one PUT, together; the same call binds first and rebinds later.

        `subnets`: for a claimed NIC index, the subnet its address comes from; `beside`: what else its segment has, the other
        IPv4 subnets being asked in turn when that one has no address left. `profiles`: what is added to the binding profile (`allocation`, a PCI
        device). Raises BindRefused when another host may do.

        `tried`: hosts where earlier attempts of this operation may have left a port, though their results are not in
        `ports`; a port found on any other host is somebody else's doing, and Stale.  None: any host is believed, as long
        as the port is still this server's.  `unsure` costs nothing: a repeat is told from the revision.

        `keeps`: addresses that a port keeps beside the one of its subnet, on whatever segment; without a subnet: all that it is to have.
        """
        ours = None if tried is None else frozenset(tried) | {host, ""}
        subnet_of, beside_of, profile_of = subnets or {}, beside or {}, profiles or {}

        def wanted(at: int) -> _Bind:
            others = beside_of.get(at, OtherSubnets())
            named = (subnet_of[at], *others.spare) if at in subnet_of else ()
            kept = None if keeps is None or at not in keeps else tuple(keeps[at])
            return _Bind(host, az, self._subnets.in_turn(named), others, profile_of.get(at, {}), ours, kept)

        return tuple(await all_of([self._bind(server, port, wanted(port.index)) for port in ports]))

    async def _bind(self, server: str, port: Port, wanted: "_Bind") -> Port:
        """From the first of the subnets that has an address left."""
        while len(wanted.subnets) > 1:
            try:
                return await self._bind_now(server, port, wanted)
            except BindRefused as full:
                if full.code != NO_ADDRESS_LEFT:
                    raise
                self._subnets.spent(wanted.subnets[0])
                wanted = replace(wanted, subnets=wanted.subnets[1:])
        return await self._bind_now(server, port, wanted)

    async def _bind_now(self, server: str, port: Port, wanted: "_Bind") -> Port:
        now = port
        for _ in range(TRIES_AT_A_REVISION_MAX):
            body = _binding(server, now, wanted)
            try:
                now = _same_nic(port, await self._put(port.id, body, now.revision))
            except PreconditionFailed:
                now = _same_nic(port, await self._port(port.id))
                if now.device_id != server or not wanted.may_have_left(now, port.host):
                    raise Stale(
                        f"port {port.id} was changed by somebody else",
                        private=f"device {now.device_id!r} on host {now.host!r}; expected {server!r} on {port.host!r}",
                    ) from None
                if not _is_bound(now, wanted, body):
                    continue
            except (Unauthenticated, NotFound):
                raise
            except Refusal as said:
                raise refused(port, wanted.host, said.public, said.code) from said
            except Unavailable as out:
                raise _named_role(out, body) from out
            return _judged(now, wanted.host)
        raise Stale(f"port {port.id} keeps changing")

    # ---------------------------------------------------------------------------------------------- letting go

    async def unbind_ports(self, server: str, ports: Sequence[Port]) -> None:
        """The final unwinding: the user's ports are let go as they were; ours are only taken off their host."""
        rows = {row["id"]: row for row in await self._rows_of(server)}
        known = {port.id: port for port in ports}
        await all_of(
            [
                self._unbind(server, _same_nic(known[key], row))
                if known[key].ours
                else self._let_go(server, known[key], row)
                for key, row in rows.items()
                if key in known
            ]
        )

    async def take_off_host(
        self, server: str, ports: Collection[str], *, keeps: Mapping[str, Sequence[FixedIp]] | None = None
    ) -> None:
        """Ports that stay the server's while it is on no host: addresses, device and owner stay. Absent is success.

        `keeps`: by port, all that it is to have, where it may have been given others.  That a list does not show one is not enough for that:
        it is asked for by its id, for nobody would look after it later.
        """
        rows = [row for row in await self._rows_of(server) if row["id"] in ports]
        for port in sorted(set(ports) - {row["id"] for row in rows}):
            try:
                row = await self._port(port)
            except NotFound:
                continue
            if row["device_id"] == server:
                rows.append(row)
        kept = keeps or {}
        await all_of([self._take_off(server, port_of(row), kept.get(row["id"])) for row in rows])

    async def _take_off(self, server: str, port: Port, keeps: Sequence[FixedIp] | None) -> None:
        def body(now: Port) -> Json:
            wanted: Json = {"binding:host_id": ""} if now.host else {}
            if keeps is not None and {*now.fixed_ips} != {*keeps}:
                wanted["fixed_ips"] = exactly(now.fixed_ips, keeps)
            if (profile := _without_host(now.profile)) != now.profile:
                wanted["binding:profile"] = profile
            return wanted

        await self._put_while_ours(server, port, body)

    async def delete_made_ports(self, server: str, macs: Collection[str] = ()) -> None:
        """Delete every port of the server whose MAC we minted. Safe when there is none, and when it is done twice."""
        await self._maker.over(server)
        mine = minted_macs(server) | frozenset(macs)
        rows = await self._rows_of(server)
        await all_of([self._delete(row["id"]) for row in rows if row["mac_address"] in mine])

    async def release_ports(self, server: str, macs: Collection[str] = (), *, users: Sequence[Port] = ()) -> None:
        """The server goes: our ports are deleted, all others let go. Absent is success.

        `users`: the user's ports as they were taken, so that what we changed is put back; one that is not named keeps
        its address and loses what its profile says of the host.
        """
        await self._maker.over(server)
        mine = minted_macs(server) | frozenset(macs)
        known = {port.id: port for port in users}
        rows = await self._rows_of(server)
        await all_of(
            [
                self._delete(row["id"])
                if row["mac_address"] in mine and row["id"] not in known
                else self._let_go(server, known.get(row["id"]), row)
                for row in rows
            ]
        )

    async def release_strays(self, server: str, ports: Sequence[Port]) -> int:
        """Ports that name a server which does not have them: ours are deleted, others let go; how many of them went.

        Each only while it is what was seen: the revision goes with the call, so that one that an operation took or bound
        since then stays (RULES §7, §22).
        """
        mine = minted_macs(server)
        went = await all_of([self._release_seen(port, ours=port.mac in mine) for port in ports])
        return sum(went)

    async def _release_seen(self, port: Port, *, ours: bool) -> bool:
        try:
            if ours:
                headers = {"If-Match": f"revision_number={port.revision}"}
                await self._network.call("DELETE", path_of("ports", port.id), headers=headers)
            else:
                await self._put(port.id, _free(port, _without_host(port.profile)), port.revision)
        except (NotFound, PreconditionFailed):
            return False
        return True

    async def release_nic(self, server: str, nic: NicAsk) -> None:
        """One NIC that was to be attached is not: our port is deleted, the user's let go as it was. Absent is success."""
        await self._maker.over(server)
        if nic.ours:
            mine = macs_of(server, nic)
            rows = await self._rows_of(server)
            await all_of([self._delete(row["id"]) for row in rows if row["mac_address"] in mine])
        elif nic.port:
            await self._drop(server, nic.port, nic)

    async def drop_port(self, server: str, port: str, *, ours: bool) -> None:
        """A NIC was detached: our port is deleted, the user's keeps its addresses. Absent, or somebody else's, is success."""
        if not ours:
            await self._drop(server, port, None)
        elif await self._still_of(server, port) is not None:
            await self._delete(port)

    async def _drop(self, server: str, port: str, nic: NicAsk | None) -> None:
        row = await self._still_of(server, port)
        if row is not None:
            await self._let_go(server, None if nic is None else port_of(row, nic), row)

    async def _still_of(self, server: str, port: str) -> Json | None:
        try:
            row = await self._port(port)
        except NotFound:
            return None
        return row if row.get("device_id") == server else None

    async def _unbind(self, server: str, port: Port) -> None:
        """Off its host; what its profile says of the host, the providers it was given there too, goes."""

        def body(now: Port) -> Json:
            wanted: Json = {"binding:host_id": "", "device_owner": ""} if now.host else {}
            if (profile := _without_host(now.profile)) != now.profile:
                wanted["binding:profile"] = profile
            return wanted

        await self._put_while_ours(server, port, body)

    async def _let_go(self, server: str, known: Port | None, row: Json) -> None:
        def body(now: Port) -> Json:
            wanted = _free(now, known.original_profile if known else _without_host(now.profile))
            if known is not None and now.fixed_ips != known.original_fixed_ips:
                wanted["fixed_ips"] = [wire_ip(each) for each in known.original_fixed_ips]
            return wanted

        await self._put_while_ours(server, _same_nic(known, row) if known else port_of(row), body)

    async def _put_while_ours(self, server: str, now: Port, body: Callable[[Port], Json]) -> None:
        """PUT at the newest revision for as long as the port is this server's; somebody else's is left alone."""
        for _ in range(TRIES_AT_A_REVISION_MAX):
            try:
                if now.device_id != server or not (wanted := body(now)):
                    return
                await self._put(now.id, wanted, now.revision)
                return
            except PreconditionFailed:
                try:
                    now = _same_nic(now, await self._port(now.id))
                except NotFound:
                    return
            except NotFound:
                return
        raise Stale(f"port {now.id} keeps changing")

    async def _delete(self, port: str) -> None:
        try:
            await self._network.call("DELETE", path_of("ports", port))
        except NotFound:
            return


def _free(now: Port, profile: Mapping[str, Any]) -> Json:
    """What makes a port nobody's again."""
    wanted: Json = {"device_id": "", "device_owner": "", "binding:host_id": ""}
    if now.profile != profile:
        wanted["binding:profile"] = dict(profile)
    return wanted


def _same_nic(known: Port, row: Json) -> Port:
    """The port as it is now, with what only we know of it."""
    return msgspec.structs.replace(
        port_of(row),
        ours=known.ours,
        tag=known.tag,
        index=known.index,
        original_profile=known.original_profile,
        original_fixed_ips=known.original_fixed_ips,
        address_chosen=known.address_chosen,
    )


@dataclass(frozen=True)
class _Bind:
    """Where a port is to be bound, and how."""

    host: str
    az: str
    subnets: tuple[str, ...]
    """Of one segment; an address of any of them will do, and a new one is asked of the first."""
    beside: OtherSubnets
    profile: Mapping[str, Any]
    ours: frozenset[str] | None
    """Hosts where this operation may have put it; None: any."""
    keeps: tuple[FixedIp, ...] | None = None
    """Addresses that it has and keeps; None: it is not said."""

    def address_on(self, port: Port) -> bool:
        return any(each.subnet in self.subnets for each in port.fixed_ips)

    def addresses(self, port: Port) -> list[Json] | None:
        """What is said of its addresses; None: nothing."""
        if self.keeps is not None:
            if self.subnets:
                return beside(port.fixed_ips, self.subnets, self.beside.v6, self.keeps)
            return exactly(port.fixed_ips, self.keeps)
        if not self.subnets or port.address_chosen or self.address_on(port):
            return None
        left = {each.subnet for each in port.fixed_ips} & set(self.beside.elsewhere)
        return [
            *({"subnet_id": each} for each in (self.subnets[0], self.beside.v6) if each),
            *({"subnet_id": each, "delete_subnet": True} for each in sorted(left)),
        ]

    def has_addresses(self, port: Port) -> bool:
        """Those that were asked for."""
        if self.keeps is None:
            return self.address_on(port)
        kept = {*self.keeps} <= {*port.fixed_ips}
        return kept and (self.address_on(port) if self.subnets else len(self.keeps) == len(port.fixed_ips))

    def may_have_left(self, now: Port, before: str) -> bool:
        return self.ours is None or now.host == before or now.host in self.ours or now.vif_type == BINDING_FAILED


def _binding(server: str, port: Port, wanted: _Bind) -> Json:
    body: Json = {"device_id": server, "device_owner": f"compute:{wanted.az}", "binding:host_id": wanted.host}
    profile = wanted_profile(port, wanted.profile)
    if profile != port.profile:
        body["binding:profile"] = profile
    if (addresses := wanted.addresses(port)) is not None:
        body["fixed_ips"] = addresses
    return body


def wanted_profile(port: Port, added: Mapping[str, Any]) -> Json:
    """A port's binding profile on another host: what speaks of the host goes, and this is added."""
    return {**_without_host(port.profile), **port.original_profile, **added}


def _is_bound(now: Port, wanted: _Bind, body: Json) -> bool:
    """Did a PUT whose answer was lost do what this one asks?"""
    return (
        now.host == wanted.host
        and now.vif_type not in UNBOUND
        and now.profile == body.get("binding:profile", now.profile)
        and ("fixed_ips" not in body or wanted.has_addresses(now))
    )


def refused(port: Port, host: str, reason: str, kind: str) -> BindRefused:
    """The network service's own sentence is the operator's: it names hosts, segments and physical networks."""
    sentence = f"port {port.id} could not be bound{OWNERS_REASONS.get(kind, '')}"
    problem = BindRefused(sentence, code=kind, port=port.id, host=host, reason=reason, index=port.index)
    return problem.naming(f"port {port.id} could not be bound on host {host}: {reason}")


def _named_role(out: Unavailable, body: Json) -> Unavailable:
    """Our account may not bind ports at all: no other host would help, and the operator is told what would."""
    if out.code != CREDENTIALS or not out.private.startswith("403"):
        return out
    role = "service" if "binding:profile" in body else "admin or service"
    private = f"the user of [service_user] lacks the role {role}: {out.private}"
    return Unavailable("the network service does not let us bind ports", private=private, code=CREDENTIALS)


def _judged(port: Port, host: str) -> Port:
    """The service says 200 and binding_failed: only looking tells."""
    if port.vif_type == BINDING_FAILED or port.vif_type in UNBOUND:
        raise refused(port, host, "no mechanism of the network service can bind it there", BINDING_FAILED)
    if port.wants_address and not port.fixed_ips:
        raise refused(port, host, "it was given no address", NO_ADDRESS)
    return port


def _without_host(profile: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in profile.items() if key not in BINDING_KEYS}
