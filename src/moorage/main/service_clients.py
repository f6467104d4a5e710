"""Builds clients of the services: over sockets to real services, over ASGI to embedded ones. The client is the same in both cases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.clients.circuit_breaker import Breaker
from moorage.clients.compute_limits import ComputeLimitsClient
from moorage.clients.http import ServiceClient, embedded_transport
from moorage.clients.identity import IdentityClient
from moorage.clients.image import ImageClient
from moorage.clients.image_data import ImageData
from moorage.clients.network import NetworkBackend, NetworkClient
from moorage.clients.service_tokens import ServiceTokens
from moorage.clients.vendor_data import VendorData
from moorage.clients.volume import VolumeClient
from moorage.main.config import Config, VolumeConfig
from moorage.main.config import ServiceSettings as Named
from moorage.main.secret_settings import secret
from moorage.main.vendor_data import vendor_services
from moorage.model.image_ticket import TicketBox, TicketSecret
from moorage.model.service_health import CircuitSeen

OWN_APIS_S = 15.0
"""Limit of a call to our own APIs; a user's request to the network service waits for it."""


@dataclass(frozen=True)
class Clients:
    identity: IdentityClient
    images: ImageClient
    network: NetworkBackend
    limits: ComputeLimitsClient
    image_data: ImageData
    """Access to images' data for the hosts of this process, if it has any."""
    services: tuple[ServiceClient, ...] = field(default=())
    vendor_data: VendorData | None = None
    """None: vendor data comes only from the configured file."""
    volumes: VolumeClient | None = None
    """None: the services are real ones, and there is no volume service among them."""
    tickets: TicketBox | None = None
    """What the orders to hosts of this process bring for its embedded image service; None: they use our account."""

    def open_circuits(self) -> tuple[CircuitSeen, ...]:
        """The services that this process does not call at present, because their circuit breaker is open."""
        breakers = dict.fromkeys(each.breaker for each in self.services)
        return tuple(circuit for breaker in breakers for circuit in breaker.open_circuits())

    async def close(self) -> None:
        if self.vendor_data is not None:
            await self.vendor_data.close()
        for service in self.services:
            await service.close()


@dataclass(frozen=True)
class OwnApis:
    """Clients of our own APIs, for embedded services that run in a role of their own."""

    compute: ServiceClient
    placement: ServiceClient
    identity: ServiceClient

    async def close(self) -> None:
        for service in (self.compute, self.placement, self.identity):
            await service.close()


def make_own_apis(config: Config) -> OwnApis:
    """Build these clients: over sockets, with the service user's credentials."""
    identity = ServiceClient(
        "identity", config.identity.url or f"{config.api.identity.url}/v3", ca_file=config.ca_of(config.identity)
    )
    ca_file = config.ca_of()
    user = config.service_user
    tokens = ServiceTokens(
        identity, user=user.user, password=service_password(config), project=user.project, domain=user.domain
    )
    compute = ServiceClient(
        "compute", f"{config.api.compute.url}/v2.1", tokens=tokens, call_deadline_s=OWN_APIS_S, ca_file=ca_file
    )
    placement = ServiceClient(
        "placement", f"{config.api.placement.url}/placement", tokens=tokens, call_deadline_s=OWN_APIS_S, ca_file=ca_file
    )
    return OwnApis(compute, placement, identity)


def admin_password(config: Config) -> str:
    """Return the password of the embedded identity's administrator: the configured one, or one that is made once and kept."""
    return config.admin_password or secret(config.data, "admin-password")


def demo_password(config: Config) -> str:
    """Return the password of the embedded identity's ordinary user, which is made once and kept."""
    return secret(config.data, "demo-password")


def service_password(config: Config) -> str:
    """Return the service user's password: the configured one, or for the embedded identity one that is made once and kept."""
    return config.service_user.password or secret(config.data, "service-password")


def ticket_secret(config: Config) -> TicketSecret | None:
    """Return what hosts' tickets for images are signed with; None: a real image service, which knows no tickets."""
    if config.image.url and not config.image.ticket_secret:
        return None
    return TicketSecret(config.image.ticket_secret or secret(config.data, "image-ticket-secret"))


@dataclass(frozen=True)
class HostsImages:
    """A host's access to the data of images: with the tickets that its orders bring, or with the account `[image_user]`."""

    data: ImageData
    services: tuple[ServiceClient, ...]
    tickets: TicketBox | None = None
    """None: it has an account."""

    async def close(self) -> None:
        for service in self.services:
            await service.close()


def make_hosts_images(config: Config) -> HostsImages:
    """Build this access, over sockets; it cannot reach anything else of the services."""
    if not config.image_user.password:
        service, tickets = _image_service(config, None), TicketBox()
        return HostsImages(ImageData(service, config.data / "image-data", tickets), (service,), tickets)
    token_client = ServiceClient("identity", config.identity.url or f"{config.api.identity.url}/v3")
    user = config.image_user
    tokens = ServiceTokens(
        token_client, user=user.user, password=user.password, project=user.project, domain=user.domain
    )
    image = _image_service(config, tokens)
    return HostsImages(ImageData(image, config.data / "image-data"), (token_client, image))


def _image_service(config: Config, tokens: ServiceTokens | None) -> ServiceClient:
    named = config.image
    return ServiceClient(
        "image",
        named.url or config.api.image.url,
        tokens=tokens,
        call_deadline_s=named.timeout_s,
        breaker=Breaker("image", failures_max=named.breaker_failures, rest_s=named.breaker_rest_s),
        ca_file=config.ca_of(named),
    )


def make_clients(config: Config, embedded: Mapping[str, Any] | None = None) -> Clients:
    """Build the clients. `embedded`: ASGI applications by name (`identity`, `image`, `network`) of services without a configured URL."""
    apps = embedded or {}

    breakers: dict[str, Breaker] = {}

    def client_of(name: str, named: Named, fallback: str, tokens: ServiceTokens | None) -> ServiceClient:
        inside = None if named.url or name not in apps else embedded_transport(apps[name])
        breaker = breakers.setdefault(
            name, Breaker(name, failures_max=named.breaker_failures, rest_s=named.breaker_rest_s)
        )
        return ServiceClient(
            name,
            named.url or fallback,
            tokens=tokens,
            transport=inside,
            call_deadline_s=named.timeout_s,
            breaker=breaker,
            ca_file=config.ca_of(named),
        )

    identity_url = config.identity.url or f"{config.api.identity.url}/v3"
    token_client = client_of("identity", config.identity, identity_url, None)
    user = config.service_user
    tokens = ServiceTokens(
        token_client, user=user.user, password=service_password(config), project=user.project, domain=user.domain
    )
    identity = client_of("identity", config.identity, identity_url, tokens)
    of_system = ServiceTokens(
        token_client, user=user.user, password=service_password(config), domain=user.domain, system=True
    )
    limits_reader = client_of(
        "identity", config.identity, identity_url, of_system if config.quota.system_scope else tokens
    )
    image = client_of("image", config.image, config.api.image.url, tokens)
    network = client_of("network", config.network, config.api.network.url, tokens)
    boxed = TicketBox() if "image" in apps and not config.image.url else None
    of_hosts = client_of("image", config.image, config.api.image.url, None if boxed is not None else tokens)
    clients = [token_client, identity, limits_reader, image, network, of_hosts]
    volumes: VolumeClient | None = None
    if config.volume.url or not config.identity.url:
        clients.append(client_of("volume", _without_version(config.volume), config.api.volume.url, tokens))
        volumes = VolumeClient(clients[-1])
    return Clients(
        IdentityClient(identity),
        ImageClient(image),
        NetworkClient(network),
        ComputeLimitsClient(identity, limits_reader, config.quota.endpoint),
        ImageData(of_hosts, config.data / "image-data", boxed),
        tuple(clients),
        vendor_services(config, tokens),
        volumes,
        boxed,
    )


def _without_version(named: VolumeConfig) -> VolumeConfig:
    """The URL without a version at its end: catalogs often have one, and the client adds its own."""
    return msgspec.structs.replace(named, url=named.url.rstrip("/").removesuffix("/v3"))
