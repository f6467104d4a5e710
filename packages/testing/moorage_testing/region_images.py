"""Images and snapshots in a small region: the image service as a dict, and what hosts in dicts do about copies of disks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.model.errors import HostFailed, NotFound
from moorage.model.guest import PowerState, Quiesce
from moorage.model.ids import ImageId, ServerId
from moorage.model.image import Image


@dataclass
class DictImages:
    """The image service: images by id, and whether each is whole."""

    whole: dict[str, bool] = field(default_factory=dict)
    properties: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of those that a test gave some, or that we made ourselves."""
    spent: set[str] = field(default_factory=set)
    """Ids of images that are gone: nobody makes another one of that id."""

    async def show(self, image: str, token: str | None = None) -> Image:
        """An image. Raises NotFound."""
        if image not in self.whole:
            raise NotFound(f"Image {image} could not be found.")
        return Image(id=image, status="active" if self.whole[image] else "queued")

    async def make(self, record: Mapping[str, Any]) -> Image:
        """As both image services do: one of that id is found, and one that is gone is not made again."""
        image = str(record["id"])
        if image not in self.spent and image not in self.whole:
            self.whole[image] = False
            self.properties[image] = {key: str(value) for key, value in record.items()}
        return await self.show(image)

    async def fill_with_properties(self, image: str, wanted: Mapping[str, str]) -> None:
        """Complete an image with properties. Raises NotFound."""
        if image not in self.whole:
            raise NotFound(f"Image {image} could not be found.")
        self.whole[image] = True

    async def delete(self, image: str) -> bool:
        if self.whole.pop(image, None) is not None:
            self.spent.add(image)
        return True

    async def every(self, filters: Mapping[str, str], *, at_most: int) -> list[Image]:
        """Newest first; of those with properties, the ones that have these."""
        found = []
        for image, whole in reversed(self.whole.items()):
            has = self.properties.get(image)
            status = "active" if whole else "queued"
            wanted = {**filters, "status": status} if status in filters.get("status", status) else {"status": ""}
            if has is None or wanted.items() <= {**has, "status": status}.items():
                found.append(Image(id=image, status=status, properties=has or {}))
        return found[:at_most]


@dataclass
class SnapshotVerbs:
    """Of `DictHosts`, which says how a turn is obeyed."""

    guests: dict[tuple[str, ServerId], PowerState] = field(default_factory=dict)
    copies: dict[tuple[str, ServerId], ImageId] = field(default_factory=dict)
    """Copies of disks that wait to be sent."""
    images: DictImages = field(default_factory=DictImages)

    def _execute_once(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, do: Callable[[], PowerState]
    ) -> PowerState:
        raise NotImplementedError

    async def take_snapshot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, image: ImageId, quiesce: Quiesce
    ) -> PowerState:
        def do() -> PowerState:
            self.copies[to.host, server] = image
            return self.guests[to.host, server]

        return self._execute_once(to, command_context, server, do)

    async def upload_snapshot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, image: ImageId
    ) -> None:
        def do() -> PowerState:
            if image not in self.images.whole:
                raise HostFailed("the image could not be found", code="image_not_found")
            self.images.whole[image] = True
            if self.copies.get((to.host, server)) == image:
                del self.copies[to.host, server]
            return self.guests[to.host, server]

        self._execute_once(to, command_context, server, do)

    async def drop_snapshot(
        self, to: HostAddress, command_context: CommandContext, server: ServerId, image: ImageId
    ) -> None:
        def do() -> PowerState:
            if self.copies.get((to.host, server)) == image:
                del self.copies[to.host, server]
            return self.guests.get((to.host, server), PowerState.NOSTATE)

        self._execute_once(to, command_context, server, do)
