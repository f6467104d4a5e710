"""Unbinds, releases and deletes ports, with our own credentials (RULES §7). A missing port is success, and every call may be repeated."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from moorage.clients.http import Json
from moorage.clients.network.binding_rules import same_nic, without_host
from moorage.clients.network.bindings import PortBindings
from moorage.clients.network.concurrency import all_of
from moorage.clients.network.decoding import port_of
from moorage.clients.network.fixed_ips import exactly, wire_ip
from moorage.clients.network.network_api import NetworkApi, path_of
from moorage.clients.network.port_batcher import PortBatcher
from moorage.clients.network.port_create import macs_of
from moorage.model.errors import NotFound, PreconditionFailed
from moorage.model.network import FixedIp, NicAsk, Port, minted_macs


class PortRelease:
    """Releases ports: ours are deleted, users' ports stay and lose their server. It first waits for the batcher's calls for the server."""

    def __init__(self, api: NetworkApi, bindings: PortBindings, batcher: PortBatcher) -> None:
        self._api, self._bindings, self._batcher = api, bindings, batcher

    async def unbind_ports(self, server: str, ports: Sequence[Port]) -> None:
        """Undo a binding at the end of an unwinding: users' ports are released as they were; ours are only taken off their host."""
        rows = {row["id"]: row for row in await self._api.ports_of(server)}
        known = {port.id: port for port in ports}
        await all_of(
            [
                self._unbind(server, same_nic(known[key], row))
                if known[key].ours
                else self._free(server, known[key], row)
                for key, row in rows.items()
                if key in known
            ]
        )

    async def take_off_host(
        self, server: str, ports: Collection[str], *, keeps: Mapping[str, Sequence[FixedIp]] | None = None
    ) -> None:
        """Unbind ports that the server keeps while it is on no host: addresses, device and owner stay. A missing port is success.

        `keeps`: port → exactly the addresses that it shall have, if it may have got others.  A port with an entry that the list does not
        show is read by its id before it counts as missing, because nobody would correct its addresses later.
        """
        rows = [row for row in await self._api.ports_of(server) if row["id"] in ports]
        for port in sorted(set(ports) - {row["id"] for row in rows}):
            try:
                row = await self._api.port(port)
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
            if (profile := without_host(now.profile)) != now.profile:
                wanted["binding:profile"] = profile
            return wanted

        await self._api.change_port(server, port, body, partial(same_nic, port))

    async def delete_made_ports(self, server: str, macs: Collection[str] = ()) -> None:
        """Delete every port of the server whose MAC we minted. May be repeated."""
        await self._batcher.over(server)
        mine = minted_macs(server) | frozenset(macs)
        rows = await self._api.ports_of(server)
        await all_of([self._api.delete_port(row["id"]) for row in rows if row["mac_address"] in mine])

    async def release_ports(self, server: str, macs: Collection[str] = (), *, users: Sequence[Port] = ()) -> None:
        """Release the ports of a server that is deleted: ours are deleted, all others lose their server. A missing port is success.

        `users`: the user's ports as they were taken, so that our changes can be reversed; a port that is not named keeps
        its address and loses the keys of its profile that describe the host.
        """
        await self._batcher.over(server)
        mine = minted_macs(server) | frozenset(macs)
        known = {port.id: port for port in users}
        rows = await self._api.ports_of(server)
        await all_of(
            [
                self._api.delete_port(row["id"])
                if row["mac_address"] in mine and row["id"] not in known
                else self._free(server, known.get(row["id"]), row)
                for row in rows
            ]
        )

    async def release_strays(self, server: str, ports: Sequence[Port]) -> int:
        """Release orphaned ports, which name a server that does not have them: ours are deleted, others lose the server.

        Returns how many were released.  Each call names the revision that was seen, so a port that an operation took or bound
        since then is not changed (RULES §7, §22).
        """
        mine = minted_macs(server)
        went = await all_of([self._release_seen(port, ours=port.mac in mine) for port in ports])
        return sum(went)

    async def _release_seen(self, port: Port, *, ours: bool) -> bool:
        try:
            if ours:
                headers = {"If-Match": f"revision_number={port.revision}"}
                await self._api.call("DELETE", path_of("ports", port.id), headers=headers)
            else:
                await self._api.put_port(port.id, freed(port, without_host(port.profile)), port.revision)
        except (NotFound, PreconditionFailed):
            return False
        return True

    async def release_nic(self, server: str, nic: NicAsk) -> None:
        """Release the port of a NIC whose attach failed: ours is deleted, the user's is released as it was. A missing port is success."""
        await self._batcher.over(server)
        if nic.ours:
            mine = macs_of(server, nic)
            rows = await self._api.ports_of(server)
            await all_of([self._api.delete_port(row["id"]) for row in rows if row["mac_address"] in mine])
        elif nic.port:
            await self._free_one(server, nic.port, nic)

    async def drop_port(self, server: str, port: str, *, ours: bool) -> None:
        """Release the port of a detached NIC: ours is deleted, the user's keeps its addresses. A missing port, or another device's, is success."""
        if not ours:
            await self._free_one(server, port, None)
        elif await self._api.port_of_server(server, port) is not None:
            await self._api.delete_port(port)

    async def _free_one(self, server: str, port: str, nic: NicAsk | None) -> None:
        row = await self._api.port_of_server(server, port)
        if row is not None:
            await self._free(server, None if nic is None else port_of(row, nic), row)

    async def _unbind(self, server: str, port: Port) -> None:
        """Take a port off its host, and remove the keys of its profile that describe the host, with the providers that it had there."""

        def body(now: Port) -> Json:
            wanted: Json = {"binding:host_id": "", "device_owner": ""} if now.host else {}
            if (profile := without_host(now.profile)) != now.profile:
                wanted["binding:profile"] = profile
            return wanted

        await self._api.change_port(server, port, body, partial(same_nic, port))

    async def _free(self, server: str, known: Port | None, row: Json) -> None:
        """Remove the server from a port. Inactive bindings are deleted first: those of a port without a server cannot be deleted."""
        await self._bindings.delete_inactive(row["id"])

        def body(now: Port) -> Json:
            wanted = freed(now, known.original_profile if known else without_host(now.profile))
            if known is not None and now.fixed_ips != known.original_fixed_ips:
                wanted["fixed_ips"] = [wire_ip(each) for each in known.original_fixed_ips]
            return wanted

        now = same_nic(known, row) if known else port_of(row)
        await self._api.change_port(server, now, body, partial(same_nic, now))


def freed(now: Port, profile: Mapping[str, Any]) -> Json:
    """Return the change that releases a port from its server."""
    wanted: Json = {"device_id": "", "device_owner": "", "binding:host_id": ""}
    if now.profile != profile:
        wanted["binding:profile"] = dict(profile)
    if now.dns_name:
        wanted["dns_name"] = ""  # it names the server, as in Nova
    return wanted
