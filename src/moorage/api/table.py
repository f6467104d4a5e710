"""Every method and path of the Compute API: each noun module's routes, joined."""

from moorage.api.compute import aggregates, extra_specs, flavors, hypervisors, keypairs, quotas, server_groups, services
from moorage.api.routes import Route

TABLE: tuple[Route, ...] = (
    *aggregates.ROUTES,
    *extra_specs.ROUTES,
    *flavors.ROUTES,
    *hypervisors.ROUTES,
    *keypairs.ROUTES,
    *quotas.ROUTES,
    *server_groups.ROUTES,
    *services.ROUTES,
)
