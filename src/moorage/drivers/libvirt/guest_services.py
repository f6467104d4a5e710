"""What guests have from this host besides their wires: the way to the metadata service, routers and floating addresses."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from moorage.drivers.libvirt.metadata_keeper import MetadataKeeper, Seat
from moorage.drivers.libvirt.routes import NOTHING_FAR, FarSide
from moorage.drivers.libvirt.routing import Routing
from moorage.drivers.libvirt.settings import Libvirt
from moorage.model.ids import PortId
from moorage.model.port_description import PortDescription


class GuestServices:
    """Of one host."""

    def __init__(self, owner: str, room: Path, settings: Libvirt, metadata_secret: str) -> None:
        """`metadata_secret`: what the metadata service knows its proxies by."""
        self._metadata = MetadataKeeper(room, settings, metadata_secret)
        self._routing = Routing(owner, room, settings.external_devices)
        self._routes = settings.routers

    async def keep(
        self,
        seats: Mapping[str, Sequence[Seat]],
        described: Mapping[PortId, PortDescription],
        far: FarSide = NOTHING_FAR,
    ) -> None:
        """Bridge of ours → who is on it. Raises HostFailed (`vif_not_plugged`)."""
        await self._metadata.keep(seats)
        await self._routing.keep(seats, described if self._routes else {}, far)

    async def is_intact(self) -> bool:
        """Whether nobody removed what routers have in nftables."""
        return await self._routing.is_intact()

    @property
    def not_routed(self) -> tuple[str, ...]:
        """What of routers and floating addresses is not in effect."""
        return self._routing.troubles

    def is_lost(self) -> bool:
        """Whether a process that should run does not."""
        return self._metadata.is_lost()
