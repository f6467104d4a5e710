"""The doors for shelving."""

from typing import Protocol

from moorage.model.asker import Asker
from moorage.model.server import Server
from moorage.operations import shelve, unshelve_request
from moorage.operations.rooms import Rooms
from moorage.operations.steps.servers import StateCheck
from moorage.operations.unshelve_request import UnshelveWish


class ShelveDoorsProtocol(Protocol):
    """What the front desk asks here; `check` refuses a state that forbids it."""

    async def shelve(self, asker: Asker, token: str, server: Server, *, check: StateCheck, request_id: str) -> None: ...

    async def shelve_offload(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None: ...

    async def unshelve(
        self, asker: Asker, server: Server, wish: UnshelveWish, *, check: StateCheck, request_id: str
    ) -> None: ...


class ShelveDoors:
    rooms: Rooms

    async def shelve(self, asker: Asker, token: str, server: Server, *, check: StateCheck, request_id: str) -> None:
        await shelve.begin(self.rooms, asker, token, server, check=check, request_id=request_id)

    async def shelve_offload(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None:
        who = asker.user, asker.project or ""
        await shelve.begin_offloading(self.rooms, server.id, *who, check=check, request_id=request_id)

    async def unshelve(
        self, asker: Asker, server: Server, wish: UnshelveWish, *, check: StateCheck, request_id: str
    ) -> None:
        await unshelve_request.begin(self.rooms, asker, server, wish, check=check, request_id=request_id)
