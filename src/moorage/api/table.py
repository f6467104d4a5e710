"""Every method and path of the Compute API: each noun module's routes, joined."""

from moorage.api.routes import Route

TABLE: tuple[Route, ...] = ()
