"""The Placement API of a whole cloud, at `/placement`, over the engine that the scheduler uses too."""

from starlette.types import ASGIApp

from moorage.api.placement.app import make_placement_app
from moorage.api.placement.cors import Cors
from moorage.main.composition import RegionProcess
from moorage.main.placement_role import keystone, policy

PREFIX = "/placement"


def make_placement(region: RegionProcess) -> ASGIApp:
    """Build the Placement API of this process. The identity service validates tokens, as for the Compute API."""
    mine = region.config.placement
    app = make_placement_app(
        region.engine,
        region.databases.region,
        keystone(region.clients.identity),
        policy=policy(region.config),
        prefix=PREFIX,
    )
    return Cors(app, mine.cors_allowed_origins, mine.cors_allow_headers) if mine.cors_allowed_origins else app
