"""Clients to the neighbours: over sockets to real services, over ASGI to embedded ones; the same client either way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.clients.breaker import Breaker
from moorage.clients.http import Neighbour, ServiceTokens, embedded_transport
from moorage.clients.identity import IdentityClient
from moorage.clients.image import ImageClient
from moorage.clients.network import NetworkClient
from moorage.main.config import Config, secret
from moorage.main.config import Neighbour as Named
from moorage.model.neighbour import CircuitSeen


@dataclass(frozen=True)
class Clients:
    identity: IdentityClient
    images: ImageClient
    network: NetworkClient
    neighbours: tuple[Neighbour, ...] = field(default=())

    def open_circuits(self) -> tuple[CircuitSeen, ...]:
        """What this process does not call for now."""
        breakers = dict.fromkeys(each.breaker for each in self.neighbours)
        return tuple(seen for breaker in breakers for seen in breaker.open_circuits())

    async def close(self) -> None:
        for neighbour in self.neighbours:
            await neighbour.close()


def service_password(config: Config) -> str:
    """The configured one, or for the embedded identity one made once and kept."""
    return config.service_user.password or secret(config.data, "service-password")


def make_clients(config: Config, embedded: Mapping[str, Any] | None = None) -> Clients:
    """`embedded`: ASGI applications by name (`identity`, `image`, `network`) for what has no URL in the configuration."""
    apps = embedded or {}

    breakers: dict[str, Breaker] = {}

    def neighbour(name: str, named: Named, fallback: str, tokens: ServiceTokens | None) -> Neighbour:
        inside = None if named.url or name not in apps else embedded_transport(apps[name])
        breaker = breakers.setdefault(
            name, Breaker(name, failures_max=named.breaker_failures, rest_s=named.breaker_rest_s)
        )
        return Neighbour(
            name,
            named.url or fallback,
            tokens=tokens,
            transport=inside,
            call_deadline_s=named.timeout_s,
            breaker=breaker,
        )

    identity_url = config.identity.url or f"{config.api.identity.url}/v3"
    asking = neighbour("identity", config.identity, identity_url, None)
    user = config.service_user
    tokens = ServiceTokens(
        asking, user=user.user, password=service_password(config), project=user.project, domain=user.domain
    )
    identity = neighbour("identity", config.identity, identity_url, tokens)
    image = neighbour("image", config.image, config.api.image.url, tokens)
    network = neighbour("network", config.network, config.api.network.url, tokens)
    return Clients(
        IdentityClient(identity), ImageClient(image), NetworkClient(network), (asking, identity, image, network)
    )
