"""What the volume service asks of others: images' data, and which volumes compute says a server has."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from moorage.model.principal import Principal

NotifyCompute: TypeAlias = Callable[[list[dict[str, Any]]], Awaitable[None]]
"""Sends external events to compute. Raises when that failed; the event is then sent again."""

ServerVolumes: TypeAlias = Callable[[str, str], Awaitable[str | None]]
"""(server, volume) → the attachment that compute keeps for the two; None: it knows of none."""


class VolumeImages(Protocol):
    """The image service. Methods raise `Problem` when it is out."""

    async def show(self, principal: Principal, id: str) -> dict[str, Any] | None:
        """The image as the caller may see it, as `GET /v2/images/{id}` answers."""
        ...

    async def named(self, principal: Principal, name: str) -> list[dict[str, Any]]:
        """Images of that name that the caller may see; two are enough to know that there are several."""
        ...

    def read(self, id: str) -> AsyncIterator[bytes]:
        """Its data, with the service's own rights."""
        ...

    async def create(self, principal: Principal, fields: dict[str, Any]) -> dict[str, Any]:
        """A new image of the caller's, without data. Raises `Problem` when it is refused."""
        ...

    async def fill(self, id: str, pieces: AsyncIterator[bytes]) -> None:
        """Upload its data, with the service's own rights."""
        ...
