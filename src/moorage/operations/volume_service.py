"""The part of the server service for the volumes of servers."""

from moorage.model.principal import Principal
from moorage.model.server import BlockDevice, Server
from moorage.operations.context import SagaContext
from moorage.operations.steps.servers import StateCheck
from moorage.operations.volumes import assisted_snapshot, attach_volume, detach_volume, swap_volume
from moorage.operations.volumes.assisted_snapshot import SnapshotWish
from moorage.operations.volumes.attach_volume import VolumeWish


class VolumeService:
    """When a method returns, the operation is accepted durably; otherwise it raised a Problem."""

    context: SagaContext

    async def attach_volume(
        self, principal: Principal, token: str, server: Server, wish: VolumeWish, *, check: StateCheck, request_id: str
    ) -> BlockDevice:
        """Reserve the volume for the server; return the device as the record lists it. Raises Conflict and Invalid."""
        return await attach_volume.begin(
            self.context, principal, token, server, wish, check=check, request_id=request_id
        )

    async def detach_volume(
        self, principal: Principal, token: str, server: Server, volume: str, *, check: StateCheck, request_id: str
    ) -> None:
        await detach_volume.begin(self.context, principal, token, server, volume, check=check, request_id=request_id)

    async def swap_volume(
        self,
        principal: Principal,
        token: str,
        server: Server,
        old: str,
        new: str,
        *,
        check: StateCheck,
        request_id: str,
    ) -> None:
        await swap_volume.begin(
            self.context, principal, token, server, swap_volume.SwapWish(old, new), check=check, request_id=request_id
        )

    async def assisted_snapshot(
        self, principal: Principal, server: Server, wish: SnapshotWish, *, check: StateCheck, request_id: str
    ) -> None:
        await assisted_snapshot.begin(self.context, principal, server, wish, check=check, request_id=request_id)
