"""Binds ports to a host, with our own credentials (RULES §7).

Every PUT names the revision on which it was decided.  If that is no longer the newest, the port is read again, and the PUT is repeated
with the new revision only if the port still belongs to this server and is bound to the host on which we left it.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from moorage.clients.network.binding_rules import (
    NO_ADDRESS_LEFT,
    WantedBinding,
    binding_body,
    is_bound,
    refused,
    require_bound,
    same_nic,
    with_missing_role,
)
from moorage.clients.network.bindings import PortBindings
from moorage.clients.network.concurrency import all_of
from moorage.clients.network.network_api import TRIES_AT_A_REVISION_MAX, NetworkApi
from moorage.clients.network.subnet_rotation import SubnetRotation
from moorage.model.errors import (
    NotFound,
    PreconditionFailed,
    Problem,
    Refusal,
    Stale,
    Unauthenticated,
    Unavailable,
    UnknownOutcome,
)
from moorage.model.network import BindOptions, BindRefused, OtherSubnets, Port


class PortBinder:
    """Binds ports, and remembers which subnets had no address left."""

    def __init__(self, api: NetworkApi, bindings: PortBindings) -> None:
        self._api, self._bindings = api, bindings
        self._subnets = SubnetRotation()

    async def bind_ports(
        self, server: str, host: str, az: str, ports: Sequence[Port], options: BindOptions | None = None
    ) -> tuple[Port, ...]:
        """Bind every port to `host` with one PUT each, at the same time. The same call also moves a port to another host.

        After a lost answer the call may be repeated: the port's revision shows what was done.
        Raises BindRefused when another host may work, Stale when a port is no longer this server's or is on a host to which this
        operation did not bind it, and Unavailable with the code `credentials` when our account may not bind ports.
        """
        wanted = [(port, self._wanted(host, az, port.index, options or BindOptions())) for port in ports]
        try:
            return tuple(await all_of([self._bind(server, port, one) for port, one in wanted]))
        except UnknownOutcome:
            # An inactive binding on `host`, left by a move that ended, makes every later PUT fail.
            with suppress(Problem):  # the first problem is the important one
                await self._bindings.delete_binding(server, host, [port.id for port in ports])
            raise

    def _wanted(self, host: str, az: str, index: int, options: BindOptions) -> WantedBinding:
        others = options.other_subnets.get(index, OtherSubnets())
        named = (options.subnets[index], *others.spare) if index in options.subnets else ()
        ours = None if options.tried is None else frozenset(options.tried) | {host, ""}
        keeps = None if options.keeps is None or index not in options.keeps else tuple(options.keeps[index])
        return WantedBinding(
            host, az, self._subnets.in_turn(named), others, options.profiles.get(index, {}), ours, keeps
        )  # fmt: skip

    async def _bind(self, server: str, port: Port, wanted: WantedBinding) -> Port:
        """Bind a port with an address of the first subnet that has one left."""
        while len(wanted.subnets) > 1:
            try:
                return await self._bind_now(server, port, wanted)
            except BindRefused as full:
                if full.code != NO_ADDRESS_LEFT:
                    raise
                self._subnets.spent(wanted.subnets[0])
                wanted = replace(wanted, subnets=wanted.subnets[1:])
        return await self._bind_now(server, port, wanted)

    async def _bind_now(self, server: str, port: Port, wanted: WantedBinding) -> Port:
        now = port
        for _ in range(TRIES_AT_A_REVISION_MAX):
            body = binding_body(server, now, wanted)
            try:
                now = same_nic(port, await self._api.put_port(port.id, body, now.revision))
            except PreconditionFailed:
                now = same_nic(port, await self._api.port(port.id))
                if now.device_id != server or not wanted.may_have_left(now, port.host):
                    raise Stale(
                        f"port {port.id} was changed by somebody else",
                        private=f"device {now.device_id!r} on host {now.host!r}; expected {server!r} on {port.host!r}",
                    ) from None
                if not is_bound(now, wanted, body):
                    continue
            except (Unauthenticated, NotFound):
                raise
            except Refusal as refusal:
                raise refused(port, wanted.host, refusal.public, refusal.code) from refusal
            except Unavailable as out:
                raise with_missing_role(out, body) from out
            return require_bound(now, wanted.host)
        raise Stale(f"port {port.id} keeps changing")
