"""The embedded services of one process: identity, image, network and volume, each if the configuration names no real service.

This module needs the package `moorage_embedded`. Import it only after `optional_packages.require_embedded`, inside the function that
opens the services: the other roles run without that package.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from moorage.clients.download import download
from moorage.main.config import Config
from moorage.main.config_bus import ImageUser
from moorage.main.hosts import HostPlan, interfaces_by_network
from moorage.main.secret_settings import secret
from moorage.main.service_clients import admin_password, demo_password, service_password, ticket_secret
from moorage.main.volume_images import EmbeddedImages
from moorage.model.json_types import JsonObject
from moorage.sql import Database, Meter, open_database
from moorage_embedded.identity.app import (
    Bootstrap,
    EmbeddedIdentity,
    FirstService,
    FirstUser,
    IdentitySettings,
    make_identity,
)
from moorage_embedded.identity.lockout import LockoutLimits
from moorage_embedded.image.app import ImageService, ImageSettings, make_image
from moorage_embedded.image.policy import IMAGE_DATA
from moorage_embedded.image.task_imports import TaskImports
from moorage_embedded.network.app import NetworkService, NetworkSettings, make_network
from moorage_embedded.network.guarantees import ChangeGuarantees
from moorage_embedded.network.hosts import HostNetworks
from moorage_embedded.network.outbox import NotifyCompute
from moorage_embedded.volume.app import EmbeddedVolume, OtherServices, ServerVolumes, make_volume


@dataclass
class Embedded:
    """The embedded services that run in this process, by name."""

    identity: EmbeddedIdentity | None = None
    image: ImageService | None = None
    network: NetworkService | None = None
    volume: EmbeddedVolume | None = None
    databases: list[Database] = field(default_factory=list)

    def end_waits(self) -> None:
        """Answer whoever waits for one of them, for they are about to stop."""
        if self.network is not None:
            self.network.end_waits()

    @property
    def apps(self) -> JsonObject:
        services = {
            "identity": self.identity, "image": self.image, "network": self.network, "volume": self.volume
        }  # fmt: skip
        return {name: service.app for name, service in services.items() if service is not None}

    async def stop(self) -> None:
        if self.volume is not None:
            await self.volume.stop()
        if self.image is not None:
            await self.image.stop()
        if self.network is not None:
            await self.network.stop()
        if self.identity is not None:
            self.identity.close()
        for database in self.databases:
            await database.close()


MIB = 1024 * 1024
OpenDatabase: TypeAlias = Callable[[str], Awaitable[Database]]
"""Opens the database of the embedded service with this name."""


def configured_databases(config: Config) -> OpenDatabase:
    """Open each service's database where the configuration says."""

    async def database(name: str) -> Database:
        return await open_database(
            config.embedded_url(name),
            name=f"embedded-{name}",
            meter=Meter(),
            durability=config.region.durability,
            limits=config.database.limits,
        )

    return database


async def open_embedded(
    config: Config,
    *,
    notify_compute: NotifyCompute | None = None,
    databases: OpenDatabase | None = None,
    guarantees: ChangeGuarantees | None = None,
    server_volumes: ServerVolumes | None = None,
) -> Embedded:
    """Open and start every embedded service; identity first, because the others validate tokens with it.

    `server_volumes`: asks compute which attachment of a volume a server has.
    """
    services = Embedded()
    open_one = databases or configured_databases(config)

    async def database(name: str) -> Database:
        opened = await open_one(name)
        services.databases.append(opened)
        return opened

    if config.identity.url:
        return services
    services.identity = make_identity(
        await database("identity"),
        public_url=config.api.identity.url,
        bootstrap=bootstrap(config),
        key=secret(config.data, "token-key", 32).encode(),
        settings=IdentitySettings(
            token_life_s=config.token_life_s,
            password_rounds=config.security_compliance.password_hash_rounds,
            limits=LockoutLimits(
                config.security_compliance.lockout_failure_attempts,
                config.security_compliance.lockout_duration,
                config.security_compliance.login_failures_per_minute,
            ),
        ),
    )
    await services.identity.start()
    validate = services.identity.validate
    if not config.image.url:
        services.image = make_image(
            await database("image"),
            files=config.data / "images",
            validate_token=validate,
            public_url=config.api.image.url,
            settings=ImageSettings(
                image_max_bytes=config.image.image_size_cap,
                project_max_bytes=config.image.user_storage_quota,
                metadefs=config.data / config.image.metadefs if config.image.metadefs else None,
                tickets=ticket_secret(config),
            ),
            allowed=partial(_bytes_of_images, services.identity),
            imports=TaskImports(config.image.import_hosts, download),
        )
        await services.image.start()
    if not config.network.url and config.network.backend == "ports":
        services.network = make_network(
            await database("network"),
            public_url=config.api.network.url,
            validate_token=validate,
            notify_compute=notify_compute,
            settings=NetworkSettings(forbidden_ranges=config.network.forbidden_ranges),
            guarantees=guarantees,
        )
        await services.network.start()
    if not config.volume.url:
        services.volume = make_volume(
            await database("volume"),
            files=config.data / "volumes",
            validate_token=validate,
            public_url=config.api.volume.url,
            others=OtherServices(
                images=None if services.image is None else EmbeddedImages(services.image),
                notify_compute=notify_compute,
                server_volumes=server_volumes,
            ),
        )
        await services.volume.start()
    return services


def host_networks(config: Config, plans: list[HostPlan]) -> list[HostNetworks]:
    """Describe these hosts for the embedded network service: their physical networks, and what they can guarantee to ports."""
    settings = config.hosts
    return [
        HostNetworks(
            each.host,
            each.physical_networks,
            settings.bandwidth_kbps,
            settings.packet_rate_kpps,
            interfaces_by_network(each),
        )
        if not each.real
        else HostNetworks(
            each.host,
            each.physical_networks,
            config.libvirt.bandwidth_kbps,
            plugs_into_bridges=True,
            filters_ports=config.libvirt.port_filter,
        )
        for each in plans
    ]


async def _bytes_of_images(identity: EmbeddedIdentity, project: str) -> int | None:
    """The project's limit of image data in bytes; the unified limit is in MiB, as in Glance."""
    limit = await identity.limit("image", "image_size_total", project)
    return None if limit is None else limit * MIB


def _of_hosts(user: ImageUser) -> tuple[FirstUser, ...]:
    """The hosts' account, which may only read and write images; none if it has no password."""
    if not user.password:
        return ()
    return (FirstUser(user.user, user.password, roles=((user.project, IMAGE_DATA),), default_project=user.project),)


def bootstrap(config: Config) -> Bootstrap:
    """Describe the users, projects and catalog of a new cloud."""
    api = config.api
    service = config.service_user
    return Bootstrap(
        region=config.region.name,
        projects=tuple(dict.fromkeys(("admin", service.project, "demo", config.image_user.project))),
        users=(
            FirstUser(
                "admin",
                admin_password(config),
                roles=(("admin", "admin"), ("demo", "admin")),
                system_roles=("admin",),
                default_project="admin",
            ),
            FirstUser("demo", demo_password(config), roles=(("demo", "member"),), default_project="demo"),
            FirstUser(
                service.user,
                service_password(config),
                roles=((service.project, "admin"), (service.project, "service")),
                default_project=service.project,
            ),
            *_of_hosts(config.image_user),
        ),
        services=(
            FirstService("identity", "keystone", f"{api.identity.url}/v3"),
            FirstService("compute", "nova", f"{api.compute.url}/v2.1"),
            FirstService("image", "glance", api.image.url),
            FirstService("network", "neutron", api.network.url),
            FirstService("placement", "placement", f"{api.placement.url}/placement"),
            FirstService("volumev3", "cinderv3", f"{api.volume.url}/v3/%(project_id)s"),
            FirstService("block-storage", "cinder", f"{api.volume.url}/v3/%(project_id)s"),
        ),
    )
