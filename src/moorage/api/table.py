"""Every method and path of the Compute API: each noun module's routes, joined."""

from moorage.api import gone
from moorage.api.compute import (
    aggregates,
    extensions,
    external_events,
    extra_specs,
    flavors,
    floating_ips,
    hypervisors,
    image_metadata,
    images,
    instance_actions,
    keypairs,
    migrations,
    networks,
    os_hosts,
    quotas,
    security_groups,
    server_actions,
    server_groups,
    server_later,
    server_metadata,
    server_parts,
    servers,
    services,
    usage,
    volumes_boot,
)
from moorage.api.ext import operations
from moorage.api.routes import Route

TABLE: tuple[Route, ...] = (
    *aggregates.ROUTES,
    *extensions.ROUTES,
    *external_events.ROUTES,
    *extra_specs.ROUTES,
    *flavors.ROUTES,
    *floating_ips.ROUTES,
    *gone.ROUTES,
    *hypervisors.ROUTES,
    *image_metadata.ROUTES,
    *images.ROUTES,
    *instance_actions.ROUTES,
    *keypairs.ROUTES,
    *migrations.ROUTES,
    *networks.ROUTES,
    *os_hosts.ROUTES,
    *quotas.ROUTES,
    *operations.ROUTES,
    *security_groups.ROUTES,
    *server_actions.ROUTES,
    *server_groups.ROUTES,
    *server_later.ROUTES,
    *server_metadata.ROUTES,
    *server_parts.ROUTES,
    *servers.ROUTES,
    *services.ROUTES,
    *usage.ROUTES,
    *volumes_boot.aliases(
        (*server_actions.ROUTES, *server_later.ROUTES, *servers.ROUTES, *floating_ips.ROUTES, *security_groups.ROUTES)
    ),
)
