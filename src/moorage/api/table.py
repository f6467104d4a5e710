"""Every method and path of the Compute API: each noun module's routes, joined."""

from moorage.api.compute import extra_specs, flavors, keypairs, quotas, server_groups
from moorage.api.routes import Route

TABLE: tuple[Route, ...] = (
    *extra_specs.ROUTES,
    *flavors.ROUTES,
    *keypairs.ROUTES,
    *quotas.ROUTES,
    *server_groups.ROUTES,
)
