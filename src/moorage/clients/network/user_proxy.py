"""Calls passed on with the user's own token: what the Compute API once let people do at the network service.

Nothing is kept and nothing is translated here; a refusal is the service's own.  The handlers of the Compute API put it
in the words of the old network (`api/compute/security_groups.py` and the modules beside it).
"""

from typing import Any

from moorage.clients.http import Json, Params
from moorage.clients.network.network_api import NetworkApi, path_of


class UserProxy:
    """Any collection of the network service, with the user's token."""

    def __init__(self, api: NetworkApi) -> None:
        self._api = api

    async def list_as(self, token: str, things: str, params: Params | None = None) -> list[Json]:
        """Every row that the user may see; `things` is the path's word, `security-groups`."""
        return [row async for row in self._api.pages(things, params or {}, token)]

    async def show_as(self, token: str, things: str, thing: str) -> Json:
        """One of them. Raises NotFound."""
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
    """`security_group` of `security-groups`: the key one of them stands under."""
    return things.replace("-", "_").removesuffix("s")


def _inside(body: dict[str, Any]) -> Json:
    """What stands under the one key of an answer."""
    (found,) = body.values()
    inside: Json = found
    return inside
