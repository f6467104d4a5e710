"""The doors through which the front desk begins what is done to volumes of servers."""

from typing import Protocol

from moorage.model.asker import Asker
from moorage.model.server import BlockDevice, Server
from moorage.operations import assisted_snapshot, attach_volume, detach_volume, swap_volume
from moorage.operations.assisted_snapshot import SnapshotWish
from moorage.operations.attach_volume import VolumeWish
from moorage.operations.rooms import Rooms
from moorage.operations.steps.servers import StateCheck


class VolumeDoorsProtocol(Protocol):
    """What may be begun on volumes; each is accepted durably when the call returns, or a Problem is raised."""

    async def attach_volume(
        self, asker: Asker, token: str, server: Server, wish: VolumeWish, *, check: StateCheck, request_id: str
    ) -> BlockDevice:
        """The device as the record lists it: the volume is held for the server then."""
        ...

    async def detach_volume(
        self, asker: Asker, token: str, server: Server, volume: str, *, check: StateCheck, request_id: str
    ) -> None: ...

    async def swap_volume(
        self, asker: Asker, token: str, server: Server, old: str, new: str, *, check: StateCheck, request_id: str
    ) -> None: ...

    async def assisted_snapshot(
        self, asker: Asker, server: Server, wish: SnapshotWish, *, check: StateCheck, request_id: str
    ) -> None: ...


class VolumeDoors:
    """Those of a region."""

    rooms: Rooms

    async def attach_volume(
        self, asker: Asker, token: str, server: Server, wish: VolumeWish, *, check: StateCheck, request_id: str
    ) -> BlockDevice:
        return await attach_volume.begin(self.rooms, asker, token, server, wish, check=check, request_id=request_id)

    async def detach_volume(
        self, asker: Asker, token: str, server: Server, volume: str, *, check: StateCheck, request_id: str
    ) -> None:
        await detach_volume.begin(self.rooms, asker, token, server, volume, check=check, request_id=request_id)

    async def swap_volume(
        self, asker: Asker, token: str, server: Server, old: str, new: str, *, check: StateCheck, request_id: str
    ) -> None:
        await swap_volume.begin(self.rooms, asker, token, server, old, new, check=check, request_id=request_id)

    async def assisted_snapshot(
        self, asker: Asker, server: Server, wish: SnapshotWish, *, check: StateCheck, request_id: str
    ) -> None:
        await assisted_snapshot.begin(self.rooms, asker, server, wish, check=check, request_id=request_id)
