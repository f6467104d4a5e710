"""The network service (Neutron, or the embedded one): queries, validation, ports and their bindings.

backend         `NetworkBackend`: what the rest of Moorage needs of networks
flat            a backend without a network service: addresses come from pools of the cells

`NetworkClient` is the backend with a network service.  Its parts:

network_api     paths, pages, rows of ports; used by all others
queries         reads: networks, segments, addresses left, ports of a server
nic_validation  checks with the user's token whether the user may have these NICs
port_create     makes or takes exactly one port for each NIC; ports of many servers in one call (port_batcher)
port_binder     binds ports to a host
port_release    unbinds ports, and releases or deletes them
bindings        a second binding of a port, for a server that moves
addresses       adds and removes addresses of ports that servers have
user_proxy      calls that the Compute API passes on for users, with their tokens
decoding, fixed_ips, binding_rules: pure functions between the service's JSON and `model.network`
"""

from moorage.clients.http import ServiceClient
from moorage.clients.network.addresses import PortAddresses
from moorage.clients.network.backend import NetworkBackend
from moorage.clients.network.bindings import PortBindings
from moorage.clients.network.network_api import NetworkApi
from moorage.clients.network.nic_validation import NicValidation
from moorage.clients.network.port_batcher import PortBatcher
from moorage.clients.network.port_binder import PortBinder
from moorage.clients.network.port_create import PortCreation
from moorage.clients.network.port_release import PortRelease
from moorage.clients.network.queries import NetworkQueries
from moorage.clients.network.user_proxy import UserProxy
from moorage.model.network import BindRefused, mint_mac

__all__ = ["BindRefused", "NetworkBackend", "NetworkClient", "mint_mac"]


class NetworkClient:
    """`NetworkBackend` with a network service: `NetworkClient(ServiceClient("network", url, tokens=…))`.

    The URL is the endpoint without `/v2.0`.  Each method belongs to one of the parts and is documented there.
    """

    def __init__(self, service: ServiceClient) -> None:  # noqa: PLR0915  a line for each method
        self.service = service
        api = NetworkApi(service)
        self._batcher = PortBatcher(api)

        queries = NetworkQueries(api)
        self.extensions = api.extensions
        self.port = queries.port
        self.ports_of = queries.ports_of
        self.ports_on = queries.ports_on
        self.ports_gone = queries.ports_gone
        self.devices = queries.devices
        self.held_by_ports = queries.held_by_ports
        self.network = queries.network
        self.networks = queries.networks
        self.subnets = queries.subnets
        self.segments = queries.segments
        self.segments_gone = queries.segments_gone
        self.availability = queries.availability
        self.rules_of = queries.rules_of
        self.wirings = queries.wirings
        self.guarantees = queries.guarantees
        self.port_descriptions = queries.port_descriptions
        self.described_hosts = queries.described_hosts
        self.binds_nothing = queries.binds_nothing
        self.security_groups_of = queries.security_groups_of
        self.group_names = queries.group_names
        self.names = queries.names
        self.floating = queries.floating
        self.floating_of = queries.floating_of
        self.try_credentials = queries.try_credentials

        validation = NicValidation(api, queries)
        self.check = validation.check
        self.forget = validation.forget

        self.ensure_ports = PortCreation(api, self._batcher, queries).ensure_ports

        bindings = PortBindings(api)
        self.has_bindings = bindings.has_bindings
        self.bindings = bindings.bindings
        self.bind_inactive = bindings.bind_inactive
        self.activate_binding = bindings.activate_binding
        self.delete_binding = bindings.delete_binding
        self.bind_ports = PortBinder(api, bindings).bind_ports

        release = PortRelease(api, bindings, self._batcher)
        self.unbind_ports = release.unbind_ports
        self.take_off_host = release.take_off_host
        self.delete_made_ports = release.delete_made_ports
        self.release_ports = release.release_ports
        self.release_strays = release.release_strays
        self.release_nic = release.release_nic
        self.drop_port = release.drop_port

        addresses = PortAddresses(api, queries)
        self.add_address = addresses.add_address
        self.drop_address = addresses.drop_address
        self.leave_addresses = addresses.leave_addresses

        proxy = UserProxy(api)
        self.list_as = proxy.list_as
        self.show_as = proxy.show_as
        self.make_as = proxy.make_as
        self.change_as = proxy.change_as
        self.remove_as = proxy.remove_as

    async def close(self) -> None:
        """Wait for the calls under way, then close the connections."""
        await self._batcher.close()
        await self.service.close()
