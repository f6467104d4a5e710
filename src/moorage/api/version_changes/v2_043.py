"""2.43: hosts are shown as hypervisors and services."""

from moorage.api import removed_routes
from moorage.api.microversions import VersionChange

CHANGE = VersionChange(at=(2, 43), summary="`/os-hosts` is gone.", ends=removed_routes.keys(removed_routes.ENDED_BY_43))
