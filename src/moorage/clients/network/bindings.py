"""The second binding of a port, for a server that is about to move (the network service's extension `binding-extended`).

A port has one active binding, on the host to which its traffic goes, and may have inactive bindings on other hosts.  A move first makes
the inactive binding, with the providers that were claimed there (`allocation`, S1.6), so that a host that cannot bind the port is found
before anything changes.  At the switch this binding is activated, and the old one becomes inactive; in the end the binding that is not
needed is deleted.  Every call may be repeated.

Behaviour of Neutron 29, as observed:

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
"""Interface types of a binding that no mechanism of the service has bound."""


class PortBindings:
    """The bindings of ports on further hosts."""

    def __init__(self, api: NetworkApi) -> None:
        self._api = api

    async def has_bindings(self) -> bool:
        """Tell whether the network service supports more than one binding of a port (S1.10)."""
        return EXTENSION in await self._api.extensions()

    async def bindings(self, port: str) -> tuple[Binding, ...]:
        """Return the bindings of one port, the active one first; none if the port belongs to no server.

        Raises NotFound when the port does not exist.
        """
        try:
            rows: list[Json] = (await self._api.call("GET", path_of("ports", port, "bindings"))).body["bindings"]
        except Invalid:  # a port of no server
            return ()
        bindings = [binding_of(port, row) for row in rows if row.get("host")]
        return tuple(sorted(bindings, key=lambda each: (not each.active, each.host)))

    async def delete_inactive(self, port: str) -> None:
        """Delete inactive bindings of the port, which an ended move may have left.

        Raises Conflict when the service refuses to delete one that is still inactive.
        """
        try:
            bindings = await self.bindings(port)
        except NotFound:  # the port is gone, or the service knows one binding of each
            return
        for each in bindings:
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
        """Make an inactive binding on `host` for each port; traffic is not changed. One POST for each port, at the same time.

        `profiles`: NIC index → what is added to the binding profile (`allocation`, a PCI device); an existing binding gets this profile.
        Returns the ports as they will be when the binding is activated.
        Raises BindRefused when another host may work, Stale when a port is no longer the server's, and Conflict when its active
        binding on that host has another profile.
        """
        profile_of = profiles or {}
        added = {MIGRATING_TO: host}
        wanted = [(port, profile_on_host(port, {**profile_of.get(port.index, {}), **added})) for port in ports]
        return tuple(await all_of([self._bind_inactive(host, port, profile) for port, profile in wanted]))

    async def _bind_inactive(self, host: str, port: Port, profile: Json) -> Port:
        binding = {"host": host, "vnic_type": port.vnic_type, "profile": profile}
        try:
            body = (await self._api.call("POST", path_of("ports", port.id, "bindings"), body={"binding": binding})).body
            return binding_of(port.id, body["binding"]).of(port)
        except Conflict as conflict:
            if conflict.code == BINDING_FAILED_KIND:
                raise refused(port, host, conflict.public, conflict.code) from conflict
            if conflict.code != ALREADY_EXISTS:
                raise
        except Invalid as wrong:
            raise _not_the_servers(port, wrong) from wrong
        return (await self._with_profile(host, port, profile)).of(port)

    async def _with_profile(self, host: str, port: Port, profile: Json) -> Binding:
        """Give an existing binding this profile."""
        path = path_of("ports", port.id, "bindings", host)
        binding = binding_of(port.id, (await self._api.call("GET", path)).body["binding"])
        expected = {key: value for key, value in profile.items() if not binding.active or key != MIGRATING_TO}
        if expected == {key: binding.profile.get(key) for key in expected} and binding.profile.keys() <= {
            *profile,
            "trusted",
        }:
            return binding
        if binding.active:
            problem = Conflict(f"port {port.id} is bound there already, in another way", code=BINDING_IS_ACTIVE)
            raise problem.naming(f"port {port.id} is bound to host {host} already, in another way")
        return await self._put_profile(host, port, profile)

    async def _put_profile(self, host: str, port: Port, profile: Json) -> Binding:
        """Write the profile of a binding; this also binds it if it was not bound."""
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
        """Activate the binding on `host` of each port; the binding that was active becomes inactive. One PUT for each port, at the same
        time; two for a binding that was active before.

        Returns the ports as they are bound there; they are not up yet.
        Raises NotFound when a port has no binding there, and BindRefused when it cannot be bound there any more.
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
        binding = binding_of(port.id, body.get("binding", body))
        return (binding if binding.vif_type not in NOT_BOUND else await self._bound_again(host, port, binding)).of(port)

    async def _bound_again(self, host: str, port: Port, binding: Binding) -> Binding:
        """Bind a binding again that was active before. When it became inactive, the service kept only its host and profile.

        This is done after it is active again, because Neutron 29 fails to write an inactive binding.
        """
        profile = {**binding.profile, MIGRATING_TO: host}
        if binding.vif_type == BINDING_FAILED:
            profile.pop(
                "trusted", None
            )  # the port's own binding, which the service shows in the port unless it is unbound
        return await self._put_profile(host, port, profile)

    async def delete_binding(self, server: str, host: str, ports: Collection[str]) -> None:
        """Delete the inactive bindings on `host` of the ports. A missing binding is success.

        Each binding is read first.  Raises Conflict when it is active: a port without an active binding could not be bound
        again by activating another one.
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
