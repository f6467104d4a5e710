"""The doors through which the front desk begins what is done to volumes of servers."""

from typing import Protocol

from moorage.model.principal import Principal
from moorage.model.server import BlockDevice, Server
from moorage.operations.context import SagaContext
from moorage.operations.steps.servers import StateCheck
from moorage.operations.volumes import assisted_snapshot, attach_volume, detach_volume, swap_volume
from moorage.operations.volumes.assisted_snapshot import SnapshotWish
from moorage.operations.volumes.attach_volume import VolumeWish


class VolumeDoorsProtocol(Protocol):
    """What may be begun on volumes; each is accepted durably when the call returns, or a Problem is raised."""

    async def attach_volume(
        self, principal: Principal, token: str, server: Server, wish: VolumeWish, *, check: StateCheck, request_id: str
    ) -> BlockDevice:
        """The device as the record lists it: the volume is held for the server then."""
        ...

    async def detach_volume(
        self, principal: Principal, token: str, server: Server, volume: str, *, check: StateCheck, request_id: str
    ) -> None: ...

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
    ) -> None: ...

    async def assisted_snapshot(
        self, principal: Principal, server: Server, wish: SnapshotWish, *, check: StateCheck, request_id: str
    ) -> None: ...


class VolumeService:
    """Those of a region."""

    context: SagaContext

    async def attach_volume(
        self, principal: Principal, token: str, server: Server, wish: VolumeWish, *, check: StateCheck, request_id: str
    ) -> BlockDevice:
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
        await swap_volume.begin(self.context, principal, token, server, old, new, check=check, request_id=request_id)

    async def assisted_snapshot(
        self, principal: Principal, server: Server, wish: SnapshotWish, *, check: StateCheck, request_id: str
    ) -> None:
        await assisted_snapshot.begin(self.context, principal, server, wish, check=check, request_id=request_id)
