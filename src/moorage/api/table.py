"""Every method and path of the Compute API: each noun module's routes, joined."""

from moorage.api.compute import (
    aggregates,
    extensions,
    extra_specs,
    flavors,
    gone,
    hypervisors,
    keypairs,
    migrations,
    quotas,
    server_groups,
    servers,
    services,
    usage,
)
from moorage.api.routes import Route

TABLE: tuple[Route, ...] = (
    *aggregates.ROUTES,
    *extensions.ROUTES,
    *extra_specs.ROUTES,
    *flavors.ROUTES,
    *gone.ROUTES,
    *hypervisors.ROUTES,
    *keypairs.ROUTES,
    *migrations.ROUTES,
    *quotas.ROUTES,
    *server_groups.ROUTES,
    *servers.ROUTES,
    *services.ROUTES,
    *usage.ROUTES,
)
