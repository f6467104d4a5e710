"""Asks compute for the embedded volume service whether a server still uses a volume, as Cinder does before a user detaches it."""

from urllib.parse import quote

from moorage.clients.http import ServiceClient
from moorage.model.errors import NotFound, Problem, Unavailable

VERSION = "2.89"
"""Microversion of the Compute API: the first that names the volume service's attachment of a server."""


class ServerVolumesOverHttp:
    """The `ServerVolumes` that the embedded volume service asks, with credentials of its own."""

    def __init__(self, compute: ServiceClient) -> None:
        self._compute = compute

    async def __call__(self, server: str, volume: str) -> str | None:
        """Return the attachment of this volume and server; None: compute knows of none. Raises Unavailable when compute does not answer."""
        path = f"/servers/{quote(server, safe='')}/os-volume_attachments/{quote(volume, safe='')}"
        headers = {"OpenStack-API-Version": f"compute {VERSION}"}
        try:
            reply = await self._compute.call("GET", path, headers=headers)
        except NotFound:
            return None
        except Problem as problem:
            raise Unavailable(
                f"compute does not say whether server {server} uses the volume: {problem.public}"
            ) from problem
        held = reply.body.get("volumeAttachment", {}).get("attachment_id")
        return None if held is None else str(held)
