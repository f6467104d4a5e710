"""What the network service of a small region does to ports that are bound, and that leave their hosts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.clients.network.bindings import BINDING_IS_ACTIVE
from moorage.model.errors import Conflict, NotFound, Stale
from moorage.model.network import Binding, FixedIp, Port


def addresses_of(
    port: Port,
    index: int,
    otherwise: str,
    subnets: Mapping[int, str] | None = None,
    keeps: Mapping[int, Sequence[FixedIp]] | None = None,
) -> tuple[FixedIp, ...]:
    """A port keeps those it has, unless it is to have them from another subnet; or those that are requested, and one of the subnet."""
    has, subnet = port.fixed_ips, (subnets or {}).get(index)
    if keeps is not None and index in keeps:
        new = () if subnet is None else (FixedIp(subnet, f"10.0.1.{index + 2}"),)
        return (*new, *keeps[index])
    if has and (subnet is None or has[0].subnet == subnet):
        return has
    return (FixedIp(subnet or otherwise, f"10.0.0.{index + 2}"),)


def taken_off(
    ports: Mapping[str, Port], server: str, keys: Collection[str], keeps: Mapping[str, Sequence[FixedIp]]
) -> dict[str, Port]:
    """Those of the server's ports, on no host any more; with these addresses, where any are named."""
    return {
        key: msgspec.structs.replace(
            ports[key],
            host="",
            vif_type="unbound",
            profile={},
            revision=ports[key].revision + 1,
            fixed_ips=tuple(keeps.get(key, ports[key].fixed_ips)),
        )
        for key in keys
        if key in ports and ports[key].device_id == server
    }


@dataclass
class DictBindings:
    """Ports in a dict, and the inactive bindings that they have in addition to the active one."""

    ports: dict[str, Port] = field(default_factory=dict)
    inactive: dict[tuple[str, str], Binding] = field(default_factory=dict)
    """(port, host) → the binding there; a port's go with it."""
    dead: set[str] = field(default_factory=set)
    """Hosts whose agents of the network service are."""

    async def binds_nothing(self, host: str, ports: Sequence[Port]) -> bool:
        return bool(ports) and host in self.dead

    async def has_bindings(self) -> bool:
        return True

    async def bindings(self, port: str) -> tuple[Binding, ...]:
        """The bindings of a port. Raises NotFound."""
        if port not in self.ports:
            raise NotFound(f"Port {port} could not be found.")
        beside = sorted(self.left_inactive() & {each for each in self.inactive if each[0] == port})
        active = [_active(self.ports[port])] if self.ports[port].host else []
        return (*active, *(self.inactive[each] for each in beside))

    def left_inactive(self) -> set[tuple[str, str]]:
        """Of ports that are there."""
        return {each for each in self.inactive if each[0] in self.ports}

    async def bind_inactive(
        self,
        server: str,
        host: str,
        ports: Sequence[Port],
        *,
        profiles: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> tuple[Port, ...]:
        """Make an inactive binding. Raises Conflict when the host has the active one."""
        made: list[Port] = []
        for port in ports:
            now = self._of(server, port.id)
            profile = dict((profiles or {}).get(port.index, {}))
            if now.host == host and now.profile != profile:
                raise Conflict(f"port {port.id} is bound to host {host} already", code=BINDING_IS_ACTIVE)
            binding = Binding(port.id, host, now.host == host, now.vnic_type, "ovs", {}, profile)
            if not binding.active:
                self.inactive[port.id, host] = binding
            made.append(binding.of(port))
        return tuple(made)

    async def activate_binding(self, server: str, host: str, ports: Sequence[Port]) -> tuple[Port, ...]:
        """Activate a binding. Raises NotFound."""
        active: list[Port] = []
        for port in ports:
            now = self._of(server, port.id)
            if now.host != host:
                chosen = self.inactive.pop((port.id, host), None)
                if chosen is None:
                    raise NotFound(f"Binding for port {port.id} for host {host} could not be found.")
                if now.host:
                    self.inactive[port.id, now.host] = msgspec.structs.replace(_active(now), active=False)
                self.ports[port.id] = msgspec.structs.replace(chosen.of(now), revision=now.revision + 1)
            active.append(_active(self.ports[port.id]).of(port))
        return tuple(active)

    async def delete_binding(self, server: str, host: str, ports: Collection[str]) -> None:
        """Delete a binding. Raises Conflict for the active one."""
        for port in ports:
            if port in self.ports and self.ports[port].host == host:
                raise Conflict(f"the binding of port {port} on host {host} is the active one", code=BINDING_IS_ACTIVE)
            self.inactive.pop((port, host), None)

    def forget_inactive(self, port: str) -> None:
        """A port is released without the bindings that a move left."""
        self.inactive = {key: binding for key, binding in self.inactive.items() if key[0] != port}

    async def leave_addresses(self, server: str, left: Mapping[str, Collection[str]]) -> None:
        for port, addresses in left.items():
            if port in self.ports and self.ports[port].device_id == server:
                now = self.ports[port]
                kept = tuple(each for each in now.fixed_ips if each.address not in addresses)
                self.ports[port] = msgspec.structs.replace(now, fixed_ips=kept, revision=now.revision + 1)

    def _of(self, server: str, port: str) -> Port:
        now = self.ports.get(port)
        if now is None or now.device_id != server:
            raise Stale(f"port {port} was changed by somebody else")
        return now


def _active(port: Port) -> Binding:
    return Binding(port.id, port.host, True, port.vnic_type, port.vif_type, port.vif_details, port.profile)
