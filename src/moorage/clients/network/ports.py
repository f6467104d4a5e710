"""Ports exactly once, bound, let go: what the sagas do, with our own credentials (RULES §7).

A port of ours is found again by the MAC we minted: the network service refuses a second port with it, so a POST whose answer
was lost may be repeated.  Every PUT carries the revision it was decided on; when that is no longer the newest, the port is
read, and only if it is still this server's (and where we left it) is the PUT repeated with the new number.

The same functions do and repeat.  Nothing here remembers: what exists is asked of the service, by server and by MAC.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from moorage.clients.http import Json
from moorage.clients.network.checks import Checks
from moorage.clients.network.facts import path_of
from moorage.clients.network.wire import BINDING_KEYS, port_of
from moorage.model.errors import (
    Conflict,
    NotFound,
    PreconditionFailed,
    Problem,
    Refusal,
    Stale,
    Unauthenticated,
    Unavailable,
    UnknownOutcome,
)
from moorage.model.network import (
    SALTS_MAX,
    BindRefused,
    FixedIp,
    NicAsk,
    Port,
    mint_mac,
    minted_macs,
)

T = TypeVar("T")

TRIES_AT_A_REVISION_MAX = 4
SALTS = range(SALTS_MAX)
UNBOUND = frozenset({"", "unbound"})
BINDING_FAILED = "binding_failed"
MAC_IN_USE = "MacAddressInUse"


class Ports(Checks):
    # ------------------------------------------------------------------------------------------------- making

    async def ensure_ports(
        self,
        server: str,
        project: str,
        nics: Sequence[NicAsk],
        *,
        unsure: bool = False,
        security_groups: Sequence[str] = (),
    ) -> tuple[Port, ...]:
        """Every NIC has its port afterwards, exactly one; none is bound. One POST per network, one PUT per user's port.

        `unsure`: an earlier try may have done part of it, so look first.  Raises OverQuota, Conflict (a port in use, no
        address left) and other Refusals with the service's reason.
        """
        asks = [await self._with_network(project, nic) for nic in nics]
        have: dict[str, Json] = {}
        if unsure:
            have = {row["mac_address"]: row for row in await self._rows_of(server)}
        missing: dict[str, list[NicAsk]] = {}
        found: dict[int, Port] = {}
        for nic in asks:
            if nic.ours:
                mine = next((have[mac] for mac in _macs(server, nic) if mac in have), None)
                if mine is None:
                    missing.setdefault(nic.network or "", []).append(nic)
                else:
                    found[nic.index] = port_of(mine, nic)
        makings = [self._make(server, project, network, group, security_groups) for network, group in missing.items()]
        takings = [self._take(server, nic) for nic in asks if not nic.ours]
        for ports in await _all([*makings, *takings]):
            found.update({port.index: port for port in ports})
        return tuple(found[nic.index] for nic in asks)

    async def _with_network(self, project: str, nic: NicAsk) -> NicAsk:
        if nic.network or nic.port:
            return nic
        return msgspec.structs.replace(nic, network=await self.auto_network(project))

    async def _make(
        self, server: str, project: str, network: str, nics: Sequence[NicAsk], groups: Sequence[str]
    ) -> tuple[Port, ...]:
        """New ports on one network in one POST; those that turn out to be there already are found."""
        bodies = [_new_port(server, project, nic, nic.mac or mint_mac(server, nic.index), groups) for nic in nics]
        if len(nics) == 1:
            return (await self._make_one(server, project, nics[0], groups),)
        try:
            reply = await self._network.call("POST", path_of("ports"), body={"ports": bodies})
        except Conflict as taken:
            if taken.code != MAC_IN_USE:
                raise
            rows = {row["mac_address"]: row for row in await self._rows_of(server)}
            made: list[Port] = []
            for nic in nics:
                mine = next((rows[mac] for mac in _macs(server, nic) if mac in rows), None)
                made.append(port_of(mine, nic) if mine else await self._make_one(server, project, nic, groups))
            return tuple(made)
        rows = {row["mac_address"]: row for row in reply.body["ports"]}
        return tuple(port_of(rows[body["mac_address"]], nic) for body, nic in zip(bodies, nics, strict=True))

    async def _make_one(self, server: str, project: str, nic: NicAsk, groups: Sequence[str]) -> Port:
        for mac in _macs(server, nic):
            try:
                body = {"port": _new_port(server, project, nic, mac, groups)}
                reply = await self._network.call("POST", path_of("ports"), body=body)
                return port_of(reply.body["port"], nic)
            except Conflict as taken:
                if taken.code != MAC_IN_USE:
                    raise
            try:
                row = await self._row_by_mac(nic.network or "", mac)
            except NotFound:  # gone between the two calls: the next salt will do as well
                continue
            if row.get("device_id") == server:
                return port_of(row, nic)
        raise Conflict(f"no free MAC address on network {nic.network} for NIC {nic.index}", code=MAC_IN_USE)

    async def _take(self, server: str, nic: NicAsk) -> tuple[Port, ...]:
        """Write our server on a user's port, unless somebody else's is on it."""
        port = nic.port or ""
        revision = nic.revision
        for _ in range(TRIES_AT_A_REVISION_MAX):
            if revision is None:
                row = await self._port(port)
                if row.get("device_id") == server:
                    return (port_of(row, nic),)
                if row.get("device_id"):
                    raise Conflict(f"Port {port} is still in use.", code="port_in_use")
                revision = int(row.get("revision_number", 0))
            try:
                return (port_of(await self._put(port, {"device_id": server}, revision), nic),)
            except PreconditionFailed:
                revision = None
            except NotFound as missing:
                raise NotFound(f"Port id {port} could not be found.", code="port_not_found") from missing
        raise Stale(f"port {port} keeps changing")

    # ------------------------------------------------------------------------------------------------ binding

    async def bind_ports(
        self,
        server: str,
        host: str,
        az: str,
        ports: Sequence[Port],
        *,
        subnets: Mapping[int, str] | None = None,
        profiles: Mapping[int, Mapping[str, Any]] | None = None,
        tried: Collection[str] | None = None,
        unsure: bool = False,
    ) -> tuple[Port, ...]:
        """Bind every port to `host`, each by one PUT, together; the same call binds first and rebinds later.

        `subnets`: for a claimed NIC index, the subnet its address comes from. `profiles`: what is added to the binding
        profile (`allocation`, a PCI device). Raises BindRefused when another host may do.

        `tried`: hosts where earlier attempts of this operation may have left a port, though their results are not in
        `ports`; a port found on any other host is somebody else's doing, and Stale.  None: any host is believed, as long
        as the port is still this server's.  `unsure` costs nothing: a repeat is told from the revision.
        """
        ours = None if tried is None else frozenset(tried) | {host, ""}
        subnet_of, profile_of = subnets or {}, profiles or {}
        bound = await _all(
            [
                self._bind(
                    server, port, _Bind(host, az, subnet_of.get(port.index), profile_of.get(port.index, {}), ours)
                )
                for port in ports
            ]
        )
        return tuple(bound)

    async def _bind(self, server: str, port: Port, wanted: "_Bind") -> Port:
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
            except Refusal as refused:
                raise _refused(port, wanted.host, refused.public, refused.code) from refused
            return _judged(now, wanted.host)
        raise Stale(f"port {port.id} keeps changing")

    # ---------------------------------------------------------------------------------------------- letting go

    async def unbind_ports(self, server: str, ports: Sequence[Port]) -> None:
        """The final unwinding: the user's ports are let go as they were; ours are only taken off their host."""
        rows = {row["id"]: row for row in await self._rows_of(server)}
        known = {port.id: port for port in ports}
        await _all(
            [
                self._unbind(server, _same_nic(known[key], row))
                if known[key].ours
                else self._let_go(server, known[key], row)
                for key, row in rows.items()
                if key in known
            ]
        )

    async def delete_made_ports(self, server: str, macs: Collection[str] = ()) -> None:
        """Delete every port of the server whose MAC we minted. Safe when there is none, and when it is done twice."""
        mine = minted_macs(server) | frozenset(macs)
        rows = await self._rows_of(server)
        await _all([self._delete(row["id"]) for row in rows if row["mac_address"] in mine])

    async def release_ports(
        self, server: str, macs: Collection[str] = (), *, users: Sequence[Port] = (), keep: Collection[str] = ()
    ) -> None:
        """The server goes: our ports are deleted, all others let go. Absent is success.

        `users`: the user's ports as they were taken, so that what we changed is put back; one that is not named keeps
        its address and loses what its profile says of the host.  `keep`: ids of ports that stay as they are.
        """
        mine = minted_macs(server) | frozenset(macs)
        known = {port.id: port for port in users}
        rows = [row for row in await self._rows_of(server) if row["id"] not in keep]
        await _all(
            [
                self._delete(row["id"])
                if row["mac_address"] in mine and row["id"] not in known
                else self._let_go(server, known.get(row["id"]), row)
                for row in rows
            ]
        )

    async def release_nic(self, server: str, nic: NicAsk) -> None:
        """One NIC that was to be attached is not: our port is deleted, the user's let go as it was. Absent is success."""
        if nic.ours:
            mine = _macs(server, nic)
            rows = await self._rows_of(server)
            await _all([self._delete(row["id"]) for row in rows if row["mac_address"] in mine])
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
            profile = known.original_profile if known else _without_host(now.profile)
            wanted: Json = {"device_id": "", "device_owner": "", "binding:host_id": ""}
            if now.profile != profile:
                wanted["binding:profile"] = profile
            if known is not None and now.fixed_ips != known.original_fixed_ips:
                wanted["fixed_ips"] = [_wire_ip(each) for each in known.original_fixed_ips]
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

    async def _put(self, port: str, body: Json, revision: int) -> Json:
        headers = {"If-Match": f"revision_number={revision}"}
        reply = await self._network.call("PUT", path_of("ports", port), body={"port": body}, headers=headers)
        answered: Json = reply.body["port"]
        return answered


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Everything to its end, then the problem that matters most: a refusal, else an unknown outcome, else an outage."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    problems = [answer for answer in answers if isinstance(answer, BaseException)]
    if problems:
        raise min(problems, key=_urgency)
    return [answer for answer in answers if not isinstance(answer, BaseException)]


def _urgency(problem: BaseException) -> int:
    if not isinstance(problem, Problem):
        return 0
    return 3 if isinstance(problem, UnknownOutcome) else 4 if isinstance(problem, Unavailable) else 1


def _macs(server: str, nic: NicAsk) -> list[str]:
    """The MACs to try for this NIC, in order; the first is the one in the journal."""
    return list(
        dict.fromkeys([nic.mac or mint_mac(server, nic.index), *(mint_mac(server, nic.index, n) for n in SALTS)])
    )


def _new_port(server: str, project: str, nic: NicAsk, mac: str, groups: Sequence[str]) -> Json:
    body: Json = {
        "network_id": nic.network,
        "project_id": project,
        "device_id": server,
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
    subnet: str | None
    profile: Mapping[str, Any]
    ours: frozenset[str] | None
    """Hosts where this operation may have put it; None: any."""

    def may_have_left(self, now: Port, before: str) -> bool:
        return self.ours is None or now.host == before or now.host in self.ours or now.vif_type == BINDING_FAILED


def _binding(server: str, port: Port, wanted: _Bind) -> Json:
    body: Json = {"device_id": server, "device_owner": f"compute:{wanted.az}", "binding:host_id": wanted.host}
    profile = {**_without_host(port.profile), **port.original_profile, **wanted.profile}
    if profile != port.profile:
        body["binding:profile"] = profile
    subnet = wanted.subnet
    if subnet and not port.address_chosen and subnet not in {each.subnet for each in port.fixed_ips}:
        body["fixed_ips"] = [{"subnet_id": subnet}]
    return body


def _is_bound(now: Port, wanted: _Bind, body: Json) -> bool:
    """Did a PUT whose answer was lost do what this one asks?"""
    return (
        now.host == wanted.host
        and now.vif_type not in UNBOUND
        and now.profile == body.get("binding:profile", now.profile)
        and ("fixed_ips" not in body or wanted.subnet in {each.subnet for each in now.fixed_ips})
    )


def _refused(port: Port, host: str, reason: str, kind: str) -> BindRefused:
    sentence = f"port {port.id} could not be bound on host {host}: {reason}"
    return BindRefused(sentence, code=kind, port=port.id, host=host, reason=reason, index=port.index)


def _judged(port: Port, host: str) -> Port:
    """The service says 200 and binding_failed: only looking tells."""
    if port.vif_type == BINDING_FAILED or port.vif_type in UNBOUND:
        raise _refused(port, host, "no mechanism of the network service can bind it there", BINDING_FAILED)
    if port.wants_address and not port.fixed_ips:
        raise _refused(port, host, "it was given no address", "no_address")
    return port


def _without_host(profile: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in profile.items() if key not in BINDING_KEYS}


def _wire_ip(fixed: FixedIp) -> Json:
    return {"subnet_id": fixed.subnet, "ip_address": fixed.address}
