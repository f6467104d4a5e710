"""The network service (Neutron, or the embedded one): may they, make, bind, let go.

facts    what there is: networks, segments, addresses left, ports of a server
checks   may this user have these NICs? with the user's token
ports    the sagas' part, with our own credentials: exactly once, bound, let go
bindings  a second binding of a port, for a server that moves
addresses  more and fewer addresses on ports that servers have
proxied  what the Compute API passes on for users, with their tokens
wire     its JSON in our words
"""

from moorage.clients.network.addresses import Addresses
from moorage.clients.network.bindings import Bindings
from moorage.clients.network.user_proxy import Proxied
from moorage.model.network import BindRefused, mint_mac

__all__ = ["BindRefused", "NetworkClient", "mint_mac"]


class NetworkClient(Addresses, Bindings, Proxied):
    """All of it: `NetworkClient(Neighbour("network", url, tokens=…))`; the URL is the endpoint without `/v2.0`."""
