"""The Placement API of one process, at `/placement`, over the engine that the scheduler uses too."""

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.routing import Mount

from moorage.api.placement.app import make_placement_app
from moorage.main.region import Region
from moorage.model.asker import Asker
from moorage.model.errors import Unauthenticated

PREFIX = "/placement"


def make_placement(region: Region) -> Starlette:
    """Tokens are validated by the identity service, as for the Compute API."""

    async def authenticate(headers: Mapping[str, str]) -> Asker:
        token = headers.get("x-auth-token")
        if not token:
            raise Unauthenticated("The request you have made requires authentication.")
        return await region.clients.identity.validate(token, headers.get("x-service-token"))

    inner = make_placement_app(region.engine, region.databases.region, authenticate, prefix=PREFIX)
    return Starlette(routes=[Mount(PREFIX, app=inner)])
