"""Passes calls on with the user's own token: requests of the Compute API's older network resources.

Nothing is cached or translated here; a refusal is the service's own.  The handlers of the Compute API translate answers
into the form of the old network API (`api/compute/security_groups.py` and its neighbours).
"""

from typing import Any

from moorage.clients.http import Json, Params
from moorage.clients.network.network_api import NetworkApi, path_of


class UserProxy:
    """Any collection of the network service, with the user's token."""

    def __init__(self, api: NetworkApi) -> None:
        self._api = api

    async def list_as(self, token: str, things: str, params: Params | None = None) -> list[Json]:
        """Return every row that the user sees; `things` is the collection in the path, such as `security-groups`."""
        return [row async for row in self._api.pages(things, params or {}, token)]

    async def show_as(self, token: str, things: str, thing: str) -> Json:
        """Return one row. Raises NotFound."""
        reply = await self._api.call("GET", path_of(things, thing), token=token)
        return _inside(reply.body)

    async def make_as(self, token: str, things: str, fields: Json) -> Json:
        reply = await self._api.call("POST", path_of(things), token=token, body={one_of(things): fields})
        return _inside(reply.body)

    async def change_as(self, token: str, things: str, thing: str, fields: Json) -> Json:
        reply = await self._api.call("PUT", path_of(things, thing), token=token, body={one_of(things): fields})
        return _inside(reply.body)

    async def remove_as(self, token: str, things: str, thing: str) -> None:
        await self._api.call("DELETE", path_of(things, thing), token=token)


def one_of(things: str) -> str:
    """Return the key of a single row: `security_group` for `security-groups`."""
    return things.replace("-", "_").removesuffix("s")


def _inside(body: dict[str, Any]) -> Json:
    """The value of the only key of an answer."""
    (value,) = body.values()
    inside: Json = value
    return inside
