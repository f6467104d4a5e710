"""A second binding of a port, for a server that is about to move (the network service's extension `binding-extended`).

A port has one active binding, which is where its traffic goes, and may have inactive ones on other hosts beside it.  A move makes the
inactive one first, with the providers that were claimed there (`allocation`, S1.6): that a host cannot have the port is found out
before anything was touched.  At the switch it is activated, and the old one becomes inactive; in the end the one that is not needed is
deleted.  Every call is safe twice.

What was seen of Neutron 29:

    POST  a second of the same host            409 PortBindingAlreadyExists, whatever the profile
    POST  on a host that cannot have the port  500 PortBindingError, and nothing was made
    PUT activate, of the active one            409 PortBindingAlreadyActive
    PUT activate, of none                      404 PortBindingNotFound
    DELETE of none                             404 PortBindingNotFound
    DELETE of the active one                   204; no other can be activated any more, nor the port be changed (404, 500)
    PUT activate, with a body                  500
    PUT activate                               the binding, and not below the key `binding` as all others
    GET, without the roles for it              none, and no refusal
    any of them, port of no server             400 BadRequest
    PUT of the port itself, onto a host where it has an inactive binding: no answer for minutes, and then a failure

Its Open vSwitch agent takes a port with an inactive binding on another host for one that is about to leave, and wires it no more, for as long as
that binding is there: also the one that it has just left.  The profile of a second binding therefore says that the port goes there
(`migrating_to`), which that agent believes instead.  And no agent is told that a binding was deleted: the port is written once more, unchanged,
and then all of them are told how it is.

A port that is on no host has an active binding too, on a host without a name.  Activating another one would leave that beside it,
where no path reaches it: such a port is bound by `bind_ports`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from moorage.clients.http import Json
from moorage.clients.network.binding_rules import BINDING_FAILED, UNBOUND, profile_on_host, refused
from moorage.clients.network.concurrency import all_of
from moorage.clients.network.decoding import BINDING_FAILED_KIND, binding_of
from moorage.clients.network.network_api import NetworkApi, path_of
from moorage.model.errors import Conflict, Invalid, NotFound, PreconditionFailed, Stale
from moorage.model.network import Binding, Port

EXTENSION = "binding-extended"
ALREADY_EXISTS = "PortBindingAlreadyExists"
ALREADY_ACTIVE = "PortBindingAlreadyActive"
BINDING_IS_ACTIVE = "binding_is_active"
MIGRATING_TO = "migrating_to"
"""Of a binding profile: the host that a port is about to be on, or that it has gone to."""
NOT_BOUND = UNBOUND | {BINDING_FAILED}
"""Interface types of a binding that no mechanism of the service carries."""


class PortBindings:
    """The bindings of ports on further hosts."""

    def __init__(self, api: NetworkApi) -> None:
        self._api = api

    async def has_bindings(self) -> bool:
        """Whether the network service has more than one binding for a port at all (S1.10)."""
        return EXTENSION in await self._api.extensions()

    async def bindings(self, port: str) -> tuple[Binding, ...]:
        """The bindings of one port, the active one first; none when no server has the port. Raises NotFound: there is no such port."""
        try:
            rows: list[Json] = (await self._api.call("GET", path_of("ports", port, "bindings"))).body["bindings"]
        except Invalid:  # the port of no server
            return ()
        found = [binding_of(port, row) for row in rows if row.get("host")]
        return tuple(sorted(found, key=lambda each: (not each.active, each.host)))

    async def delete_inactive(self, port: str) -> None:
        """No inactive binding is left of the port, which an ended move may have left."""
        try:
            found = await self.bindings(port)
        except NotFound:  # the port is gone, or the service knows one binding of each
            return
        for each in found:
            if not each.active:
                try:
                    await self._delete_binding(each.host, port)
                except Conflict as chosen:  # it has become the active one, which goes with the port
                    if chosen.code != BINDING_IS_ACTIVE:
                        raise

    async def bind_inactive(
        self,
        server: str,
        host: str,
        ports: Sequence[Port],
        *,
        profiles: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> tuple[Port, ...]:
        """Every port has an inactive binding on `host` afterwards; its traffic stays where it is. One POST each, together.

        `profiles`: by NIC index, what is added to the binding profile (`allocation`, a PCI device); a binding that is there already
        is given this one's.  Answers the ports as they will be when it is activated.  Raises BindRefused when another host may do,
        Stale when a port is no longer the server's, Conflict when its active binding there has another profile.
        """
        profile_of = profiles or {}
        added = {MIGRATING_TO: host}
        wanted = [(port, profile_on_host(port, {**profile_of.get(port.index, {}), **added})) for port in ports]
        return tuple(await all_of([self._bind_inactive(host, port, profile) for port, profile in wanted]))

    async def _bind_inactive(self, host: str, port: Port, profile: Json) -> Port:
        asked = {"host": host, "vnic_type": port.vnic_type, "profile": profile}
        try:
            body = (await self._api.call("POST", path_of("ports", port.id, "bindings"), body={"binding": asked})).body
            return binding_of(port.id, body["binding"]).of(port)
        except Conflict as there:
            if there.code == BINDING_FAILED_KIND:
                raise refused(port, host, there.public, there.code) from there
            if there.code != ALREADY_EXISTS:
                raise
        except Invalid as wrong:
            raise _not_the_servers(port, wrong) from wrong
        return (await self._with_profile(host, port, profile)).of(port)

    async def _with_profile(self, host: str, port: Port, profile: Json) -> Binding:
        """A binding that was there, with this profile."""
        path = path_of("ports", port.id, "bindings", host)
        found = binding_of(port.id, (await self._api.call("GET", path)).body["binding"])
        asked = {key: value for key, value in profile.items() if not found.active or key != MIGRATING_TO}
        if asked == {key: found.profile.get(key) for key in asked} and found.profile.keys() <= {*profile, "trusted"}:
            return found
        if found.active:
            problem = Conflict(f"port {port.id} is bound there already, in another way", code=BINDING_IS_ACTIVE)
            raise problem.naming(f"port {port.id} is bound to host {host} already, in another way")
        return await self._put_profile(host, port, profile)

    async def _put_profile(self, host: str, port: Port, profile: Json) -> Binding:
        """The binding has this profile, and is bound if it was not."""
        path = path_of("ports", port.id, "bindings", host)
        try:
            body = (await self._api.call("PUT", path, body={"binding": {"profile": profile}})).body
        except Conflict as failed:
            if failed.code != BINDING_FAILED_KIND:
                raise
            raise refused(port, host, failed.public, failed.code) from failed
        bound = binding_of(port.id, body["binding"])
        if bound.vif_type in NOT_BOUND:
            raise refused(port, host, "no mechanism of the network service can bind it there", BINDING_FAILED)
        return bound

    async def activate_binding(self, server: str, host: str, ports: Sequence[Port]) -> tuple[Port, ...]:
        """The binding on `host` is the active one of every port, and the one that was becomes inactive. One PUT each, together;
        two for a binding that was active before.

        Answers the ports as they are there; they are not up yet.  Raises NotFound when a port has no binding there, BindRefused when it cannot
        be bound there any more.
        """
        return tuple(await all_of([self._activate(host, port) for port in ports]))

    async def _activate(self, host: str, port: Port) -> Port:
        path = path_of("ports", port.id, "bindings", host)
        try:
            body = (await self._api.call("PUT", f"{path}/activate")).body
        except Conflict as already:
            if already.code != ALREADY_ACTIVE:
                raise
            body = (await self._api.call("GET", path)).body
        except Invalid as wrong:
            raise _not_the_servers(port, wrong) from wrong
        found = binding_of(port.id, body.get("binding", body))
        return (found if found.vif_type not in NOT_BOUND else await self._bound_again(host, port, found)).of(port)

    async def _bound_again(self, host: str, port: Port, found: Binding) -> Binding:
        """One that was active before, and became inactive, lost then how it is bound: the service keeps its host and profile only.

        It is bound when it is active again: Neutron 29 fails to write an inactive one.
        """
        profile = {**found.profile, MIGRATING_TO: host}
        if found.vif_type == BINDING_FAILED:
            profile.pop("trusted", None)  # the port's own, which the service shows here except of what is unbound
        return await self._put_profile(host, port, profile)

    async def delete_binding(self, server: str, host: str, ports: Collection[str]) -> None:
        """No port has an inactive binding on `host` any more. Absent is success.

        It looks at each first, and raises Conflict for an active one: a port without an active binding could not be bound again
        by activating another.
        """
        await all_of([self._delete_binding(host, port) for port in ports])

    async def _delete_binding(self, host: str, port: str) -> None:
        path = path_of("ports", port, "bindings", host)
        try:
            if binding_of(port, (await self._api.call("GET", path)).body["binding"]).active:
                problem = Conflict(f"the binding of port {port} is the active one", code=BINDING_IS_ACTIVE)
                raise problem.naming(f"the binding of port {port} on host {host} is the active one")
            await self._api.call("DELETE", path)
        except NotFound:  # it is gone, by an earlier try perhaps, and the agents must be told all the same
            pass
        except Invalid:  # the port is no server's any more
            return
        await self._notify_agents(port)

    async def _notify_agents(self, port: str) -> None:
        """Of the port as it is. Whoever changes it meanwhile has told them."""
        try:
            now = await self._api.port(port)
            await self._api.put_port(
                port, {"admin_state_up": now.get("admin_state_up", True)}, int(now.get("revision_number", 0))
            )
        except (NotFound, PreconditionFailed):
            return


def _not_the_servers(port: Port, wrong: Invalid) -> Stale:
    return Stale(f"port {port.id} was changed by somebody else", private=wrong.public)
