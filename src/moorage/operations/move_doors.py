"""The doors for moves."""

from typing import Protocol

from moorage.model.asker import Asker
from moorage.model.server import Server
from moorage.operations import confirm_resize, resize_request, revert_resize
from moorage.operations.resize_request import ResizeWish
from moorage.operations.rooms import Rooms
from moorage.operations.steps.servers import StateCheck


class MoveDoorsProtocol(Protocol):
    """What the front desk asks here; `check` refuses a state that forbids it."""

    async def resize(
        self, asker: Asker, server: Server, wish: ResizeWish, *, check: StateCheck, request_id: str
    ) -> None:
        """A wish without a flavor is a migration."""
        ...

    async def confirm_resize(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None: ...

    async def revert_resize(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None: ...


class MoveDoors:
    rooms: Rooms

    async def resize(
        self, asker: Asker, server: Server, wish: ResizeWish, *, check: StateCheck, request_id: str
    ) -> None:
        await resize_request.begin(self.rooms, asker, server, wish, check=check, request_id=request_id)

    async def confirm_resize(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None:
        who = asker.user, asker.project or ""
        await confirm_resize.begin(self.rooms, server.id, *who, check=check, request_id=request_id)

    async def revert_resize(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None:
        await revert_resize.begin(self.rooms, asker, server, check=check, request_id=request_id)
