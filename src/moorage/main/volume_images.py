"""Gives the embedded volume service access to the embedded image service of the same process, without HTTP.

Data is copied from file to file, piece by piece; over HTTP within one process it would be held in memory as a whole.
"""

from collections.abc import AsyncIterator

from moorage.model.json_types import JsonObject
from moorage.model.principal import Principal
from moorage_embedded.image.app import ImageService


class EmbeddedImages:
    """The `Images` that the embedded volume service asks."""

    def __init__(self, service: ImageService) -> None:
        self._service = service

    async def show(self, principal: Principal, id: str) -> JsonObject | None:
        return await self._service.show(principal, id)

    async def named(self, principal: Principal, name: str) -> list[JsonObject]:
        return await self._service.named(principal, name)

    def read(self, id: str) -> AsyncIterator[bytes]:
        return self._service.read(id)

    async def create(self, principal: Principal, fields: JsonObject) -> JsonObject:
        return await self._service.create(principal, fields)

    async def fill(self, id: str, pieces: AsyncIterator[bytes]) -> None:
        await self._service.fill(id, pieces)
